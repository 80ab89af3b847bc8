package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// plan is a request's fate, drawn before its bubble begins.
type plan struct {
	lane    llmq.Lane
	left    time.Duration // until the deadline
	targets int
	acts    []act         // what the providers do, in order; the last for ever
	limit   time.Duration // of each process; 0 is none
}

func drawPlan(rt *rapid.T) plan {
	fates := map[string]act{
		"ok": answers("{}", time.Second), "slow": answers("{}", 50*time.Second), "hangs": answers("{}", time.Hour), "breaks": breaks(), "gone": gone(),
		"throttles": throttles(0), "throttles 8s": throttles(8 * time.Second), "throttles 2m": throttles(2 * time.Minute),
		"rejects": fails(provider.Error{Class: provider.CallFatal, Code: llmq.CodeProviderRejected, Status: 400}),
	}
	names := []string{"ok", "slow", "hangs", "breaks", "gone", "throttles", "throttles 8s", "throttles 2m", "rejects"}
	p := plan{
		lane: rapid.SampledFrom(llmq.Lanes()).Draw(rt, "lane"), targets: rapid.IntRange(1, 3).Draw(rt, "targets"),
		left:  time.Duration(rapid.IntRange(1, 600).Draw(rt, "seconds left")) * time.Second,
		limit: rapid.SampledFrom([]time.Duration{0, 0, 20 * time.Second, 110 * time.Second}).Draw(rt, "limit"),
	}
	for _, n := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 12).Draw(rt, "acts") {
		p.acts = append(p.acts, fates[n])
	}
	return p
}

// D2, D3, D7, DS9, DS32: whatever the providers do, the request ends by its deadline, with one result; every attempt is
// counted; no target is tried too often, or again once it was left; and every slot comes back.
func TestRun_EveryFateEndsWell(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, luatest.Pipe(t, llmqtest.NewMiniredis(t)), nil)
			var targets []llmq.Target
			for i := range p.targets {
				targets = append(targets, place("m", fmt.Sprint(i)))
			}
			r.chainOf(fallback.Rules{}, targets...)
			s, req := r.play(p.acts...), request()
			req.Lane, req.Deadline = p.lane, time.UnixMilli(time.Now().Add(p.left).UnixMilli())
			for {
				call := engine.Call{Request: req}
				if p.limit > 0 {
					call.Limit = time.Now().Add(p.limit)
				}
				v := r.engine.Run(t.Context(), call)
				if v.Action == engine.Stored {
					break
				}
				if v.Action != engine.Release {
					rt.Fatalf("verdict %+v", v)
				}
				if v.Defer != nil {
					v.Defer(t.Context())
				}
				time.Sleep(v.After)
			}
			if late := time.Since(req.Deadline); late > 20*time.Millisecond {
				rt.Errorf("it ended %v after its deadline", late)
			}
			res := r.stored(req)
			if res == nil {
				rt.Fatalf("nothing is stored")
			}
			if n := res.Meta().Attempts; n != len(s.ids) {
				rt.Errorf("meta tells of %d attempts, %d were made", n, len(s.ids))
			}
			left, tries := map[string]bool{}, 0
			for i, id := range s.ids {
				if i > 0 && id != s.ids[i-1] {
					left[s.ids[i-1]], tries = true, 0
				}
				if tries++; tries > 6+1 || left[id] { // one more where a process's end cut one off
					rt.Errorf("target %s is tried too often: %v", id, s.ids)
				}
			}
			for _, target := range targets {
				if st := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.State] { return r.capacity.Peek(b, target) }); st.InUse != 0 {
					rt.Errorf("%d slots of %s are held", st.InUse, target)
				}
			}
		})
	})
}

// A renewal that is under way when its attempt ends must not take the returned slot anew.
func TestRun_SlowRenewalTakesNoReturnedSlot(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.play(func(ctx context.Context, req provider.Request) (*provider.Response, error) {
			time.Sleep(engine.RenewEvery + time.Second)
			return throttles(20*time.Second)(ctx, req)
		}, answers("{}", 0))
		start := time.Now()
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
			if since := time.Since(start); since >= engine.RenewEvery && since < engine.RenewEvery+time.Second {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		done := make(chan engine.Verdict, 1)
		go func() { done <- r.engine.Run(t.Context(), engine.Call{Request: request()}) }()
		time.Sleep(20 * time.Second)
		r.wantSlots(ended(capacity.Throttled))
		wantVerdict(t, <-done, engine.Stored, "ok")
	})
}
