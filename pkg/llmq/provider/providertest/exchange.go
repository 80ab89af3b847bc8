package providertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func (s suite) sendsTheBytesOnce(t *testing.T) {
	u := serve(t, s.reply)
	if _, err := s.call(t.Context(), t, s.open(t, u.URL)); err != nil {
		t.Fatalf("Call: %v", err)
	}
	seen := u.seen()
	if len(seen) != 1 {
		t.Fatalf("the upstream saw %d requests, want 1", len(seen))
	}
	a := seen[0]
	if a.method != http.MethodPost || a.path != s.Path {
		t.Errorf("sent %s %s, want POST %s", a.method, a.path, s.Path)
	}
	if a.body != s.Body {
		t.Errorf("sent body\n%q, want\n%q", a.body, s.Body)
	}
	sent := ""
	for name, values := range a.header {
		if !slices.Contains(s.Headers, name) {
			t.Errorf("header %s is sent, which is none of %v", name, s.Headers)
		}
		if len(values) != 1 {
			t.Errorf("header %s is sent %d times", name, len(values))
		}
		sent += strings.Join(values, "\n") + "\n"
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type = %q", got)
	}
	if got := a.header.Get("User-Agent"); !strings.HasPrefix(got, "llmq/") {
		t.Errorf("User-Agent = %q, want llmq/<version>", got)
	}
	if got := a.header.Get("Accept-Encoding"); got != "identity" {
		t.Errorf("Accept-Encoding = %q, want identity", got)
	}
	if !strings.Contains(sent, s.Secret) {
		t.Error("the credential is in no header")
	}
}

func (s suite) returnsTheBytes(t *testing.T) {
	// Blank lines come before the JSON of servers that keep a connection open (case H19b).
	body := "\n\n " + s.Reply + "\n"
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set(s.RequestID, "exchange-1")
		_, _ = io.WriteString(w, body)
	})
	resp, err := s.call(t.Context(), t, s.open(t, u.URL))
	if err != nil {
		t.Fatalf("Call: %v", err)
	}
	if string(resp.Body) != body {
		t.Errorf("body =\n%q, want\n%q", resp.Body, body)
	}
	if resp.Status != http.StatusOK || resp.ContentType != "application/json" || resp.RequestID != "exchange-1" {
		t.Errorf("response = %d %q, request id %q", resp.Status, resp.ContentType, resp.RequestID)
	}
}

func (s suite) refusalIsOneAttempt(t *testing.T) {
	for _, tt := range []struct {
		status int
		class  provider.Class
		code   llmq.Code
	}{
		{429, provider.Throttle, llmq.CodeRateLimited},
		{500, provider.Retryable, llmq.CodeProviderError},
		{502, provider.Retryable, llmq.CodeProviderError},
		{503, provider.Retryable, llmq.CodeProviderError},
		{504, provider.Retryable, llmq.CodeProviderError},
		{408, provider.Retryable, llmq.CodeProviderError},
		{400, provider.CallFatal, llmq.CodeProviderRejected},
		{404, provider.TargetFatal, llmq.CodeProviderError},
		{401, provider.TargetFatal, llmq.CodeProviderAuth},
		{403, provider.TargetFatal, llmq.CodeProviderAuth},
	} {
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(tt.status)
		})
		e := s.fails(t.Context(), t, u, s.open(t, u.URL), 1, tt.class, tt.code)
		if e.Status != tt.status {
			t.Errorf("status = %d, want %d", e.Status, tt.status)
		}
		wish := time.Duration(0)
		if tt.class == provider.Throttle || tt.class == provider.Retryable {
			wish = 7 * time.Second
		}
		if e.RetryAfter != wish {
			t.Errorf("status %d: RetryAfter = %v, want %v", tt.status, e.RetryAfter, wish)
		}
	}
}

func (s suite) lostConnectionIsOneAttempt(t *testing.T) {
	u := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	s.fails(t.Context(), t, u, s.open(t, u.URL), 1, provider.Retryable, llmq.CodeProviderError)
}

// net/http may repeat a request whose connection was kept from an earlier one. This one was read to
// its end by the upstream, so repeating would be paid for twice.
func (s suite) keptConnectionLostIsOneAttempt(t *testing.T) {
	var once sync.Once
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		first := false
		once.Do(func() { first = true })
		if !first {
			panic(http.ErrAbortHandler)
		}
		s.reply(w, r)
	})
	p := s.open(t, u.URL)
	if _, err := s.call(t.Context(), t, p); err != nil {
		t.Fatalf("first call: %v", err)
	}
	s.fails(t.Context(), t, u, p, 2, provider.Retryable, llmq.CodeProviderError)
}

// The upstream closes a kept connection while nothing is in flight. The provider may notice before
// its next call, which then succeeds, or while it sends, which is a passing fault: what matters is
// that nothing arrives twice, and that the call after a fault succeeds.
func (s suite) deadIdleConnection(t *testing.T) {
	u := serve(t, s.reply)
	p := s.open(t, u.URL)
	calls, failed := 0, false
	for range 10 {
		_, err := s.call(t.Context(), t, p)
		calls++
		if err == nil {
			failed = false
			u.CloseClientConnections()
			continue
		}
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.Retryable || failed {
			t.Fatalf("call %d: %v", calls, err)
		}
		failed = true
	}
	if n := len(u.seen()); n > calls {
		t.Errorf("the upstream saw %d requests of %d calls", n, calls)
	}
}

func (s suite) cancelClosesUpstream(t *testing.T) {
	arrived, gone := make(chan struct{}), make(chan struct{})
	u := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done() // the server ends it when the connection is closed
		close(gone)
	})
	s.cancelled(t, u, arrived, gone)
}

func (s suite) cancelWhileBodyTricklesIn(t *testing.T) {
	arrived, gone := make(chan struct{}), make(chan struct{})
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		close(arrived)
		<-r.Context().Done()
		close(gone)
	})
	s.cancelled(t, u, arrived, gone)
}

func (s suite) cancelled(t *testing.T, u *upstream, arrived, gone <-chan struct{}) {
	t.Helper()
	p := s.open(t, u.URL)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel() // a call that never arrives must not hold the test up
		select {
		case <-arrived:
		case <-time.After(patience):
		}
	}()
	s.fails(ctx, t, u, p, 1, provider.CallFatal, llmq.CodeCancelled)
	<-done
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("the connection to the upstream was not closed")
	}
}

func (s suite) deadlineEndsTheAttempt(t *testing.T) {
	gone := make(chan struct{})
	u := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(gone)
	})
	p := s.open(t, u.URL)
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	s.fails(ctx, t, u, p, 1, provider.Retryable, llmq.CodeTimeout)
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("the connection to the upstream was not closed")
	}
}

func (s suite) endedContextSendsNothing(t *testing.T) {
	u := serve(t, s.reply)
	p := s.open(t, u.URL)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.fails(ctx, t, u, p, 0, provider.CallFatal, llmq.CodeCancelled)
	ctx, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	s.fails(ctx, t, u, p, 0, provider.Retryable, llmq.CodeTimeout)
}

func (s suite) wrongOp(t *testing.T) {
	u := serve(t, s.reply)
	p := s.open(t, u.URL)
	for _, op := range append(llmq.Ops(), "", "speech") {
		if op.Wire() == s.Request.Op.Wire() || slices.Contains(s.Wires, op.Wire()) {
			continue
		}
		other := s
		other.Request.Op = op
		other.fails(t.Context(), t, u, p, 0, provider.TargetFatal, llmq.CodeWrongWire)
	}
}

// Each of many calls at once gets the reply to its own request.
func (s suite) concurrent(t *testing.T) {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the request: %v", err)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"got":%s,%s`, body, strings.TrimPrefix(s.Reply, "{"))
	}))
	t.Cleanup(u.Close)
	p := s.open(t, u.URL)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			req := s.Request
			mark := fmt.Sprintf(`{"call":%d,`, i)
			req.Body = []byte(strings.Replace(string(s.Request.Body), "{", mark, 1))
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			resp, err := p.Call(ctx, req)
			if err != nil {
				t.Errorf("call %d: %v", i, err)
				return
			}
			if want := `{"got":` + mark; !strings.HasPrefix(string(resp.Body), want) {
				t.Errorf("call %d got the reply %.60q", i, resp.Body)
			}
		})
	}
	wg.Wait()
}

// H16 c: of 600 calls by 50 goroutines each is one request, and each failure the provider's own throttle: no
// budget of retries is between them that could run out.
func (s suite) throttled(t *testing.T) {
	var got atomic.Int32
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(u.Close)
	const callers, calls = 50, 12
	p := s.open(t, u.URL)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls {
				_, err := s.call(t.Context(), t, p)
				if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.Throttle || e.Status != http.StatusTooManyRequests {
					t.Errorf("Call = %v, want the provider's own 429", err)
				}
			}
		})
	}
	wg.Wait()
	if n := got.Load(); n != callers*calls {
		t.Errorf("the upstream saw %d requests, want %d", n, callers*calls)
	}
}
