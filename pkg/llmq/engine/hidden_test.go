package engine_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/bedrock"
	"github.com/llm-queue/llmq/pkg/llmq/provider/openai"
)

// reach makes a provider of the given wire at a server of the test's own.
func reach(t *testing.T, w llmq.Wire, url string) provider.Provider {
	t.Helper()
	n := provider.DefaultNetwork()
	n.Loopback = true
	if w == llmq.WireConverse {
		p, err := bedrock.New(bedrock.Config{
			Name: "fake", Region: "eu-central-1", Endpoint: url, Network: n, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		})
		if err != nil {
			t.Fatalf("bedrock: %v", err)
		}
		t.Cleanup(p.Close)
		return p
	}
	p, err := openai.New(openai.Config{Name: "fake", BaseURL: url, Network: n, APIKey: func(context.Context) (string, error) { return "key", nil }})
	if err != nil {
		t.Fatalf("openai: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// H16 a and b, on real sockets, where libraries repeat what they think is harmless: the other end counts exactly our
// tries, and so does the meta. (c is in provider/providertest.)
func TestRun_NoAttemptIsHidden(t *testing.T) {
	t.Parallel()
	const attempt = 2 * time.Second
	for name, tc := range map[string]struct {
		serve func(w http.ResponseWriter, r *http.Request)
		code  llmq.Code
		most  time.Duration
	}{
		"never answers": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, llmq.CodeTimeout, 3*attempt + 3*time.Second},
		"503 for ever":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, llmq.CodeProviderError, 3 * time.Second},
	} {
		for _, wire := range []llmq.Wire{llmq.WireOpenAI, llmq.WireConverse} {
			t.Run(name+" on "+string(wire), func(t *testing.T) {
				t.Parallel()
				var got atomic.Int32
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got.Add(1)
					_, _ = io.Copy(io.Discard, r.Body) // only then does the server watch for the peer's end
					tc.serve(w, r)
				}))
				t.Cleanup(server.Close)
				r := newRig(t, servers.Dial(t, false), nil)
				r.attempt, r.policy.Curve.Base, r.policy.Curve.Max = attempt, 10*time.Millisecond, 100*time.Millisecond
				r.wires = map[string]provider.Provider{"fake": reach(t, wire, server.URL)}
				target := place("m", "t")
				target.Provider, target.Wires = "fake", []llmq.Wire{wire}
				r.chainOf(fallback.Rules{}, target)
				req, start := asked(wire), time.Now()
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Limit: start.Add(tc.most + 2*time.Second)}), engine.Stored, "failed")
				if took := time.Since(start); took > tc.most {
					t.Errorf("it took %v, want at most %v", took, tc.most)
				}
				if e := r.wantStored(req, tc.code); got.Load() != 3 || e.Meta.Attempts != 3 {
					t.Errorf("the other end counts %d calls, the meta tells of %d, want 3", got.Load(), e.Meta.Attempts)
				}
				if st := r.peek(target); st.Ended[capacity.Failed] != 3 || st.InUse != 0 {
					t.Errorf("the gate has heard of %v", st.Ended)
				}
			})
		}
	}
}
