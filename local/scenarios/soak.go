package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// What must not grow, however long it runs.
func soaks() []scenario {
	return []scenario{{
		ID: "soak", Apart: true, Quiet: true, Within: 13 * time.Hour, Run: soak,
		What: "an hour (short: 12 s; -for says another time) of callers in all lanes, at the door and in a Go program, while workers are killed, Valkey blips, the provider throttles and SQS refuses in turn: " +
			"nothing is lost, every caller gets one answer or one honest error, and memory, open files and goroutines at the end are those after the warm-up",
	}}
}

func soak(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, loadCall, func(c *config.Config) { c.Storage.InlineMaxBytes = inline })
	if err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	lasts := t.For(time.Hour, 12*time.Second)
	if t.Lasts > 0 {
		lasts = t.Lasts
	}
	// The warm-up has the faults too where there is time for them, so that the paths that they lead to have been taken; it is longer
	// than results stay in the state store, whose memory is level then.
	warm := t.For(lasts/6, lasts/4)
	var all []outcome
	var own tally
	leg := func(what string, d time.Duration, faults []fault) (footprint, error) {
		t.Say("%s, for %s", what, d)
		some, err := w.loaded(ctx, t, program, what, d, faults, &own)
		all = append(all, some...)
		if err != nil {
			return footprint{}, err
		}
		return w.footprint(ctx)
	}
	faults := soakFaults(t.Full)
	var early []fault
	if t.Full {
		early = faults
	}
	before, err := leg("warm", warm, early)
	if err != nil {
		return err
	}
	after, err := leg("load", lasts-warm, faults)
	if err != nil {
		return err
	}
	t.level(before, after)
	t.Note("program_ok", own.ok)
	t.Note("program_honest_errors", own.honest)
	t.Hold(own.ok > 0 && len(own.wrong) == 0, "%d calls of the Go program ended with neither an answer nor an honest error, e.g. %v", len(own.wrong), own.wrong)
	return t.settle(ctx, w, all)
}

// soakFaults go wrong one after the other, over and over.
func soakFaults(full bool) []fault {
	state, long, rest := lambda.StateBusy, 10*time.Second, 20*time.Second
	if !full {
		// A busy worker's message would be back after 55 s, which a short form has not got.
		state, long, rest = lambda.StateIdle, time.Second, time.Second
	}
	pause := func(ctx context.Context, t *trial) error { return t.Pause(ctx, rest) }
	return []fault{
		{name: "kill", run: func(ctx context.Context, t *trial, w *world, _ time.Duration) error {
			w.killOne(t, state)
			return pause(ctx, t)
		}},
		{name: "blip", run: func(ctx context.Context, t *trial, w *world, _ time.Duration) error {
			return errors.Join(valkeyBlipped().run(ctx, t, w, min(long, 2*time.Second)), pause(ctx, t))
		}},
		{name: "throttle", run: func(ctx context.Context, t *trial, w *world, _ time.Duration) error {
			usual := server.Latency{Distribution: server.Lognormal, Mean: loadCall, Deviation: loadCall / 5}
			if err := w.Fake.SetRules(server.Rule{Seed: t.Seed, Phases: []server.Phase{{ThrottleShare: 0.3, Latency: usual}}}); err != nil {
				return err
			}
			return errors.Join(t.Pause(ctx, long), w.Fake.SetRules(), pause(ctx, t))
		}},
		{name: "sqs", run: func(ctx context.Context, t *trial, w *world, _ time.Duration) error {
			repair := w.SQS.Inject(sqs.Fault{Kind: sqs.Refuse})
			err := t.Pause(ctx, long)
			repair()
			return errors.Join(err, pause(ctx, t))
		}},
	}
}

// killOne kills a worker in that state, if there is one.
func (w *world) killOne(t *trial, state lambda.State) {
	for _, l := range llmq.Lanes() {
		for _, p := range w.Workers(l) {
			if p.State == state && w.Lambda.Kill(cloud.FunctionWorker(l), p.ID) == nil { // else it has ended by itself meanwhile
				t.killed++
				return
			}
		}
	}
}

// tally is how the Go program's calls ended.
type tally struct {
	mu         sync.Mutex // guards what follows
	ok, honest int
	wrong      []error // the first few
}

func (y *tally) ended(err error) {
	var e *llmq.Error
	y.mu.Lock()
	defer y.mu.Unlock()
	switch {
	case err == nil:
		y.ok++
	case errors.As(err, &e) && e.Code != "" && e.Code != llmq.CodeInternal:
		y.honest++
	case len(y.wrong) < 3:
		y.wrong = append(y.wrong, err)
	}
}

// loaded has callers come for d while the faults come in turn, and ends when the last has its answer and nothing is queued.
func (w *world) loaded(ctx context.Context, t *trial, program *client.Client, first string, d time.Duration, faults []fault, own *tally) ([]outcome, error) {
	loading, stop := context.WithTimeout(ctx, d)
	defer stop()
	var load sync.WaitGroup
	var all []outcome
	load.Go(func() { all = w.callers(ctx, loading, first) })
	load.Go(func() { w.programCallers(ctx, loading, program, first, own) })
	var err error
	for i := 0; len(faults) > 0 && err == nil && loading.Err() == nil; i++ {
		f := faults[i%len(faults)]
		if err = f.run(loading, t, w, 0); loading.Err() != nil {
			err = nil // the time is over in the middle of a fault, which has mended itself
		}
		if i%len(faults) == len(faults)-1 {
			t.Say("every fault has come %d times", i/len(faults)+1)
		}
	}
	if len(faults) == 0 {
		<-loading.Done()
	}
	stop()
	load.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return all, err
	}
	return all, w.AwaitDrained(ctx)
}

// programCallers are calls of a Go program, in all lanes, as many as callers make at the door.
func (w *world) programCallers(ctx, loading context.Context, program *client.Client, first string, own *tally) {
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	for i := 0; ; i++ {
		id := fmt.Sprintf("%s-program-%d", first, i)
		calls.Go(func() {
			_, err := program.Do(ctx, request(id, llmq.Lanes()[i%3], loadWithin))
			own.ended(err)
		})
		select {
		case <-tick.C:
		case <-loading.Done():
			return
		}
	}
}

// level holds that what was taken after the warm-up is what is taken at the end.
func (t *trial) level(before, after footprint) {
	t.Note("workers_killed", t.killed)
	t.Note("goroutines_after_warm_up", before.goroutines)
	t.Note("goroutines_at_the_end", after.goroutines)
	t.Hold(after.goroutines <= before.goroutines+before.goroutines/5+30, "%d goroutines after the warm-up, %d at the end", before.goroutines, after.goroutines)
	t.Note("valkey_mib_after_warm_up", mib(before.valkey))
	t.Note("valkey_mib_at_the_end", mib(after.valkey))
	// In a short run results and claims only come: none is old enough to go.
	t.Hold(!t.Full || after.valkey <= before.valkey+before.valkey/5+2<<20, "Valkey takes %.1f MiB after the warm-up, %.1f at the end", mib(before.valkey), mib(after.valkey))
	followed := 0
	for _, name := range slices.Sorted(maps.Keys(after.functions)) {
		b, a := before.functions[name], after.functions[name]
		if b.processes == 0 || a.processes == 0 {
			continue // there is nothing to compare with
		}
		followed++
		t.Note(name+"_mib_after_warm_up", mib(b.memory))
		t.Note(name+"_mib_at_the_end", mib(a.memory))
		t.Hold(a.memory <= b.memory+b.memory/4+8<<20, "the largest process of %s has %.1f MiB after the warm-up, %.1f at the end", name, mib(b.memory), mib(a.memory))
		t.Note(name+"_files_after_warm_up", b.files)
		t.Note(name+"_files_at_the_end", a.files)
		t.Hold(a.files <= b.files+8, "a process of %s has %d files open after the warm-up, %d at the end", name, b.files, a.files)
	}
	t.Hold(followed > 0, "no function had processes both after the warm-up and at the end")
}

func mib(bytes int) float64 { return round(float64(bytes) / (1 << 20)) }
