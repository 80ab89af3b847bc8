package worker

import (
	"bytes"
	"slices"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// delivery is a message of a batch. SQS may put one into a batch more than once, each copy with a receipt
// of its own (cases H10): it is handled once, and what is done to it is done to every copy.
type delivery struct {
	queue.Message
	receipts []string     // of all copies
	ends     bool         // its request ends where its body is gone, see queue.Sender.Ends
	reply    *queue.Reply // where its producer is to be told how it ended; nil is nowhere
	body     string       // key of the request's own body, once the request's end is stored; "" is none
	ended    *llmq.Result // what the request has come to here; nil where it has not
}

// leases are those that hide every copy for a while.
func (d *delivery) leases(hide time.Duration) []queue.Lease {
	out := make([]queue.Lease, len(d.receipts))
	for i, r := range d.receipts {
		out[i] = queue.Lease{Receipt: r, For: hide}
	}
	return out
}

// unite makes the deliveries of a batch. Message i belongs to delivery of[i].
func unite(msgs []queue.Message) (ds []*delivery, of []int) {
	of = make([]int, len(msgs))
	for i, m := range msgs {
		first := slices.IndexFunc(ds, func(d *delivery) bool {
			return m.ID != "" && d.ID == m.ID && d.Queue == m.Queue && bytes.Equal(d.Body, m.Body)
		})
		if first < 0 {
			first, ds = len(ds), append(ds, &delivery{Message: m})
		}
		ds[first].receipts = append(ds[first].receipts, m.Receipt)
		of[i] = first
	}
	return ds, of
}
