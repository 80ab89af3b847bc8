package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// A steady load of callers while something is away: nothing is lost, nothing stored is paid for again, and every caller gets
// one answer or one honest error.
func outages() []scenario {
	const load = "callers at the door, in three lanes, five new ones a second; "
	const holds = ": 0 lost, 0 paid for after a stored outcome, every caller gets one answer or one honest error"
	one := func(f fault) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error { return underLoad(ctx, t, []fault{f}) }
	}
	all := []fault{workersKilled(), valkeyBlipped(), valkeyWiped(), sqsRefused(), s3Refused(), providerDown()}
	scenarios := make([]scenario, 0, len(all)+1)
	for _, f := range all {
		scenarios = append(scenarios, scenario{ID: "outage-" + f.name, What: load + f.what + holds, Run: one(f)})
	}
	return append(scenarios, scenario{ID: "outages", What: load + "all the outages above in turn" + holds, Run: func(ctx context.Context, t *trial) error {
		return underLoad(ctx, t, all)
	}})
}

// fault is something that goes wrong for a while.
type fault struct {
	name, what  string
	full, short time.Duration
	// run lets it last and then mends it.
	run func(ctx context.Context, t *trial, w *world, d time.Duration) error
}

func workersKilled() fault {
	return fault{
		name: "kill", what: "a random busy worker killed by -9 every 5 s for 60 s (short: 20 s)", full: time.Minute, short: 20 * time.Second,
		run: func(ctx context.Context, t *trial, w *world, d time.Duration) error {
			chance, killed := t.Chance(), 0
			for end := time.Now().Add(d); time.Now().Before(end); {
				if err := t.Pause(ctx, 5*time.Second); err != nil {
					return err
				}
				type victim struct{ function, id string }
				var busy []victim
				for _, l := range llmq.Lanes() {
					for _, p := range w.Workers(l) {
						if p.State == lambda.StateBusy {
							busy = append(busy, victim{cloud.FunctionWorker(l), p.ID})
						}
					}
				}
				if len(busy) == 0 {
					continue
				}
				v := busy[chance.IntN(len(busy))]
				if w.Lambda.Kill(v.function, v.id) == nil { // else it has ended by itself meanwhile
					killed++
				}
			}
			t.Note("workers_killed", killed)
			t.Hold(killed >= 3, "only %d workers were killed", killed)
			return nil
		},
	}
}

// refused is a part that refuses every connection and has cut those that there were.
func refused(name, part, what string, full, short time.Duration) fault {
	return fault{name: name, what: what, full: full, short: short, run: func(ctx context.Context, t *trial, w *world, d time.Duration) error {
		l := w.Links[part]
		l.Refuse()
		l.Cut()
		defer l.Resume()
		return t.Pause(ctx, d)
	}}
}

func valkeyBlipped() fault {
	return refused("blip", cloud.PartValkey, "Valkey refused for 10 s (short: 5 s)", 10*time.Second, 5*time.Second)
}

func s3Refused() fault {
	return refused("s3", cloud.PartS3, "S3 refused for 30 s (short: 8 s), every fifth body and all its replies too large for a message", 30*time.Second, 8*time.Second)
}

func providerDown() fault {
	return refused("provider", rig.PartProvider, "the provider refused for 30 s (short: 8 s)", 30*time.Second, 8*time.Second)
}

func valkeyWiped() fault {
	return fault{
		name: "wipe", what: "Valkey emptied; what was in flight may repeat, and is counted", full: 20 * time.Second, short: 20 * time.Second,
		run: func(ctx context.Context, t *trial, w *world, d time.Duration) error {
			if err := w.wipe(ctx); err != nil {
				return err
			}
			return t.Pause(ctx, d) // nothing is admitted for 15 s
		},
	}
}

func sqsRefused() fault {
	return fault{
		name: "sqs", what: "SQS answers every request with 503 for 60 s (short: 10 s)", full: time.Minute, short: 10 * time.Second,
		run: func(ctx context.Context, t *trial, w *world, d time.Duration) error {
			defer w.SQS.Inject(sqs.Fault{Kind: sqs.Refuse})()
			return t.Pause(ctx, d)
		},
	}
}

const (
	// A caller comes: as many as the door's 100 invocations can hold while nothing is admitted after a wipe, 15 s.
	loadEvery  = 200 * time.Millisecond
	loadCall   = 300 * time.Millisecond // at the provider
	loadWithin = 150 * time.Second      // a call's deadline: longer than a dead worker's message takes to come back
	calm       = 3 * time.Second        // before, between and after the faults
	inline     = 1024                   // bytes that a message holds here; larger bodies go to S3
)

// underLoad lets the faults come one after the other while callers do.
func underLoad(ctx context.Context, t *trial, faults []fault) error {
	w, err := t.Start(ctx, loadCall, func(c *config.Config) { c.Storage.InlineMaxBytes = inline })
	if err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	loaded := make(chan []outcome, 1)
	go func() { loaded <- w.callers(ctx, loading, "caller") }()
	err = t.Pause(ctx, calm)
	for _, f := range faults {
		if err != nil {
			break
		}
		t.Say("%s", f.what)
		if err = f.run(ctx, t, w, t.For(f.full, f.short)); err == nil {
			err = t.Pause(ctx, calm)
		}
	}
	stop()
	t.Say("no more callers; waiting for those that wait")
	outcomes := <-loaded
	if err != nil {
		return err
	}
	return t.settle(ctx, w, outcomes)
}

// outcome is how one caller's call ended.
type outcome struct {
	call
	answer
}

// callers come until loading ends, their ids beginning with first; when the last has its answer they are told. Each is bounded by its
// own deadline.
func (w *world) callers(ctx, loading context.Context, first string) []outcome {
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	var mu sync.Mutex // guards all
	var all []outcome
	var group sync.WaitGroup
	for i := 0; ; i++ {
		c := call{ID: fmt.Sprintf("%s-%d", first, i), Lane: llmq.Lanes()[i%3], Within: loadWithin}
		if i%5 == 0 {
			c.Body = rig.ChatBody(rig.ModelChat, c.ID+" "+strings.Repeat("large ", 2*inline/6))
		}
		group.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, loadWithin+30*time.Second)
			defer cancel()
			a := w.Ask(bounded, c)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, outcome{c, a})
		})
		select {
		case <-tick.C:
		case <-loading.Done():
			group.Wait()
			return all
		}
	}
}

// settle counts how callers fared, and what was paid.
func (t *trial) settle(ctx context.Context, w *world, all []outcome) error {
	if err := w.AwaitDrained(ctx); err != nil {
		return err
	}
	w.Look(ctx)
	seen := w.ByRequest()
	ids := make([]string, 0, len(all))
	codes := map[llmq.Code]int{}
	ok, lost, retriedOK := 0, 0, 0
	var slowest time.Duration
	for _, o := range all {
		ids = append(ids, o.ID)
		slowest = max(slowest, o.Took)
		switch {
		case o.ok(o.ID):
			ok++
		case o.honest():
			codes[o.Code]++
			if o.Code.Info().Retry && !o.again(ctx, w, &retriedOK) {
				lost++
				t.Hold(false, "%s: told %s, to try again, and got nothing then", o.ID, o.Code)
			}
		default:
			if lost++; lost <= 3 {
				t.Hold(false, "%s in %s got no honest end after %.1f s: %d %.200s %v", o.ID, o.Lane, o.Took.Seconds(), o.Status, o.answer.Body, o.Err)
			}
		}
	}
	a := tallied(ids, seen, w.StoredAt, w.wipes)
	_, dead, err := w.Depth(ctx)
	if err != nil {
		return err
	}
	t.Note("callers", len(all))
	t.Note("ok", ok)
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		t.Note("honest_"+string(code), codes[code])
	}
	t.Note("of_these_ok_when_tried_again", retriedOK)
	t.Note("lost", lost)
	t.Note("dead_letters", dead)
	t.Note("paid_again_in_flight", a.Again-a.AfterWipe-a.AfterStored)
	if len(w.wipes) > 0 {
		t.Note("paid_again_after_the_wipe", a.AfterWipe)
	}
	t.Note("slowest_answer_s", round(slowest.Seconds()))
	t.Hold(lost == 0, "%d of %d callers got neither an answer nor an honest error", lost, len(all))
	return nil
}

// again does what an SDK does that is told to try again, under the same key: some end must come of it.
func (o outcome) again(ctx context.Context, w *world, ok *int) bool {
	a := w.Ask(ctx, o.call)
	if a.ok(o.ID) {
		*ok++
		return true
	}
	return a.honest()
}
