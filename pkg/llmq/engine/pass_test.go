package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// B17: what nobody here can serve is looked at soon at first, then ever more seldom, and once more before its time is over.
func TestPassOn_WaitsGrowUpToTheLastLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			receives         int
			left, low, below time.Duration
		}{
			{0, 12 * time.Hour, time.Second, 5 * time.Second},
			{1, 12 * time.Hour, time.Second, 5 * time.Second},
			{6, 12 * time.Hour, time.Second, 5 * time.Second},
			{7, 12 * time.Hour, 2 * time.Second, 10 * time.Second},
			{9, 12 * time.Hour, 8 * time.Second, 40 * time.Second},
			{10, 12 * time.Hour, 16 * time.Second, 80 * time.Second},
			{11, 12 * time.Hour, 24 * time.Second, 2 * time.Minute},
			{900, 12 * time.Hour, 24 * time.Second, 2 * time.Minute},
			{900, lastLook + 2*time.Second, 2 * time.Second, 2*time.Second + passSoon},
		} {
			for range 200 {
				v := passOn(llmq.Request{Op: llmq.OpJob, Deadline: time.Now().Add(tt.left)}, tt.receives)
				if v.Action != Release || v.Reason != reasonUnknownJob || v.After < tt.low || v.After >= tt.below {
					t.Fatalf("after %d receives, %s before the deadline: %+v, want %s to %s", tt.receives, tt.left, v, tt.low, tt.below)
				}
			}
		}
	})
}

// B5, DS57: what nobody can serve in 12 h, the longest deadline, is looked at less often than SQS allows: 1000 times, after which it
// would take the message away without a reason.
func TestPassOn_TheLongestDeadlineHoldsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, receives := llmq.Request{Op: llmq.OpJob, Deadline: time.Now().Add(12 * time.Hour)}, 0
		for time.Until(q.Deadline) > lastLook {
			receives++
			time.Sleep(passOn(q, receives).After)
		}
		if receives < 400 || receives > 750 {
			t.Errorf("%d receives", receives)
		}
	})
}
