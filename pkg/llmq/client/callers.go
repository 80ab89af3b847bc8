package client

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

const (
	// attendWithin bounds what the state store is told at once.
	attendWithin = 2 * time.Second
	// attendLost is how often a lost store is tried, and one that must still be told of calls: it admits nobody to what
	// has a cap for [capacity.Quarantine] after an outage, and knows all calls in flight by then.
	attendLost = time.Second
	// settled is how long the calls of others may go on that were admitted before the store was lost: their owners end them before
	// their claims lapse. Until then nobody knows what of a cap is in use.
	settled = claims.Lease
	// mostSilent is how long a call that has a slot runs on without a word to the store: as long as a worker's.
	mostSilent = 30 * time.Second
)

// callers are the programs that may run calls while the state store is lost, as this one of them knows them (FEATURES C9). While the
// store is there each says that it lives, and hears how many they are; so they can share what bounds a target without a word.
// What a program runs so is told to the store as soon as that is back.
//
// It is safe for concurrent use. All times are on the wall clock, since a frozen process's other one stands still.
type callers struct {
	valkey redis.UniversalClient
	gate   *capacity.Gate
	name   string
	limits *limits
	log    *slog.Logger

	mu     sync.Mutex // guards all below
	begun  bool       // it attends
	over   bool       // it was closed
	number int        // callers, as last heard
	since  time.Time  // when this one joined them; zero before
	heard  time.Time  // when the store last answered
	lost   time.Time  // when it first did not, since; zero while it does
	alone  bool       // it does answer, so others are admitted as ever
	ran    int        // calls in this outage
	part   capacity.Part
	flying map[string]*flight // by their slot's call id
	landed []capacity.Slot    // to be returned

	quit chan struct{} // closed by close
	done sync.WaitGroup
}

// flight is a call that nobody admitted.
type flight struct {
	slot capacity.Slot
	told time.Time // when the store last heard of it, and holds a slot for it; zero before
	stop context.CancelFunc
}

// attend begins to attend, with the first call that could be run here: a program that makes none takes part in nothing.
func (c *callers) attend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun && !c.over {
		c.begun = true
		c.done.Go(c.run)
	}
}

func (c *callers) run() {
	for {
		c.say()
		timer := time.NewTimer(c.pause())
		select {
		case <-c.quit:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func (c *callers) pause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.lost.IsZero() || len(c.flying)+len(c.landed) > 0 {
		return attendLost
	}
	return capacity.AttendEvery
}

// say tells the store that this program lives and what it runs uncounted.
func (c *callers) say() {
	began := time.Now().Round(0)
	says, flying, landed := c.told(began)
	ctx, cancel := context.WithTimeout(context.Background(), attendWithin)
	defer cancel()
	var b luascript.Batch
	attends := c.gate.Attend(&b, c.name, says)
	slots := make([]capacity.Slot, 0, len(flying))
	for _, f := range flying {
		slots = append(slots, f.slot)
	}
	kept := c.gate.Renew(&b, slots...)
	for _, s := range landed {
		c.settle(&b, s)
	}
	err := b.Run(ctx, c.valkey)
	who, unheard := attends()
	if err = errors.Join(err, unheard); err == nil {
		_, err = kept()
	}
	if err != nil {
		c.miss(err)
		return
	}
	c.hear(began, who, flying, len(landed))
}

// told is what there is to be told.
func (c *callers) told(now time.Time) (says capacity.Attending, flying []*flight, landed []capacity.Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.flying {
		flying = append(flying, f)
	}
	says = capacity.Joins
	if c.known(now) {
		says = capacity.May
	}
	return says, flying, append(landed, c.landed...)
}

// known reports whether all others have heard of this one. It is the caller's under c.mu.
func (c *callers) known(at time.Time) bool {
	return !c.since.IsZero() && at.Sub(c.since) >= capacity.Away
}

// hear takes down what the store answered.
func (c *callers) hear(began time.Time, who capacity.Attendance, flying []*flight, returned int) {
	c.mu.Lock()
	lost, ran := c.lost, c.ran
	if who.Anew || c.since.IsZero() {
		c.since = began
	}
	c.number, c.heard, c.lost, c.alone, c.ran = who.Callers, began, time.Time{}, false, 0
	c.landed = c.landed[returned:]
	for _, f := range flying {
		if f.told.IsZero() && c.flying[f.slot.Ask().CallID] != f { // it ended meanwhile, and did not know of a slot
			c.landed = append(c.landed, f.slot)
		}
		f.told = began
	}
	c.mu.Unlock()
	if ran > 0 {
		c.log.Info("calls_counted_again", "calls", ran, "lost_ms", began.Sub(lost).Milliseconds())
	}
}

// miss takes down that the store did not answer. A call that it had heard of goes the way of all that can't renew what they hold,
// and is stopped before its slot is another's.
func (c *callers) miss(err error) {
	now := time.Now().Round(0) // not when it was asked: until now it may have admitted others
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost.IsZero() {
		c.lost = now
		c.part.Share(c.number, now)
	}
	c.alone = c.alone || serves(err)
	for _, f := range c.flying {
		if !f.told.IsZero() && now.Sub(f.told) >= mostSilent {
			f.stop()
		}
	}
}

// serves reports whether the store refused this program alone: one that answers serves others, but while it can't serve at all.
func serves(err error) bool {
	answer := redis.Error(nil)
	if !errors.As(err, &answer) {
		return false
	}
	for _, cant := range []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN"} {
		if redis.HasErrorPrefix(answer, cant) {
			return false
		}
	}
	return true
}

// admit is the engine's Admit of a call that stop stops: it lets an attempt begin where this program's part of its target has
// room for it.
func (c *callers) admit(stop context.CancelFunc) engine.Admit {
	return func(a capacity.Ask) (end func(capacity.Outcome), may bool) { return c.begin(a, stop) }
}

func (c *callers) begin(a capacity.Ask, stop context.CancelFunc) (end func(capacity.Outcome), may bool) {
	now := time.Now().Round(0)
	learned, heard := c.limits.learned(a.Target)
	if !heard {
		return nil, false
	}
	taken, callers := c.take(a, learned, now)
	if taken == nil {
		return nil, false
	}
	if callers > 0 {
		c.log.Warn("calls_uncounted", "target", a.Target.String(), "callers", callers)
	}
	f := &flight{slot: capacity.Uncounted(a), stop: stop}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flying[a.CallID] = f
	return func(o capacity.Outcome) { c.land(f, taken, o) }, true
}

// take takes of this program's part. For the first call of an outage it tells how many callers there are.
func (c *callers) take(a capacity.Ask, learned capacity.Learned, now time.Time) (taken *capacity.Taken, callers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.lost.IsZero(), c.alone, !c.known(c.heard), c.lost.Sub(c.heard) > 2*capacity.AttendEvery:
		return nil, 0 // nobody knows what this one's part is
	case capped(a.Target) && now.Sub(c.lost) < settled:
		return nil, 0
	}
	if taken = c.part.Take(a, learned, now); taken == nil {
		return nil, 0
	}
	if c.ran++; c.ran == 1 {
		callers = c.number
	}
	return taken, callers
}

// land gives back what a call has taken.
func (c *callers) land(f *flight, taken *capacity.Taken, o capacity.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.part.Give(taken, o.Tokens)
	delete(c.flying, f.slot.Ask().CallID)
	if !f.told.IsZero() {
		c.landed = append(c.landed, f.slot)
	}
}

// capped reports whether a number of calls in flight at a target is promised.
func capped(t llmq.Target) bool {
	return t.MaxConcurrency > 0 || t.Shared.MaxConcurrency > 0 || t.Limits.Lanes[llmq.LaneRT] > 0
}

// close ends the attendance and says so.
func (c *callers) close() {
	c.mu.Lock()
	begun := c.begun && !c.over
	c.over = true
	c.mu.Unlock()
	if !begun {
		return
	}
	close(c.quit)
	c.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), attendLost)
	defer cancel()
	var b luascript.Batch
	c.gate.Attend(&b, c.name, capacity.Leaves)
	for _, s := range c.landed {
		c.settle(&b, s)
	}
	if err := b.Run(ctx, c.valkey); err != nil {
		c.log.Debug("the leave was not told", "error", err) // it lapses
	}
}

// settle returns the slot of a call that was never admitted: there is nothing to be learned from it.
func (c *callers) settle(b *luascript.Batch, s capacity.Slot) {
	c.gate.Settle(b, s, capacity.Outcome{Ending: capacity.Abandoned, Tokens: capacity.Unknown})
}
