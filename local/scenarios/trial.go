package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
)

// scenario is one promise about the whole system that anyone can run again.
type scenario struct {
	ID   string
	What string // load, faults and what must hold
	// Run puts the load on, notes figures and holds what must hold. Its error is that it could not be run to its end.
	Run func(ctx context.Context, t *trial) error
	// Quiet says that it holds milliseconds, so that nothing else may run beside it.
	Quiet bool
	RunOf string // the id of the one whose run it shares where both are asked; "" is its own
	// Apart says that "all" leaves it out: who wants it names it.
	Apart bool
	// Safety says whether it may run against a real endpoint.
	Safety safety
	// Within bounds its time; 0 is half an hour.
	Within time.Duration
}

// run names the run that it has its verdict of.
func (sc scenario) run() string { return cmp.Or(sc.RunOf, sc.ID) }

// longest bounds a scenario: a message of bulk that a killed worker had not taken up yet comes back after 900 s.
const longest = 30 * time.Minute

// trial is one run of a scenario. It belongs to the goroutine that runs it.
type trial struct {
	Full    bool          // the load that the definition says; false is less, for CI
	Seed    uint64        // of what chance decides
	Lasts   time.Duration // of a scenario that may last as long as one likes; 0 is what its definition says
	Backend *backend      // serves instead of the fake provider; nil: that does

	functions cloud.Functions
	progress  io.Writer
	id        string
	begun     time.Time
	figures   []figure
	broken    []string
	worlds    []*world
	killed    int // processes
	closers   []func(context.Context) error
}

// figure is something that was counted or measured.
type figure struct {
	Name  string // snake_case, with its unit: "start_p99_ms"
	Value any    // an integer, a float or a text
}

// judge runs a scenario and ends all that it has started.
func (t *trial) judge(ctx context.Context, sc scenario) verdict {
	t.id, t.begun = sc.ID, time.Now()
	within := cmp.Or(sc.Within, longest)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not done after %s", within))
	defer cancel()
	err := sc.Run(ctx, t)
	for _, w := range t.worlds {
		if err == nil {
			err = t.leavesNothing(ctx, w)
		}
	}
	for i := len(t.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, t.close(ctx, t.closers[i]))
	}
	if err != nil {
		t.broken = append(t.broken, err.Error())
	}
	v := verdict{Scenario: sc, Took: time.Since(t.begun), Figures: t.figures, Broken: t.broken}
	t.Say("%s", v.word())
	return v
}

const closeWithin = 20 * time.Second

func (t *trial) close(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return f(ctx)
}

func (t *trial) onClose(f func(context.Context) error) { t.closers = append(t.closers, f) }

// Note keeps a figure. A count that is noted again, of another world, is added to the one that there is.
func (t *trial) Note(name string, value any) {
	if d, ok := value.(time.Duration); ok {
		panic(fmt.Sprintf("figure %s: the duration %s has no unit in JSON", name, d))
	}
	for i, f := range t.figures {
		if f.Name != name {
			continue
		}
		before, isCount := f.Value.(int)
		if n, ok := value.(int); ok && isCount {
			value = before + n
		}
		t.figures[i].Value = value
		return
	}
	t.figures = append(t.figures, figure{name, value})
}

// Hold says what does not hold, unless ok.
func (t *trial) Hold(ok bool, format string, args ...any) {
	if !ok {
		t.broken = append(t.broken, fmt.Sprintf(format, args...))
		t.Say("does not hold: "+format, args...)
	}
}

// Say tells people what goes on.
func (t *trial) Say(format string, args ...any) {
	fmt.Fprintf(t.progress, "· %-14s %5.1f s  %s\n", t.id, time.Since(t.begun).Seconds(), fmt.Sprintf(format, args...))
}

// Size is how much of something there is, in full and in short form.
func (t *trial) Size(full, short int) int {
	if t.Full {
		return full
	}
	return short
}

// For is how long something lasts, in full and in short form.
func (t *trial) For(full, short time.Duration) time.Duration {
	if t.Full {
		return full
	}
	return short
}

// Chance is a source of it that is the same in each run with the same seed.
func (t *trial) Chance() *rand.Rand { return rand.New(rand.NewPCG(t.Seed, 0)) }

// Pause lets real time pass: a fault has a length.
func (t *trial) Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
