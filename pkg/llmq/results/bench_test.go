package results

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/bench/turns"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// BenchmarkHub_AgainstBarePubSub holds a result that is waited for, woken for and read, while a thousand others wait, against the least
// that could do so: a subscription, a stored value with a publication, and a read, on connections that are there. In turns. make
// bench-check compares what it reports.
func BenchmarkHub_AgainstBarePubSub(b *testing.B) {
	c := servers.Dial(b, true)
	h := newHub(b, c)
	for i := range 1000 {
		w := h.subscribe(b, fmt.Sprint("other", i))
		defer w.Close()
	}
	sub := c.Subscribe(b.Context())
	defer sub.Close() // read from only
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		got := turns.Compare(b, 200, func(int) {
			id := llmq.NewID()
			w := h.subscribe(b, id)
			h.finish(b, id)
			wantResult(b, w, id, time.Minute)
			w.Close()
		}, func(int) {
			name := "llmq:bench:{" + llmq.NewID() + "}"
			check(sub.Subscribe(b.Context(), name))
			_, err := sub.Receive(b.Context()) // the confirmation
			check(err)
			_, err = c.Pipelined(b.Context(), func(p redis.Pipeliner) error {
				p.Set(b.Context(), name, "result", time.Minute)
				p.Publish(b.Context(), name, "there")
				return nil
			})
			check(err)
			_, err = sub.ReceiveMessage(b.Context())
			check(err)
			check(c.Get(b.Context(), name).Err())
			check(sub.Unsubscribe(b.Context(), name))
			_, err = sub.Receive(b.Context())
			check(err)
		})
		b.ReportMetric(got.Time, "x-bare-pubsub")
	}
}
