package broker

import (
	"sync"
	"time"
)

// alarm calls fire once at the time last set, on a goroutine of its own that running counts. Its methods and the broker's mutex
// go together: set and stop are called under it, fire takes it.
//
// A stop may come too late to keep fire from being called. So fire must look at the clock and the queue, never assume that
// something is due, and end by calling set with the next time.
type alarm struct {
	fire    func()
	running *sync.WaitGroup
	timer   *time.Timer
	at      time.Time // zero: not set
}

// set makes at the one time the alarm will go off; the zero time means never.
func (a *alarm) set(at time.Time) {
	if at.Equal(a.at) {
		return
	}
	a.stop()
	if at.IsZero() {
		return
	}
	a.at = at
	a.running.Add(1)
	if a.timer != nil {
		a.timer.Reset(time.Until(at))
		return
	}
	a.timer = time.AfterFunc(time.Until(at), func() {
		defer a.running.Done()
		a.fire()
	})
}

// stop cancels what set has set.
func (a *alarm) stop() {
	if !a.at.IsZero() && a.timer.Stop() {
		a.running.Done() // the call that was due will not come, so nobody else counts it out
	}
	a.at = time.Time{}
}
