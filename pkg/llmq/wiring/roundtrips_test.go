package wiring

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// split tells the trips of commands from those of subscriptions, which nobody waits for: they
// travel beside.
func split(trips []llmqtest.Trip) (calls [][]string, beside []string) {
	for _, t := range trips {
		if c := t.Commands[0]; c == "subscribe" || c == "unsubscribe" {
			beside = append(beside, t.Commands...)
		} else {
			calls = append(calls, t.Commands)
		}
	}
	return calls, beside
}

// C10: on the wire, in cluster mode, a finished call takes its worker two round trips, one after the
// other: claim and admit, then store, wake and settle. The subscription for a cancel travels
// beside them. (Renewals come every ten seconds, and no call here lasts as long.)
func TestWorker_TwoRoundTripsACall(t *testing.T) {
	t.Parallel()
	server := realValkey(t, true)
	wire := clusterWire(t, server)
	admin := direct(t, server)
	space := preset(t, admin)
	p := newProcess(t, dial(t, server, wire.Addr(), true, 5*time.Second), space)
	var calls atomic.Int32
	during := func() {}
	w := p.worker("w", callFunc(func(context.Context, provider.Request) (*provider.Response, error) {
		calls.Add(1)
		during()
		return ok(`{"x":1}`), nil
	}))
	n := 0
	call := func() ([][]string, []string, int) {
		t.Helper()
		wire.Trips()
		n++
		id := fmt.Sprintf("r-%d", n)
		if got := handle(t.Context(), w, message(id)); got != "ack ok" {
			t.Fatalf("%s: %s", id, got)
		}
		trips := wire.Trips()
		c, beside := split(trips)
		if res := p.stored(id); res == nil || res.Reply == nil || res.Reply.Meta.Attempts != 1 {
			t.Fatalf("%s: stored %+v", id, res)
		}
		return c, beside, llmqtest.Chain(trips)
	}
	call() // connections and scripts
	call()
	two := [][]string{{"evalsha", "evalsha"}, {"evalsha", "evalsha"}}
	sub := []string{"subscribe", "unsubscribe"}

	// Replies that take long show what waits for what: trips that are not made one after the other overlap.
	wire.Delay(30 * time.Millisecond)
	chains := map[int]int{}
	for range 20 {
		c, beside, chain := call()
		if diff := cmp.Diff(two, c); diff != "" {
			t.Fatalf("round trips (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(sub, beside); diff != "" {
			t.Errorf("beside them (-want +got):\n%s", diff)
		}
		chains[chain]++
	}
	t.Logf("20 calls: 40 round trips of commands; one after the other (length: calls): %v", chains)
	if chains[2] < 15 { // a machine that stands still for 30 ms pulls overlapping trips apart
		t.Errorf("round trips one after the other (length: calls): %v, want 2", chains)
	}
	wire.Delay(0)

	// NOSCRIPT in a pipeline: what was unknown is sent once more, and what it did not do is done once.
	flush := func() {
		if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
			t.Errorf("script flush: %v", err)
		}
	}
	during = flush
	c, _, _ := call()
	if diff := cmp.Diff([][]string{{"evalsha", "evalsha"}, {"evalsha", "evalsha"}, {"eval", "eval"}}, c); diff != "" {
		t.Errorf("scripts flushed in mid-call (-want +got):\n%s", diff)
	}
	during = func() {}
	c, _, _ = call() // take and admit were flushed too
	if diff := cmp.Diff([][]string{{"evalsha", "evalsha"}, {"eval", "eval"}, {"evalsha", "evalsha"}}, c); diff != "" {
		t.Errorf("the next call (-want +got):\n%s", diff)
	}
	c, _, _ = call()
	if diff := cmp.Diff(two, c); diff != "" {
		t.Errorf("the one after (-want +got):\n%s", diff)
	}
	if got := calls.Load(); got != int32(n) {
		t.Errorf("%d provider calls for %d requests", got, n)
	}
}

// toWorker is a queue that gives each message to a worker at once.
type toWorker struct {
	noQueue
	worker  *worker.Worker
	working sync.WaitGroup
	ends    chan string
}

func (q *toWorker) Send(ctx context.Context, name queue.Name, m queue.Outgoing) error {
	q.working.Go(func() {
		q.ends <- handle(context.WithoutCancel(ctx), q.worker, queue.Message{ID: "m", Receipt: "r", Queue: name, Body: m.Body, SentAt: time.Now(), SenderID: "door", Attributes: m.Attributes})
	})
	return nil
}

// C10 from the door's side: the submission and the subscription before the send, a look after it, and the read
// when it is woken. The end of the subscription is waited for, since nothing may outlive a Lambda's handler.
func TestDo_RoundTripsOfADoor(t *testing.T) {
	t.Parallel()
	server := realValkey(t, true)
	wire := clusterWire(t, server)
	admin := direct(t, server)
	space := preset(t, admin)
	workers := newProcess(t, admin, space) // past the wire
	looked := make(chan struct{})
	q := &toWorker{ends: make(chan string, 1), worker: workers.worker("w", callFunc(func(context.Context, provider.Request) (*provider.Response, error) {
		<-looked
		return ok(`{"x":1}`), nil
	}))}
	door := newProcess(t, dial(t, server, wire.Addr(), true, 5*time.Second), space)
	c := door.client(q)
	for i := range 10 {
		wire.Trips()
		done := make(chan error, 1)
		go func() {
			_, err := c.Do(t.Context(), request(fmt.Sprintf("d-%d", i)))
			done <- err
		}()
		tick := time.NewTicker(time.Millisecond)
		var before []llmqtest.Trip
		for len(before) < 3 { // the call goes on once it has been looked for
			<-tick.C
			before = append(before, wire.Trips()...)
		}
		tick.Stop()
		looked <- struct{}{}
		if err := <-done; err != nil {
			t.Fatalf("do: %v", err)
		}
		if end := <-q.ends; end != "ack ok" {
			t.Fatalf("worker: %s", end)
		}
		q.working.Wait()
		var got [][]string
		for _, trip := range append(before, wire.Trips()...) {
			got = append(got, trip.Commands)
		}
		if i < 2 {
			continue // connections and scripts
		}
		want := [][]string{{"evalsha"}, {"subscribe"}, {"evalsha", "hget", "get"}, {"get"}, {"unsubscribe"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("round trips (-want +got):\n%s", diff)
		}
	}
}
