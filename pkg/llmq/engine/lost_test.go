package engine_test

import (
	"context"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// DS42: the caller of a request whose body is gone is told at once, after its message was buried; no provider is asked.
func TestRun_LostBodyEndsItsRequestAtOnce(t *testing.T) {
	t.Parallel()
	lost := func() *llmq.Error { // each its own: a run writes into it
		return llmq.Errorf(llmq.CodeBadEnvelope, "the body is not stored")
	}
	without := func(req llmq.Request) llmq.Request {
		req.Body = nil
		return req
	}
	for name, tt := range map[string]struct {
		prepare func(r *rig, req llmq.Request)
		action  engine.Action
		reason  string
		letters int
	}{
		"submitted": {func(r *rig, req llmq.Request) {
			batch(r, func(b *luascript.Batch) luascript.Pending[claims.Submission] {
				return r.claims.Submit(b, req, claims.BodyHash(req))
			})
		}, engine.Stored, "bad_envelope", 1},
		"taken before, by one who died": {func(r *rig, req llmq.Request) { r.killed(req, 1) }, engine.Stored, "bad_envelope", 1},
		"nobody knows it":               {func(*rig, llmq.Request) {}, engine.Refuse, "bad_envelope", 0},
		"another runs it":               {func(r *rig, req llmq.Request) { r.take(req, "other") }, engine.Release, engine.ReasonBusy, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				var y yard
				req := hour(request())
				tt.prepare(r, req)
				bury := func(ctx context.Context, l engine.Letter) error {
					if r.stored(req) != nil {
						t.Error("its caller was told before the message was safe")
					}
					return y.bury(ctx, l)
				}
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: without(req), Lost: lost(), Bury: bury}), tt.action, tt.reason)
				if len(y.letters) != tt.letters || r.provider.calls.Load() != 0 {
					t.Errorf("%d dead letters and %d provider calls", len(y.letters), r.provider.calls.Load())
				}
				if tt.letters > 0 {
					r.wantStored(req, llmq.CodeBadEnvelope)
				}
			})
		})
	}
}
