package quota

import (
	"math"
	"slices"
	"time"
)

// tiny forgives what floats lose: far below one token, far above their error.
const tiny = 1e-6

// window is what has been used of one Rate.
type window struct {
	kind Window
	// Bucket: what is left, and the rate and the time at which that was so. What is left may be
	// below zero, when calls used more than they had reserved.
	left float64
	rate float64
	at   time.Time
	// Minute: the provider's minute, and what has been used in it.
	minute int64
	used   float64 // Sliding: the sum of log
	// Sliding: what was taken in the last 60 s, oldest first.
	log []taken
}

type taken struct {
	at     time.Time
	amount float64
}

// advance brings the window to now.
func (w *window) advance(now time.Time, r Rate) {
	kind := r.Window
	if kind == "" {
		kind = Bucket
	}
	if kind != w.kind {
		*w = window{kind: kind, left: r.burst(), rate: r.PerMinute, at: now}
	}
	switch kind {
	case Minute:
		if m := minuteOf(now, r); m > w.minute {
			w.minute, w.used = m, 0
		}
	case Sliding:
		gone := 0
		for gone < len(w.log) && !w.log[gone].at.After(now.Add(-time.Minute)) {
			w.used -= w.log[gone].amount
			gone++
		}
		w.log = w.log[gone:]
	case Bucket:
		// Half way between the rates: exact for ramps, and fair for steps.
		if elapsed := now.Sub(w.at); elapsed > 0 {
			w.left += (w.rate + r.PerMinute) / 2 * elapsed.Minutes()
			w.at = now
		}
		w.rate = r.PerMinute
		w.left = min(w.left, r.burst())
	}
}

func minuteOf(now time.Time, r Rate) int64 {
	return int64(math.Floor(float64(now.Add(r.Skew).UnixNano()) / float64(time.Minute)))
}

// room is what may be taken now, after advance.
func (w *window) room(r Rate) float64 {
	if w.kind == Bucket {
		return w.left
	}
	return r.PerMinute - w.used
}

// wait is how long it takes until amount is there if nobody else asks; 0 is now. The amount is
// within the capacity.
func (w *window) wait(now time.Time, r Rate, amount float64) time.Duration {
	missing := amount - w.room(r)
	if missing <= tiny {
		return 0
	}
	switch w.kind {
	case Minute:
		return time.Unix(0, (w.minute+1)*int64(time.Minute)).Add(-r.Skew).Sub(now)
	case Sliding:
		for _, t := range w.log {
			if missing -= t.amount; missing <= tiny {
				return t.at.Add(time.Minute).Sub(now)
			}
		}
		return time.Minute
	case Bucket:
	}
	return time.Duration(math.Ceil(missing / r.PerMinute * float64(time.Minute)))
}

func (w *window) take(now time.Time, amount float64) {
	w.left -= amount
	w.used += amount
	if w.kind != Sliding {
		return
	}
	if last := len(w.log) - 1; last >= 0 && !now.After(w.log[last].at) {
		w.log[last].amount += amount
		return
	}
	w.log = append(w.log, taken{now, amount})
}

// waste charges a call that was refused. A bucket has no more to lose than what is in it.
func (w *window) waste(now time.Time) {
	if w.kind == Bucket {
		w.left = max(min(w.left, 0), w.left-1)
		return
	}
	w.take(now, 1)
}

// settle gives back what was taken at that time and not used; below zero it takes more, now. What
// was taken in a minute that is over comes back to nobody.
func (w *window) settle(now, at time.Time, r Rate, amount float64) {
	switch {
	case amount < 0:
		w.take(now, -amount)
	case w.kind == Bucket:
		w.left = min(r.burst(), w.left+amount)
	case w.kind == Minute:
		if minuteOf(at, r) == w.minute {
			w.used = max(0, w.used-amount)
		}
	default:
		i, found := slices.BinarySearchFunc(w.log, at, func(t taken, at time.Time) int { return t.at.Compare(at) })
		if found {
			amount = min(amount, w.log[i].amount)
			w.log[i].amount -= amount
			w.used -= amount
		}
	}
}

// full is how long it takes until nothing is used any more.
func (w *window) full(now time.Time, r Rate) time.Duration {
	switch w.kind {
	case Minute:
		return time.Unix(0, (w.minute+1)*int64(time.Minute)).Add(-r.Skew).Sub(now)
	case Sliding:
		if len(w.log) == 0 {
			return 0
		}
		return w.log[len(w.log)-1].at.Add(time.Minute).Sub(now)
	case Bucket:
	}
	return time.Duration(max(0, math.Ceil((r.burst()-w.left)/r.PerMinute*float64(time.Minute))))
}
