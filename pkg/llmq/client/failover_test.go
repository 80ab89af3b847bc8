package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/routing"
)

// D10: while a model's queue takes nothing, what can't do without it is refused at once, but for one call of all processes at a time
// that tries. The first that is taken ends the outage for all.
func TestDo_OutageOfTheQueueIsProbedByOneAtATime(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		r.sendErr = refused()
		r.served(request(), 0) // the model is moved
		r.sendErr = nil
		r.hangs()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		background := func(i int) llmq.Request {
			req := timed(i, llmq.LaneBulk, time.Hour)
			req.Model = request().Model
			return req
		}
		refusedAfter := func(i int) time.Duration {
			began := time.Now()
			if e := r.failure(ctx, background(i), llmq.CodeQueueUnavailable); e.RetryAfter <= 0 || e.Final {
				t.Errorf("call %d: %+v, want it told when to come back", i, e)
			}
			return time.Since(began)
		}
		for round := range 3 {
			var probe sync.WaitGroup
			probe.Go(func() {
				if took := refusedAfter(10 * round); took < 5*time.Second || took > 5100*time.Millisecond { // background calls wait for each other
					t.Errorf("the probe took %v, want the 5s of a send", took)
				}
			})
			synctest.Wait()
			for i := range 5 {
				if took := refusedAfter(10*round + 1 + i); took != 0 {
					t.Errorf("refused after %v, want at once", took)
				}
			}
			probe.Wait()
			r.served(numbered(100+round), 0)
			time.Sleep(5 * time.Second)
		}
		r.sendTakes = 0
		if _, err := r.Do(ctx, background(50)); err != nil { // the next probe
			t.Errorf("the queue is back: %v", err)
		}
		sends, _ := r.counts()
		r.wantReply(numbered(200))
		if now, _ := r.counts(); now != sends+1 {
			t.Errorf("%d sends after %d: live calls must be queued again", now, sends)
		}
	})
}

// D10: another process's probe counts as this one's.
func TestDo_OutageOfTheQueueIsProbedByOneProcessAtATime(t *testing.T) {
	t.Parallel()
	directly(t, nil, func(t *testing.T, r *rig) {
		r.sendErr = refused()
		r.served(request(), 0)
		batch(r, func(b *luascript.Batch) luascript.Pending[string] { // another process probes
			set := b.Command("SET", r.space.Failover(request().Model.Alias).Probe, 1, "PX", 10_000)
			return func() (string, error) { said, _, err := set.Text(); return said, err }
		})
		sends := func(i int) int {
			req := numbered(i)
			req.Lane = llmq.LaneBG
			before := r.tried.Load()
			r.wantError(t.Context(), req, llmq.CodeQueueUnavailable)
			return int(r.tried.Load() - before)
		}
		if n := sends(1); n != 0 {
			t.Errorf("%d sends beside another's probe", n)
		}
		time.Sleep(10 * time.Second)
		if n := sends(2); n != 1 {
			t.Errorf("%d sends once that is over, want one", n)
		}
	})
}

// D10: a live call that was about to be sent when the outage was noticed is served here too.
func TestDo_OutageNoticedMeanwhileIsDoneWithout(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		r.sendErr = refused()
		late := numbered(2)
		r.trips.OnAnswer(func(_ context.Context, cmds []redis.Cmder) error {
			if said := fmt.Sprint(cmds); strings.Contains(said, string(late.RID())) && strings.Contains(said, r.space.Failover("m").Direct) {
				time.Sleep(time.Second) // it has heard that all is well
			}
			return nil
		})
		var calls sync.WaitGroup
		calls.Go(func() { r.served(late, time.Second) })
		synctest.Wait()
		r.served(numbered(1), 0) // the model is moved
		calls.Wait()
		if n := r.tried.Load(); n != 1 {
			t.Errorf("%d sends, want that of the first", n)
		}
		if said := r.log.String(); strings.Count(said, "model_direct") != 1 || strings.Contains(said, "model_queued") {
			t.Errorf("said %s", said)
		}
	})
}

// D10: a process that had no processor, or was stopped, tells nothing of the queue: what its sends lasted is not counted. Their calls
// are served here all the same.
func TestDo_ProcessThatDidNotRunDeclaresNoOutage(t *testing.T) {
	t.Parallel()
	directly(t, replies(0), func(t *testing.T, r *rig) {
		r.hangs()
		r.sendBound += 1500 * time.Millisecond // the process hears of the end of its 5 s no sooner
		for i := range 5 {
			r.served(numbered(i), 7*time.Second)
		}
		if n := r.tried.Load(); n != 5 {
			t.Errorf("%d sends, want one of each call", n)
		}
		r.sendTakes = 0
		r.wantReply(numbered(10))
	})
}

// E12: a call that was not run here since no slot was free at once, and that the queue does not take either, is run here once there is one.
func TestDo_CallThatBothRefuseIsTriedHereAgain(t *testing.T) {
	t.Parallel()
	directly(t, nil, func(t *testing.T, r *rig) {
		r.routing = routed(routing.Auto, 0)
		r.sendErr, r.sendTakes = refused(), time.Second
		free := r.occupy()
		var freed sync.WaitGroup
		freed.Go(func() { time.Sleep(500 * time.Millisecond); free() })
		r.served(request(), time.Second)
		freed.Wait()
	})
}
