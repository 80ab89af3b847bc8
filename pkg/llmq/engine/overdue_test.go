package engine_test

import (
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
)

// A4, B6: a request that was cut off by the end of its process and expired before another
// could try is told with the attempt that was made: it may have been paid for.
func TestRun_ExpiredRequestTellsItsAttempts(t *testing.T) {
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
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "expired")
		res := r.stored(req)
		if res == nil || res.Err == nil || res.Err.Code != llmq.CodeExpired || res.Meta().Attempts != 1 {
			t.Errorf("stored %+v, want expired with one attempt", res)
		}
	})
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
