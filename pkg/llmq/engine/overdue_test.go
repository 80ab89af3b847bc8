package engine_test

import (
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// A4, B6, DS15: a request that was cut off by the end of its process and whose deadline passed before another
// could try has not expired: an attempt was made, and may have been paid for.
func TestRun_OverdueRequestTellsItsAttempts(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(answers("{}", 50*time.Second))
		req := request()
		req.Deadline = time.UnixMilli(time.Now().Add(23 * time.Second).UnixMilli())
		v := r.engine.Run(t.Context(), engine.Call{Request: req, Limit: time.Now().Add(20 * time.Second)})
		if v.Action != engine.Release || v.Defer == nil {
			t.Fatalf("verdict %+v, want a release", v)
		}
		v.Defer(t.Context())
		time.Sleep(v.After + 5*time.Second)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "timeout")
		if e := r.wantStored(req, llmq.CodeTimeout); e.Meta.Attempts != 1 {
			t.Errorf("stored %+v, want one attempt", e.Meta)
		}
	})
}

// DS15: a worker died over it, by its claim's lapse after the deadline or before it: its provider may have been called.
func TestRun_OverdueRequestOverWhichAWorkerDiedMayHaveRun(t *testing.T) {
	t.Parallel()
	for name, since := range map[string]struct{ kept, deadline time.Duration }{
		"within the lease of the dead": {0, claims.Lease / 2},
		"given back by the next":       {claims.Lease + time.Second, claims.Lease + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				req := request()
				req.Deadline = time.UnixMilli(time.Now().Add(since.deadline).UnixMilli())
				r.take(req, "dead")
				if since.kept > 0 {
					time.Sleep(since.kept)
					claim := r.take(req, "next").Claim
					batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
						return r.claims.Defer(b, claim, 0, claims.Progress{})
					})
				}
				time.Sleep(claims.Lease)
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "timeout")
				if e := r.wantStored(req, llmq.CodeTimeout); e.Meta.Takeovers != 1 {
					t.Errorf("stored %+v, want one takeover", e.Meta)
				}
			})
		})
	}
}

// DS14, DS36, A4: where nobody could try it again before its deadline, whoever sees that ends it, at once and with
// what is known; its slot goes back, charged with what was reserved.
func TestRun_CutWithoutTimeForAnotherTryEndsAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(answers("{}", 50*time.Second))
		req, start := request(), time.Now()
		req.Deadline = time.UnixMilli(start.Add(21 * time.Second).UnixMilli())
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Limit: start.Add(20 * time.Second)}), engine.Stored, "abandoned")
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("ended after %v", took)
		}
		if e := r.wantStored(req, llmq.CodeTimeout); e.Meta.Attempts != 1 {
			t.Errorf("stored %+v", e.Meta)
		}
		r.wantSlots(ended(capacity.Abandoned))
	})
}
