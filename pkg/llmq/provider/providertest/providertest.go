// Package providertest is the suite that every provider.Provider passes, the fakes included. It
// imports testing, so nothing that is deployed may import it.
package providertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// Features describes a provider to the suite.
type Features struct {
	// Request is a call that the provider takes; Reply is the JSON that its upstream answers with.
	Request provider.Request
	Reply   string

	// Wires are those that the provider speaks; none is that of Request.Op alone.
	Wires []llmq.Wire

	// Path and Body are what the upstream must see, the path as it is on the wire, escapes and all.
	Path string
	Body string

	// Headers are the only ones that the upstream may see, in canonical form.
	Headers []string

	// RequestID is the header that carries the upstream's id of an exchange.
	RequestID string

	// Secret is what the provider authenticates with, so the upstream must get it, whole or within a
	// header; no error may hold it, even when the upstream repeats it. Of at least eight characters.
	Secret string
}

// Exercise runs the suite. open makes a provider whose endpoint is base, an http URL on loopback,
// and closes its idle connections by t.Cleanup. The package that calls it checks for leaked
// goroutines in its TestMain.
func Exercise(t *testing.T, f Features, open func(t *testing.T, base string) provider.Provider) {
	t.Helper()
	s := suite{f, open}
	t.Run("SendsTheBytesOnce", func(t *testing.T) { t.Parallel(); s.sendsTheBytesOnce(t) })
	t.Run("ReturnsTheBytes", func(t *testing.T) { t.Parallel(); s.returnsTheBytes(t) })
	t.Run("RefusalIsOneAttempt", func(t *testing.T) { t.Parallel(); s.refusalIsOneAttempt(t) })
	t.Run("LostConnectionIsOneAttempt", func(t *testing.T) { t.Parallel(); s.lostConnectionIsOneAttempt(t) })
	t.Run("KeptConnectionLostIsOneAttempt", func(t *testing.T) { t.Parallel(); s.keptConnectionLostIsOneAttempt(t) })
	t.Run("DeadIdleConnectionSendsNothingTwice", func(t *testing.T) { t.Parallel(); s.deadIdleConnection(t) })
	t.Run("CancelClosesUpstream", func(t *testing.T) { t.Parallel(); s.cancelClosesUpstream(t) })
	t.Run("CancelWhileBodyTricklesIn", func(t *testing.T) { t.Parallel(); s.cancelWhileBodyTricklesIn(t) })
	t.Run("DeadlineEndsTheAttempt", func(t *testing.T) { t.Parallel(); s.deadlineEndsTheAttempt(t) })
	t.Run("EndedContextSendsNothing", func(t *testing.T) { t.Parallel(); s.endedContextSendsNothing(t) })
	t.Run("SEC15LargeReplyIsATargetError", func(t *testing.T) { t.Parallel(); s.largeReply(t) })
	t.Run("SEC15CompressedReplyIsATargetError", func(t *testing.T) { t.Parallel(); s.compressedReply(t) })
	t.Run("NoReplyIsNoSuccess", func(t *testing.T) { t.Parallel(); s.noReply(t) })
	t.Run("SEC21RedirectsAreNotFollowed", func(t *testing.T) { t.Parallel(); s.redirects(t) })
	t.Run("SEC14HostileHeaders", func(t *testing.T) { t.Parallel(); s.hostileHeaders(t) })
	t.Run("SEC14MalformedHeaders", func(t *testing.T) { t.Parallel(); s.malformedHeaders(t) })
	t.Run("SEC14LargeHeaderIsATargetError", func(t *testing.T) { t.Parallel(); s.largeHeader(t) })
	t.Run("CredentialIsInNoError", func(t *testing.T) { t.Parallel(); s.credentialIsInNoError(t) })
	t.Run("WrongOpIsNotSent", func(t *testing.T) { t.Parallel(); s.wrongOp(t) })
	t.Run("H16ThrottlesReachTheCaller", func(t *testing.T) { t.Parallel(); s.throttled(t) })
	t.Run("Concurrent", func(t *testing.T) { t.Parallel(); s.concurrent(t) })
}

// patience is how long the suite waits for what should happen at once.
const patience = 30 * time.Second

type suite struct {
	Features
	open func(t *testing.T, base string) provider.Provider
}

// arrival is a request as the upstream got it.
type arrival struct {
	method, path string
	header       http.Header
	body         string
}

// upstream is an HTTP server that remembers what arrived.
type upstream struct {
	*httptest.Server
	mu       sync.Mutex
	arrivals []arrival // guarded by mu
}

func (u *upstream) seen() []arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.arrivals)
}

// serve starts an upstream; answer runs after the whole request was read.
func serve(t *testing.T, answer http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the request: %v", err)
		}
		u.mu.Lock()
		u.arrivals = append(u.arrivals, arrival{r.Method, r.URL.EscapedPath(), r.Header.Clone(), string(body)})
		u.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(u.Close)
	return u
}

// reply answers with the suite's good reply.
func (s suite) reply(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(s.RequestID, "exchange-1")
	_, _ = io.WriteString(w, s.Reply) // the provider's side of the test reports what is missing
}

// call makes one attempt with the suite's request and a time limit.
func (s suite) call(ctx context.Context, t *testing.T, p provider.Provider) (*provider.Response, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	req := s.Request
	req.Body = slices.Clone(req.Body)
	resp, err := p.Call(ctx, req)
	if string(req.Body) != string(s.Request.Body) {
		t.Errorf("the call changed the caller's bytes to %q", req.Body)
	}
	return resp, err
}

// fails makes one attempt that must end in an error of this class and code, after as many
// requests to u as said.
func (s suite) fails(ctx context.Context, t *testing.T, u *upstream, p provider.Provider, requests int, class provider.Class, code llmq.Code) *provider.Error {
	t.Helper()
	resp, err := s.call(ctx, t, p)
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		t.Fatalf("Call = %v, %v; want a *provider.Error", resp, err)
	}
	if resp != nil {
		t.Errorf("Call gives a response beside its error: %v", resp)
	}
	if e.Class != class || e.Code != code {
		t.Errorf("Call = %v; want %v %v", err, class, code)
	}
	if !errors.Is(err, code) {
		t.Errorf("errors.Is does not see %v in %v", code, err)
	}
	if n := len(u.seen()); n != requests {
		t.Errorf("the upstream saw %d requests, want %d", n, requests)
	}
	return e
}
