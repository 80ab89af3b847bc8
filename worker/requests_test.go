package worker

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// What ten calls of a Go client cost in requests to SQS, all told: their sends, their receive, their leases and their
// deletions. An event source's empty polls come on top.
func TestHandler_RequestsOfABatchOfTen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		took func(i int) time.Duration
		want map[string]int64
	}{
		{
			"done within ten seconds", func(int) time.Duration { return 9 * time.Second },
			map[string]int64{"SendMessageBatch": 1, "ReceiveMessage": 1, "ChangeMessageVisibilityBatch": 1, "DeleteMessageBatch": 1},
		},
		{
			"all of 25 s", func(int) time.Duration { return 25 * time.Second },
			map[string]int64{"SendMessageBatch": 1, "ReceiveMessage": 1, "ChangeMessageVisibilityBatch": 3, "DeleteMessageBatch": 1},
		},
		{
			"of 3 s to 30 s", func(i int) time.Duration { return time.Duration(3*i+2) * time.Second },
			map[string]int64{"SendMessageBatch": 1, "ReceiveMessage": 1, "ChangeMessageVisibilityBatch": 3, "DeleteMessageBatch": 3},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inRig(t, func(t *testing.T, r *rig) {
				r.run = func(id string) engine.Verdict {
					i, err := strconv.Atoi(id)
					if err != nil {
						t.Error(err)
					}
					return ok(tt.took(i))
				}
				before := r.server.Stats().Requests
				b := queue.Batched(r.client, 20*time.Millisecond, 1<<20)
				defer b.Close()
				var sends sync.WaitGroup
				for i := range 10 {
					sends.Go(func() {
						if err := b.Send(t.Context(), name, queue.Outgoing{Body: []byte(envelope(strconv.Itoa(i)))}); err != nil {
							t.Error(err)
						}
					})
				}
				sends.Wait()
				ev := r.receive()
				reply := r.invoke(ev)
				r.settle(ev, reply)
				if reply != `{"batchItemFailures":[]}` || len(r.runs) != 10 {
					t.Errorf("%d runs, reply %s", len(r.runs), reply)
				}
				got, all := map[string]int64{}, int64(0)
				for op, n := range r.server.Stats().Requests {
					if n -= before[op]; n > 0 {
						got[op], all = n, all+n
					}
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				if d, err := r.client.Depth(t.Context(), name); err != nil || d != (queue.Depth{}) {
					t.Errorf("left in the queue: %+v, %v", d, err)
				}
				t.Logf("%s: %d requests, %.1f a call", tt.name, all, float64(all)/10)
			})
		})
	}
}
