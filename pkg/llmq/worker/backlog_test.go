package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// queued is a message on a queue that workers poll freely.
type queued struct {
	queue.Message
	visible time.Time
	over    bool
}

// poll hands a worker what is visible, one message at a time as a busy event source may, until all of them are
// acknowledged or an hour has passed.
func poll(t *testing.T, w *world, msgs []*queued) {
	t.Helper()
	w.extend = func(_ context.Context, _ queue.Name, leases []queue.Lease) error {
		for _, m := range msgs {
			for _, l := range leases {
				if l.Receipt == m.Receipt {
					m.visible = time.Now().Add(l.For)
				}
			}
		}
		return nil
	}
	for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(time.Second) {
		left := 0
		for _, m := range msgs {
			if m.over {
				continue
			}
			left++
			if time.Now().Before(m.visible) {
				continue
			}
			m.ReceiveCount++
			m.over = w.Handle(t.Context(), []queue.Message{m.Message})[0].Action == worker.Ack
		}
		if left == 0 {
			return
		}
	}
	t.Error("messages are left after an hour")
}

// H09, B5: what waits for a slot or for budget has not failed, however often it is received.
func TestWhole_BusyWorkersSendNothingToTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	t.Run("no slot", func(t *testing.T) {
		t.Parallel()
		wholeBubble(t, 1, replies(time.Second), func(t *testing.T, p *plant) {
			busy := newHolder(t, p)
			go func() {
				time.Sleep(2 * time.Minute)
				busy.release()
			}()
			wantAllAtFirstAttempt(t, p)
		})
	})
	t.Run("one call a minute", func(t *testing.T) {
		t.Parallel()
		wholeBubble(t, 5, replies(time.Second), func(t *testing.T, p *plant) {
			p.rates = llmq.Rates{RPM: 1}
			wantAllAtFirstAttempt(t, p)
		})
	})
}

func wantAllAtFirstAttempt(t *testing.T, p *plant) {
	t.Helper()
	w := p.worker("w")
	var msgs []*queued
	for i := range 5 {
		m := on(fmt.Sprint("m", i), llmq.LaneBG)
		m.ReceiveCount = 0
		msgs = append(msgs, &queued{Message: m})
	}
	poll(t, w, msgs)
	if len(w.sent) != 0 {
		t.Errorf("dead letters: %+v", w.sent)
	}
	receives := 0
	for _, m := range msgs {
		receives += m.ReceiveCount
		if res := p.stored(m.ID); res == nil || res.Err != nil || res.Reply.Meta.Attempts != 1 {
			t.Errorf("%s: stored %+v after %d receives, want its reply of the first attempt", m.ID, res, m.ReceiveCount)
		}
	}
	if receives < 8 {
		t.Errorf("%d receives of 5 messages: nothing had to wait", receives)
	}
}

// DS46: a worker's death leaves a batch of messages that may all have killed it. They run here one after the other, each by
// itself, while that goes quickly; else the rest is soon back for other processes. A message that would then stand behind its whole
// backlog waits longer.
func TestWhole_KilledBatchRunsOneByOneOrIsSpread(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		takes    time.Duration
		receives int
		ran      int
	}{
		"quick calls":                           {time.Second, 2, 10},
		"slow calls":                            {time.Minute, 2, 1},
		"calls of some seconds, often received": {4 * time.Second, 3, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wholeBubble(t, 20, replies(of.takes), func(t *testing.T, p *plant) { killedBatch(t, p, of.receives, of.ran) })
		})
	}
}

func killedBatch(t *testing.T, p *plant, receives, wantRan int) {
	t.Helper()
	var batch []queue.Message
	for i := range 10 {
		m := on(fmt.Sprint("m", i), llmq.LaneBG)
		m.ReceiveCount = receives
		batch = append(batch, m)
	}
	p.take(batch)
	time.Sleep(claims.Lease + time.Second)
	w, began := p.worker("alive"), time.Now()
	back := map[string]time.Duration{}
	var mu sync.Mutex // guards back
	w.extend = func(_ context.Context, _ queue.Name, leases []queue.Lease) error {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range leases {
			if l.For < worker.Lease {
				back[l.Receipt] = time.Since(began) + l.For
			}
		}
		return nil
	}
	most := 15 * time.Second
	if receives > 2 {
		most = 35 * time.Second
	}
	ran := 0
	for _, o := range w.Handle(t.Context(), batch) {
		if o.Action == worker.Ack {
			ran++
		} else if at := back["h"+o.MessageID]; at == 0 || at > most || o.Reason != "must_run_alone" {
			t.Errorf("%+v, back after %v", o, at)
		}
	}
	if ran != wantRan || p.provider.peak != 1 {
		t.Errorf("%d ran, %d at once, want %d, each by itself", ran, p.provider.peak, wantRan)
	}
}

// take claims what messages ask for, by a worker that dies of it.
func (p *plant) take(batch []queue.Message) {
	p.t.Helper()
	for _, m := range batch {
		env, err := llmq.DecodeEnvelope(m.Body)
		if err != nil {
			p.t.Fatal(err)
		}
		r := llmq.Request{
			ID: env.ID, Tenant: env.Tenant, Op: env.Op, Model: llmq.ModelRef{Alias: env.Model}, Lane: llmq.LaneBG, Fallback: llmq.FallbackChain,
			Deadline: m.SentAt.Add(llmq.LaneBG.DefaultTimeout()), Body: env.Params,
		}
		var b luascript.Batch
		taken := claims.New(p.space).Take(&b, r, claims.BodyHash(r), "dead/"+r.ID)
		if err := b.Run(p.t.Context(), p.valkey); err != nil {
			p.t.Fatal(err)
		}
		if got, err := taken(); err != nil || got.State != claims.Taken {
			p.t.Fatalf("take: %+v, %v", got, err)
		}
	}
}
