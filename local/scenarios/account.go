package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
)

// account is what became of requests, as the provider and the stores tell it.
type account struct {
	Lost        int // never answered by the provider
	Dead        int // messages on dead-letter queues
	Again       int // paid more than once, for whatever reason
	AfterWipe   int // of these, paid again because the state store had lost its data between the two
	AfterStored int // of these, paid for though the result was stored, and not wiped, when the call began
	Calls       int // that the provider was paid for
}

// paid reports whether a provider charges for a call: what it answers, and what it works on when its caller goes away.
func paid(c server.Call) bool {
	return c.Outcome == server.Aborted && c.ThrottledBy == "" || c.Outcome == server.Replied && c.Status == 200
}

// tallied sorts out provider calls by request. wipes are the times at which the store lost its data, stored tells since when a
// request's result is there.
func tallied(ids []string, byRequest map[string][]server.Call, stored func(id string) time.Time, wipes []time.Time) account {
	var a account
	for _, id := range ids {
		calls := slices.Clone(byRequest[id])
		calls = slices.DeleteFunc(calls, func(c server.Call) bool { return !paid(c) })
		a.Calls += len(calls)
		if !slices.ContainsFunc(calls, func(c server.Call) bool { return c.Outcome == server.Replied }) {
			a.Lost++
		}
		if len(calls) < 2 {
			continue
		}
		a.Again++
		first, last := calls[0], calls[len(calls)-1]
		wiped := func(from time.Time) bool {
			return slices.ContainsFunc(wipes, func(w time.Time) bool { return !w.Before(from) && w.Before(last.At) })
		}
		at := stored(id)
		switch {
		case wiped(first.At):
			a.AfterWipe++
		case !at.IsZero() && last.At.After(at):
			a.AfterStored++
		}
	}
	return a
}

// Account is count of requests that all must be answered by the provider.
func (t *trial) Account(ctx context.Context, w *world, ids []string) (account, error) {
	a, err := t.count(ctx, w, ids)
	if err == nil {
		t.Hold(a.Lost == 0, "%d of %d requests were never answered", a.Lost, len(ids))
	}
	return a, err
}

// count waits until nothing is queued or running, counts what became of requests, notes the counts, and holds that each has an end.
func (t *trial) count(ctx context.Context, w *world, ids []string) (account, error) {
	if err := w.AwaitDrained(ctx); err != nil {
		return account{}, err
	}
	w.Look(ctx)
	if t.real() {
		return account{}, t.noteReal(ctx, w, ids)
	}
	a := tallied(ids, w.ByRequest(), w.StoredAt, w.wipes)
	_, dead, err := w.Depth(ctx)
	if err != nil {
		return a, err
	}
	a.Dead = dead
	results, err := w.Results(ctx, ids)
	if err != nil {
		return a, err
	}
	t.Hold(len(w.wipes) > 0 || len(results) == len(ids), "%d results of %d are stored", len(results), len(ids))
	t.Note("requests", len(ids))
	t.Note("lost", a.Lost)
	t.Note("dead_letters", a.Dead)
	t.Note("paid_again", a.Again)
	if len(w.wipes) > 0 {
		t.Note("of_these_after_a_wipe", a.AfterWipe)
	}
	return a, nil
}

// leavesNothing holds what every scenario does at its end, whatever it was about: no message is left on a queue, and none is a
// dead letter but those that the scenario made; of all that the provider saw, nothing was paid for again once its outcome was stored; and
// every slot is free.
func (t *trial) leavesNothing(ctx context.Context, w *world) error {
	if err := w.AwaitDrained(ctx); err != nil {
		return err
	}
	w.Look(ctx)
	_, dead, err := w.Depth(ctx)
	if err != nil {
		return err
	}
	seen := w.ByRequest()
	a := tallied(slices.Collect(maps.Keys(seen)), seen, w.StoredAt, w.wipes)
	t.Note("paid_after_stored", a.AfterStored)
	t.Hold(dead == w.deadLetters, "%d messages are dead letters, want %d", dead, w.deadLetters)
	t.Hold(a.AfterStored == 0, "%d requests were paid for again after their result was stored", a.AfterStored)
	return t.noSlotLeft(ctx, w)
}

// ofAll are the figures that say the same of every scenario.
var ofAll = []string{"requests", "lost", "dead_letters", "paid_again", "paid_after_stored", "slots_left"}

// slotLease is how long a dead worker's slot stays taken.
const slotLease = 60 * time.Second

// noSlotLeft holds that every slot is free: at once, or after a dead worker's lease.
func (t *trial) noSlotLeft(ctx context.Context, w *world) error {
	ctx, cancel := context.WithTimeout(ctx, slotLease+10*time.Second)
	defer cancel()
	left := 0
	err := rig.Poll(ctx, "slots to be free", func() bool {
		n, err := w.Slots(ctx)
		left = n
		return err == nil && n == 0
	})
	t.Note("slots_left", left)
	t.Hold(err == nil, "%d slots are still taken: %v", left, err)
	return nil
}

// onceEach holds that each request was paid for exactly once, which a real endpoint does not tell.
func (t *trial) onceEach(a account, ids []string) {
	if t.real() {
		return
	}
	t.Hold(a.Calls == len(ids) && a.Again == 0, "the provider was paid for %d calls of %d requests, %d of them more than once", a.Calls, len(ids), a.Again)
}

// peak notes and holds how many calls ran at once.
func (t *trial) peak(name string, got, want int) {
	t.Note(name, got)
	t.Hold(got == want, "%s is %s, want exactly %d", name, fmt.Sprint(got), want)
}
