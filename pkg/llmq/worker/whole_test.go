package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// H08, B3: m1 succeeds, m2 and m3 are rotten for good, m4 finds no slot and is handed back after its wait.
func TestWhole_OneBatchWithEachKindOfEnd(t *testing.T) {
	t.Parallel()
	wholeBubble(t, 1, replies(25*time.Second), func(t *testing.T, p *plant) {
		w := p.worker("w")
		first := on("m1", llmq.LaneBG)
		second, third := message("m2", `{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}`), message("m3", "not json {")
		fourth := on("m4", llmq.LaneBG)
		busy := newHolder(t, p)
		defer busy.release()
		// The one slot is held for 10 s: one of the two gets it after that, the other waits 15 s in vain.
		go func() {
			time.Sleep(10 * time.Second)
			busy.release()
		}()
		got := actions(w.Handle(t.Context(), []queue.Message{first, second, third, fourth}))
		slices.Sort(got)
		wantEither := [][]string{
			{"m1 ack ok", "m2 ack bad_envelope", "m3 ack bad_envelope", "m4 keep no_capacity"},
			{"m1 keep no_capacity", "m2 ack bad_envelope", "m3 ack bad_envelope", "m4 ack ok"},
		}
		if !cmp.Equal(wantEither[0], got) && !cmp.Equal(wantEither[1], got) {
			t.Errorf("outcomes %v", got)
		}
		if n := p.provider.total(); n != 1 {
			t.Errorf("%d provider calls, want 1", n)
		}
		if len(w.sent) != 2 {
			t.Errorf("dead letters: %+v", w.sent)
		}
	})
}

func TestWhole_ThrottleIsStoredAndAcknowledged(t *testing.T) {
	t.Parallel()
	throttle := func(context.Context, provider.Request) (*provider.Response, error) {
		return nil, &provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429, RetryAfter: 9 * time.Second, Message: "slow down"}
	}
	wholeBubble(t, 1, throttle, func(t *testing.T, p *plant) {
		got := actions(p.worker("w").Handle(t.Context(), []queue.Message{on("a", llmq.LaneRT)}))
		if diff := cmp.Diff([]string{"a ack throttled"}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		p.wantError("a", llmq.CodeRateLimited)
		if after := p.stored("a").Err.RetryAfter; after != 9*time.Second {
			t.Errorf("retry after %v", after)
		}
	})
}

// H12 a: neither run nor dead-lettered, but told.
func TestWhole_DeadlineThatPassedInTheQueueIsToldAndAcknowledged(t *testing.T) {
	t.Parallel()
	wholeBubble(t, 1, replies(0), func(t *testing.T, p *plant) {
		m := on("a", llmq.LaneRT)
		m.SentAt = time.Now().Add(-92 * time.Second)
		w := p.worker("w")
		got := actions(w.Handle(t.Context(), []queue.Message{m}))
		if diff := cmp.Diff([]string{"a ack expired"}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		p.wantError("a", llmq.CodeExpired)
		if n := p.provider.total(); n != 0 || len(w.sent) != 0 {
			t.Errorf("%d provider calls, dead letters %v", n, w.sent)
		}
	})
}

// H10 a: the same message twice in one batch.
func TestWhole_CopiesInOneBatchRunOnce(t *testing.T) {
	t.Parallel()
	wholeBubble(t, 5, replies(3*time.Second), func(t *testing.T, p *plant) {
		one, two := on("a", llmq.LaneRT), on("a", llmq.LaneRT)
		two.Receipt = "other"
		got := actions(p.worker("w").Handle(t.Context(), []queue.Message{one, two}))
		if diff := cmp.Diff([]string{"a ack ok", "a ack ok"}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if n := p.provider.total(); n != 1 {
			t.Errorf("%d provider calls, want 1", n)
		}
	})
}

func TestWhole_ProviderPanicSparesTheNeighboursAndIsTakenOver(t *testing.T) {
	t.Parallel()
	var panicked atomic.Bool
	call := func(ctx context.Context, req provider.Request) (*provider.Response, error) {
		if strings.Contains(string(req.Body), "bad") && panicked.CompareAndSwap(false, true) {
			panic("boom")
		}
		return replies(20*time.Second)(ctx, req)
	}
	wholeBubble(t, 5, call, func(t *testing.T, p *plant) {
		w := p.worker("w")
		bad := on("bad", llmq.LaneBG)
		got := actions(w.Handle(t.Context(), []queue.Message{on("a", llmq.LaneBG), bad, on("b", llmq.LaneBG)}))
		if diff := cmp.Diff([]string{"a ack ok", "bad keep not_finished", "b ack ok"}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		time.Sleep(worker.Lease - 20*time.Second) // its visibility ends: the claim's lease has lapsed before
		if diff := cmp.Diff([]string{"bad ack ok"}, actions(w.Handle(t.Context(), []queue.Message{bad}))); diff != "" {
			t.Errorf("when it is back (-want +got):\n%s", diff)
		}
		if m := p.stored("bad").Reply.Meta; m.Takeovers != 1 {
			t.Errorf("meta %+v, want one takeover", m)
		}
	})
}

func TestWhole_StoreDownHandsTheBatchBack(t *testing.T) {
	t.Parallel()
	wholeBubble(t, 5, replies(0), func(t *testing.T, p *plant) {
		p.trips.OnTrip(func(context.Context, []redis.Cmder) error { return errors.New("connection refused") })
		w := p.worker("w")
		got := actions(w.Handle(t.Context(), []queue.Message{on("a", llmq.LaneRT), on("b", llmq.LaneRT)}))
		if diff := cmp.Diff([]string{"a keep store_unavailable", "b keep store_unavailable"}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if n := p.provider.total(); n != 0 || len(w.sent) != 0 {
			t.Errorf("%d provider calls, dead letters %v", n, w.sent)
		}
	})
}

// The message stays hidden for its lease, longer than the claim's, when nothing could be stored.
func TestWhole_ResultThatCannotBeStoredIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	wholeBubble(t, 5, replies(2*time.Second), func(t *testing.T, p *plant) {
		start := time.Now()
		p.trips.OnTrip(func(context.Context, []redis.Cmder) error {
			if since := time.Since(start); since > time.Second && since < 10*time.Second {
				return errors.New("connection refused")
			}
			return nil
		})
		w := p.worker("w")
		m := on("a", llmq.LaneRT)
		if diff := cmp.Diff([]string{"a keep store_unavailable"}, actions(w.Handle(t.Context(), []queue.Message{m}))); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"0s hide ha of llm-chat-a-rt for 55s (1 of 1)"}, w.done()); diff != "" {
			t.Errorf("done to the queue (-want +got):\n%s", diff)
		}
		time.Sleep(worker.Lease)
		if diff := cmp.Diff([]string{"a ack ok"}, actions(w.Handle(t.Context(), []queue.Message{m}))); diff != "" {
			t.Errorf("when it is back (-want +got):\n%s", diff)
		}
	})
}

// A Lambda that has no time left claims nothing; one that runs out gives the request back.
func TestWhole_OutOfTime(t *testing.T) {
	t.Parallel()
	wholeBubble(t, 5, replies(30*time.Second), func(t *testing.T, p *plant) {
		w := p.worker("w")
		for _, left := range []time.Duration{0, 200 * time.Millisecond, worker.Margin} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			if diff := cmp.Diff([]string{"a keep out_of_time"}, actions(w.Handle(ctx, []queue.Message{on("a", llmq.LaneRT)}))); diff != "" {
				t.Errorf("with %v left (-want +got):\n%s", left, diff)
			}
			cancel()
		}
		if n := p.provider.total(); n != 0 {
			t.Errorf("%d provider calls, want none", n)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if diff := cmp.Diff([]string{"a keep out_of_time"}, actions(w.Handle(ctx, []queue.Message{on("a", llmq.LaneRT)}))); diff != "" {
			t.Errorf("cut short (-want +got):\n%s", diff)
		}
		if took := time.Since(start); took != 20*time.Second-worker.Margin {
			t.Errorf("it ended after %v", took)
		}
		time.Sleep(time.Second) // it stays away for that long
		if diff := cmp.Diff([]string{"a ack ok"}, actions(w.Handle(t.Context(), []queue.Message{on("a", llmq.LaneRT)}))); diff != "" {
			t.Errorf("next (-want +got):\n%s", diff)
		}
	})
}

// Claim, slot and visibility are renewed together while an attempt runs.
func TestWhole_LeasesAreRenewedTogether(t *testing.T) {
	t.Parallel()
	wholeBubble(t, 1, replies(55*time.Second), func(t *testing.T, p *plant) {
		w, other := p.worker("w"), p.worker("other")
		var done sync.WaitGroup
		done.Go(func() {
			if diff := cmp.Diff([]string{"a ack ok"}, actions(w.Handle(t.Context(), []queue.Message{on("a", llmq.LaneRT)}))); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
		time.Sleep(50 * time.Second) // past every lease, were it not renewed
		copied := on("a", llmq.LaneRT)
		if diff := cmp.Diff([]string{"a keep running_elsewhere"}, actions(other.Handle(t.Context(), []queue.Message{copied}))); diff != "" {
			t.Errorf("a copy elsewhere (-want +got):\n%s", diff)
		}
		done.Wait()
		var hides []string
		for _, d := range w.done() {
			at, _, _ := strings.Cut(d, " ")
			hides = append(hides, at)
		}
		if diff := cmp.Diff([]string{"0s", "10s", "20s", "30s", "40s", "50s"}, hides); diff != "" {
			t.Errorf("renewals of the message (-want +got):\n%s", diff)
		}
		if n := p.provider.total(); n != 1 {
			t.Errorf("%d provider calls, want 1", n)
		}
	})
}

// Every request is delivered three times, in any order, to eight workers at once: each is
// run once, answered with its own, and no more run than there are slots.
// C4, D1: the cap holds over all workers, and no request is paid for twice.
func TestWhole_EachRequestRunsOnceHoweverOftenItIsDelivered(t *testing.T) {
	t.Parallel()
	const requests, copies, workers, slots = 50, 3, 8, 5
	for _, cluster := range []bool{false, true} {
		t.Run(fmt.Sprintf("cluster=%v", cluster), func(t *testing.T) {
			t.Parallel()
			p := newPlant(t, servers.Dial(t, cluster), slots, replies(20*time.Millisecond))
			deliveries := make(chan queue.Message, requests*copies*100)
			var open sync.WaitGroup // deliveries that are not acknowledged
			for c := range copies {
				for i := range requests {
					m := on(fmt.Sprint("r", (i*7+c*13)%requests), llmq.LaneBG)
					m.Receipt = fmt.Sprint("receipt ", c, " ", i)
					open.Add(1)
					deliveries <- m
				}
			}
			var all sync.WaitGroup
			for n := range workers {
				w := p.worker(fmt.Sprint("w", n))
				all.Go(func() {
					for m := range deliveries {
						for _, out := range w.Handle(t.Context(), []queue.Message{m}) {
							if out.Action == worker.Ack {
								open.Done()
								continue
							}
							deliveries <- m // at once: far more often than a queue would
						}
					}
				})
			}
			open.Wait()
			close(deliveries)
			all.Wait()
			for i := range requests {
				id := fmt.Sprint("r", i)
				if n := p.provider.calls[`{"nr":"`+id+`"}`]; n != 1 {
					t.Errorf("%s was run %d times", id, n)
				}
				res := p.stored(id)
				if res == nil || res.Reply == nil || string(res.Reply.Body) != `{"to":{"nr":"`+id+`"}}` {
					t.Errorf("%s: stored %+v", id, res)
				}
			}
			if p.provider.peak > slots {
				t.Errorf("%d calls were in flight at once, of %d slots", p.provider.peak, slots)
			}
			if p.provider.peak < 2 {
				t.Errorf("only %d calls were in flight at once: the test shows nothing", p.provider.peak)
			}
		})
	}
}

// B9, DS42: an offloaded body lives as long as anybody may need it. A second message of the request, which comes after
// its end, finds neither a body nor anything to do.
func TestWhole_OffloadedBodyLivesAsLongAsItsMessage(t *testing.T) {
	t.Parallel()
	wholeBubble(t, 1, replies(time.Second), func(t *testing.T, p *plant) {
		lies := map[string]string{key("a"): `{"nr":"a"}`}
		w := p.worker("w")
		w.get = func(_ context.Context, ref llmq.Ref) ([]byte, error) {
			if body, ok := lies[ref.Key]; ok {
				return []byte(body), nil
			}
			return nil, llmq.Errorf(llmq.CodeBadEnvelope, "not stored").Because(fs.ErrNotExist)
		}
		w.remove = func(_ context.Context, key string) error { delete(lies, key); return nil }
		var got []string
		for range 2 {
			m := pointing("a", 9)
			m.Queue = names.Model("chat-a", llmq.LaneBG)
			got = append(got, actions(w.Handle(t.Context(), []queue.Message{m}))...)
		}
		if diff := cmp.Diff([]string{"a ack ok", "a ack already_stored"}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if n := p.provider.total(); n != 1 || len(lies) != 0 || len(w.sent) != 0 {
			t.Errorf("%d provider calls, bodies %v, dead letters %+v", n, lies, w.sent)
		}
	})
}

// DS26, DS46, B17: a message that kills its worker, and neighbours that came with it. Each runs by itself, one in a batch.
func TestWhole_TakenOverMessagesRunOneByOneAndPoisonIsBuried(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	running, alone := 0, true
	call := func(ctx context.Context, req provider.Request) (*provider.Response, error) {
		if strings.Contains(string(req.Body), "bad") {
			panic("boom")
		}
		mu.Lock()
		running++
		alone = alone && running == 1
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			running--
		}()
		return replies(2*time.Second)(ctx, req)
	}
	wholeBubble(t, 20, call, func(t *testing.T, p *plant) {
		batch := []queue.Message{on("bad", llmq.LaneBulk), on("a", llmq.LaneBulk), on("b", llmq.LaneBulk), on("c", llmq.LaneBulk)}
		for i := range batch { // a worker took all of them, and died
			req := llmq.Request{
				ID: batch[i].ID, Tenant: "t", Op: llmq.OpChat, Model: llmq.ModelRef{Alias: "chat-a"}, Deadline: time.Now().Add(15 * time.Minute),
				Body: []byte(`{"nr":"` + batch[i].ID + `"}`),
			}
			var b luascript.Batch
			claims.New(p.space).Take(&b, req, claims.BodyHash(req), "dead/1")
			if err := b.Run(t.Context(), p.valkey); err != nil {
				t.Fatal(err)
			}
		}
		w := p.worker("w")
		ends, rounds := map[string]string{}, 0
		for ; len(batch) > 0 && rounds < 12; rounds++ {
			time.Sleep(worker.Lease)
			var left []queue.Message
			for i, o := range w.Handle(t.Context(), batch) {
				if ends[o.MessageID] = o.Reason; o.Action != worker.Ack {
					left = append(left, batch[i])
				}
			}
			batch = left
		}
		if diff := cmp.Diff(map[string]string{"bad": "worker_crash", "a": "ok", "b": "ok", "c": "ok"}, ends); diff != "" || !alone {
			t.Errorf("after %d rounds, each alone %t (-want +got):\n%s", rounds, alone, diff)
		}
		p.wantError("bad", llmq.CodeWorkerCrash)
		if len(w.sent) != 1 || w.sent[0].Attributes[queue.AttrReason] != "worker_crash" {
			t.Errorf("dead letters: %+v", w.sent)
		}
	})
}
