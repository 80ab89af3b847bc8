package eventsource

import (
	"context"
	"slices"
	"time"
)

// userInitiated is the reason of every change of an SQS mapping's state.
const userInitiated = "USER_INITIATED"

// Change is what UpdateEventSourceMapping may change. nil leaves a setting as it is.
type Change struct {
	Enabled                 *bool
	Function                *string
	BatchSize               *int
	Window                  *time.Duration
	MaximumConcurrency      *int // 0 takes the bound away
	ReportBatchItemFailures *bool
	EventCount              *bool
}

// apply returns the mapping with the change made.
func (c Change) apply(m Mapping) Mapping {
	set(&m.Function, c.Function)
	set(&m.BatchSize, c.BatchSize)
	set(&m.Window, c.Window)
	set(&m.MaximumConcurrency, c.MaximumConcurrency)
	set(&m.ReportBatchItemFailures, c.ReportBatchItemFailures)
	set(&m.EventCount, c.EventCount)
	return m
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Update changes a mapping as UpdateEventSourceMapping does: the answer shows the new settings, in state Updating, Enabling
// or Disabling; they come into force when the transition is over. Disabling waits for running invocations. Until then
// another change fails with CodeInUse.
func (r *Mappings) Update(ctx context.Context, uuid string, c Change) (Info, error) {
	r.mu.Lock()
	e, err := r.changeableLocked(uuid, "update")
	if err != nil {
		r.mu.Unlock()
		return Info{}, err
	}
	m := c.apply(e.info.Mapping)
	r.mu.Unlock()

	if m, err = r.resolve(ctx, m); err != nil {
		return Info{}, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if e, err = r.changeableLocked(uuid, "update"); err != nil {
		return Info{}, err // someone else was quicker
	}
	was := e.info.State == StateEnabled
	enabled := was
	set(&enabled, c.Enabled)
	e.info.Mapping = m
	switch {
	case enabled && !was:
		e.enterLocked(StateEnabling)
	case was && !enabled:
		e.enterLocked(StateDisabling)
	default:
		e.enterLocked(StateUpdating)
	}
	r.changeLocked(e, m, enabled) //nolint:contextcheck // a mapping outlives the request that makes or changes it
	return e.info, nil
}

// Delete removes a mapping as DeleteEventSourceMapping does: it is Deleting until the transition is over and no invocation
// runs, then it is gone.
func (r *Mappings) Delete(uuid string) (Info, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.changeableLocked(uuid, "delete")
	if err != nil {
		return Info{}, err
	}
	e.enterLocked(StateDeleting)
	r.group.Go(func() {
		if !sleep(r.life, r.opts.Transition) {
			return
		}
		e.halt()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.entries = slices.DeleteFunc(r.entries, func(other *entry) bool { return other == e })
	})
	return e.info, nil
}

// changeableLocked finds a mapping that no change is under way of.
func (r *Mappings) changeableLocked(uuid, verb string) (*entry, error) {
	e, err := r.findLocked(uuid)
	if err != nil {
		return nil, err
	}
	if r.closed {
		return nil, errClosed()
	}
	if e.info.State != StateEnabled && e.info.State != StateDisabled {
		return nil, &Error{Code: CodeInUse, Message: "Cannot " + verb + " the event source mapping because it is in use."}
	}
	return e, nil
}

// changeLocked brings a mapping into force when the transition is over. The caller has put e into a state that lets nobody else
// change it.
func (r *Mappings) changeLocked(e *entry, m Mapping, enabled bool) {
	r.group.Go(func() {
		if !sleep(r.life, r.opts.Transition) {
			return
		}
		if !enabled {
			e.halt()
		}
		if err := e.source.Update(m); err != nil {
			r.log.Error("mapping not changed", "uuid", e.info.UUID, "err", err) // resolve has checked what Update checks
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if !enabled {
			e.enterLocked(StateDisabled)
			return
		}
		e.enterLocked(StateEnabled)
		r.startLocked(e)
	})
}

// startLocked runs a mapping's source until it is halted or the service closes, unless it runs.
func (r *Mappings) startLocked(e *entry) {
	if e.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(r.life)
	ended := make(chan struct{})
	e.stop, e.ended = stop, ended
	r.group.Go(func() {
		defer close(ended)
		defer stop()
		e.source.run(ctx, r.work)
	})
}

// halt stops a mapping's source, if it runs, and waits for its invocations.
func (e *entry) halt() {
	if e.stop == nil {
		return
	}
	e.stop()
	<-e.ended
	e.stop = nil
}

// enterLocked changes the state.
func (e *entry) enterLocked(s State) {
	e.info.State, e.info.Reason, e.info.LastModified = s, userInitiated, time.Now()
}
