package engine_test

import (
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
)

// A4, B6: a request that was cut off by the end of its process and expired before another
// could try is told with the attempt that was made: it may have been paid for.
func TestRun_ExpiredRequestTellsItsAttempts(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(answers("{}", 50*time.Second))
		req := request()
		req.Deadline = time.UnixMilli(time.Now().Add(21 * time.Second).UnixMilli())
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
