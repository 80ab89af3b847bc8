// Package retry decides what follows a failed try at a target: another one after a
// sleep, one by a later worker, or none. It does no I/O and has no clock and no chance of
// its own: times and random numbers are arguments (FEATURES D2, D3).
package retry

import (
	"math"
	"time"
)

// Curve says how long to wait before a try is repeated. The zero value waits for nothing.
type Curve struct {
	Base       time.Duration // the least wait before the first repeat; positive
	Multiplier float64       // by how much each further repeat waits longer; at least 1
	Spread     float64       // a wait lies between its least and Spread times that; at least 1
	Max        time.Duration // the longest wait; at least Base
	FullJitter bool          // draw from 0 to the least wait instead: the widest spread of a herd
}

// Bounds are the shortest and the longest wait before repeat n, which counts from 0.
func (c Curve) Bounds(n int) (low, high time.Duration) {
	least := c.scale(math.Pow(c.Multiplier, float64(max(n, 0))))
	if c.FullJitter {
		return 0, least
	}
	return least, c.scale(math.Pow(c.Multiplier, float64(max(n, 0))) * c.Spread)
}

// scale is Base times by, at most Max. It is safe where the product is no duration any more.
func (c Curve) scale(by float64) time.Duration {
	d := float64(c.Base) * by
	if !(d < float64(c.Max)) { // also for what is no number
		return c.Max
	}
	return time.Duration(d)
}

// Delay is a wait before repeat n. u in [0, 1) is its place between the bounds.
func (c Curve) Delay(n int, u float64) time.Duration {
	low, high := c.Bounds(n)
	return low + time.Duration(u*float64(high-low))
}

// Policy bounds how often a target is tried, and how far apart.
type Policy struct {
	Curve            Curve
	ThrottleMax      time.Duration // the longest wait of the curve after a throttle, where that is below Curve.Max
	Attempts         int           // failures, throttles apart, that end a target's tries; at least 1
	ThrottleAttempts int           // tries that end them once the target has throttled; at least 1
	// SleepMost is the longest sleep that is made here. A longer one is handed back, since whoever
	// sleeps in a function is paid for it; what a provider asks for is honoured up to Curve.Max in
	// either way.
	SleepMost time.Duration
}

// Default is FEATURES D2: 1–2.5 s, 4–10 s, 16–30 s, then 30 s; after a throttle 10 s at most.
func Default() Policy {
	return Policy{
		Curve:       Curve{Base: time.Second, Multiplier: 4, Spread: 2.5, Max: 30 * time.Second},
		ThrottleMax: 10 * time.Second, Attempts: 3, ThrottleAttempts: 6, SleepMost: 30 * time.Second,
	}
}

// Tries counts what was tried at the current target.
type Tries struct {
	Made      int // all of them
	Throttled int // those that the provider refused for load
}

// Over reports whether a target has been tried often enough.
func (p Policy) Over(t Tries) bool {
	if t.Throttled == 0 {
		return t.Made >= p.Attempts
	}
	return t.Made-t.Throttled >= p.Attempts || t.Made >= max(p.Attempts, p.ThrottleAttempts)
}

// Failure is what the last try came to.
type Failure struct {
	Throttled  bool
	RetryAfter time.Duration // what the provider asked for; 0 or less is nothing
}

// Window is the time that there is. Nothing is begun that can't end inside it.
type Window struct {
	Now      time.Time
	Deadline time.Time     // of the call, which holds its lane's
	Limit    time.Time     // this process can't go on past it; zero is no limit
	Least    time.Duration // what an attempt must have left to be worth beginning
}

// End is the nearer of deadline and limit.
func (w Window) End() time.Time {
	if !w.Limit.IsZero() && w.Limit.Before(w.Deadline) {
		return w.Limit
	}
	return w.Deadline
}

// Bound is t, or the end where that is nearer.
func (w Window) Bound(t time.Time) time.Time {
	if end := w.End(); end.Before(t) {
		return end
	}
	return t
}

// InTime reports whether an attempt that begins after d has its least time before the deadline.
func (w Window) InTime(d time.Duration) bool { return d <= w.Deadline.Sub(w.Now)-w.Least }

// Here reports the same of the nearer of deadline and limit.
func (w Window) Here(d time.Duration) bool { return d <= w.End().Sub(w.Now)-w.Least }

// Move is what to do next.
type Move int

const (
	// Sleep and then try the same target again.
	Sleep Move = iota + 1
	// HandBack gives the request to a later worker, which tries the same target again.
	HandBack
	// Next goes on to the next target at once; nothing is left to be had from this one.
	Next
)

// String is the move's name in logs.
func (m Move) String() string {
	switch m {
	case Sleep:
		return "sleep"
	case HandBack:
		return "hand_back"
	case Next:
		return "next"
	}
	return "unknown"
}

// Decision is a move, how long to wait before it is made, and why.
type Decision struct {
	Move  Move
	After time.Duration // Sleep and HandBack
	Why   string        // for logs and metrics; from a short list
}

// Decide says what follows a failure. t counts it already. u in [0, 1) is chance.
//
// A provider's wish above the drawn wait wins. Up to Curve.Max it is waited for. Above, a later
// worker gets the request where the deadline can hold that, for no target is set aside
// for so long while a caller could be served elsewhere before its deadline.
func (p Policy) Decide(f Failure, t Tries, w Window, u float64) Decision {
	if p.Over(t) {
		return Decision{Move: Next, Why: "tried_enough"}
	}
	wait := p.wait(f, t, u)
	switch {
	case !w.InTime(wait):
		return Decision{Move: Next, Why: "deadline"}
	case f.RetryAfter > p.Curve.Max:
		return Decision{Move: HandBack, After: wait, Why: "retry_after"}
	case wait > p.SleepMost:
		return Decision{Move: HandBack, After: wait, Why: "long_sleep"}
	case !w.Here(wait):
		return Decision{Move: HandBack, After: wait, Why: "out_of_time"}
	default:
		return Decision{Move: Sleep, After: wait, Why: "backoff"}
	}
}

// wait is the drawn wait, or the provider's wish where that is longer: never shorter than
// the wish, and later by no more than a tenth of it and the curve's own width, so
// that those who were told the same moment don't all come at it.
func (p Policy) wait(f Failure, t Tries, u float64) time.Duration {
	c := p.Curve
	if f.Throttled {
		c.Max = min(c.Max, p.ThrottleMax)
	}
	n := max(t.Made, 1) - 1
	drawn := c.Delay(n, u)
	if f.RetryAfter <= drawn {
		return drawn
	}
	low, high := p.Curve.Bounds(n)
	late := time.Duration(u * float64(min(high-low, f.RetryAfter/10)))
	switch {
	case f.RetryAfter <= p.Curve.Max:
		return min(f.RetryAfter+late, p.Curve.Max)
	case f.RetryAfter > math.MaxInt64-late:
		return f.RetryAfter
	}
	return f.RetryAfter + late
}
