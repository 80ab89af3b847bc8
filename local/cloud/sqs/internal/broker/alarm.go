package broker

import (
	"sync"
	"time"
)

// alarm calls fire once, at the time last set or before it, on a goroutine of its own that running counts. Its methods and the broker's mutex
// go together: set and stop are called under it, fire takes it.
//
// A stop may come too late to keep fire from being called, and an alarm that is set too early is left as it is. So fire must look at
// the clock and the queue, never assume that something is due: it begins with a call to rung, and ends with one to set.
type alarm struct {
	fire    func()
	running *sync.WaitGroup
	timer   *time.Timer
	at      time.Time // zero: not set
}

// set makes the alarm go off at that time, or before it; the zero time means never. What is due next moves on with every message
// that a queue gets rid of, so an alarm for an earlier time stays: to let it go off for nothing now and then costs less than to set it
// anew with each operation.
func (a *alarm) set(at time.Time) {
	if !a.at.IsZero() && !at.IsZero() && !a.at.After(at) {
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

// rung forgets the time that has come; fire says so.
func (a *alarm) rung(now time.Time) {
	if !a.at.After(now) {
		a.stop() // which counts out a call that another set has made due in the meantime
	}
}

// stop cancels what set has set.
func (a *alarm) stop() {
	if !a.at.IsZero() && a.timer.Stop() {
		a.running.Done() // the call that was due will not come, so nobody else counts it out
	}
	a.at = time.Time{}
}
