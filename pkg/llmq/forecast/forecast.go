// Package forecast says how long a call that is queued now has to wait until it starts: what waits ahead of it ÷ how
// many calls of its kind start in a second (FEATURES A16).
//
// The governor writes a [Snapshot] of each model once a minute. A door reads it together with the submission's record, in
// the same round trip, and adds what all doors have sent since. A forecast is advice that a call may be refused by, so
// where it is in doubt it is early: an unknown rate, a paused lane or an old snapshot is no forecast at all.
package forecast

import (
	"math"
	"slices"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

const (
	// MaxAge is how old a snapshot may be that something is forecast from.
	MaxAge = 2 * time.Minute
	// Factor is how much later than the time that it has left a call must be expected to start to be refused: the
	// forecast is right within a factor of two.
	Factor = 2
	// Longest is what a longer wait is told as.
	Longest = 30 * 24 * time.Hour
)

// Snapshot is what is known of a model's queues at one time.
type Snapshot struct {
	TakenMS int64             `json:"taken_ms"` // since 1970
	Waiting map[llmq.Lane]int `json:"waiting"`  // calls sent to the lane's queue that have not started
	Rates   Rates             `json:"rates"`
	Paused  []llmq.Lane       `json:"paused,omitempty"` // lanes whose queue hands out nothing
}

// Taken is when it was taken.
func (s Snapshot) Taken() time.Time { return time.UnixMilli(s.TakenMS) }

// Rates are how many calls may start in a second. 0 is unknown.
type Rates struct {
	RT         float64 `json:"rt"`
	Background float64 `json:"background"` // bg and bulk together, beside what rt takes
}

// Sent is how many calls were sent to a lane's queue at about a time.
type Sent struct {
	Lane  llmq.Lane
	At    time.Time
	Calls int
}

// Outlook is a snapshot with what was sent since. The zero value forecasts nothing.
type Outlook struct {
	Snapshot Snapshot
	Sent     []Sent
}

// Start is how long a call that is sent to a lane's queue at now will wait until it starts, from 0 to [Longest]; false where
// nobody knows.
//
// rt goes first. bg and bulk share what it leaves about equally, since nothing puts one before the other: of the shorter
// queue's last call as many of the longer queue start before it.
func (o Outlook) Start(lane llmq.Lane, now time.Time) (time.Duration, bool) {
	s := o.Snapshot
	if s.TakenMS == 0 || now.Sub(s.Taken()) > MaxAge || slices.Contains(s.Paused, lane) {
		return 0, false
	}
	w := o.waiting(now)
	secs := over(w.rt, s.Rates.RT)
	if lane != llmq.LaneRT {
		own, other := w.bg, w.bulk
		if lane == llmq.LaneBulk {
			own, other = other, own
		}
		secs += over(own+min(own, other), s.Rates.Background)
	}
	if math.IsInf(secs, 1) {
		return 0, false
	}
	return time.Duration(min(secs, Longest.Seconds()) * float64(time.Second)), true
}

// over is n ÷ rate, where nothing takes no time whatever its rate.
func over(n, rate float64) float64 {
	if n <= 0 {
		return 0
	}
	return n / rate
}

// backlog is how many calls wait, by lane.
type backlog struct{ rt, bg, bulk float64 }

// waiting is what is left at now of what waited when the snapshot was taken and of what was sent since.
func (o Outlook) waiting(now time.Time) backlog {
	s := o.Snapshot
	var w backlog
	for l, n := range s.Waiting {
		w.add(s, l, n)
	}
	at := s.Taken()
	sent := slices.SortedFunc(slices.Values(o.Sent), func(a, b Sent) int { return a.At.Compare(b.At) })
	for _, x := range sent {
		when := x.At
		if when.After(now) { // by another door's clock
			when = now
		}
		if when.After(at) {
			w.pass(when.Sub(at), s.Rates)
			at = when
		}
		w.add(s, x.Lane, x.Calls)
	}
	if now.After(at) {
		w.pass(now.Sub(at), s.Rates)
	}
	return w
}

// add adds n calls of a lane. Those of a paused one stand in nobody's way.
func (w *backlog) add(s Snapshot, l llmq.Lane, n int) {
	if n < 0 || slices.Contains(s.Paused, l) {
		return
	}
	switch l {
	case llmq.LaneRT:
		w.rt += float64(n)
	case llmq.LaneBG:
		w.bg += float64(n)
	case llmq.LaneBulk:
		w.bulk += float64(n)
	}
}

// pass starts what starts in d.
func (w *backlog) pass(d time.Duration, r Rates) {
	w.rt = max(0, w.rt-r.RT*d.Seconds())
	may := r.Background * d.Seconds()
	less := min(w.bg, w.bulk, may/2)
	w.bg, w.bulk, may = w.bg-less, w.bulk-less, may-2*less
	w.bg, w.bulk = max(0, w.bg-may*share(w.bg, w.bulk)), max(0, w.bulk-may*share(w.bulk, w.bg))
}

// share is the part of what is left over that goes to a lane: all to the one that still has calls.
func share(own, other float64) float64 {
	if own > other {
		return 1
	}
	return 0
}

// Refuses reports whether a call with that lane, expected start and time left can't make its deadline by a wide margin, and if so
// when the forecast would take it, asked with as much time left.
func Refuses(lane llmq.Lane, start, left time.Duration) (retryAfter time.Duration, refused bool) {
	if lane == llmq.LaneRT || start <= Factor*left {
		return 0, false
	}
	return start - Factor*left, true
}
