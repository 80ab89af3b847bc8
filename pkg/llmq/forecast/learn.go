package forecast

import (
	"math"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Tally is how many calls a model has ended, and for how long they held their slots, since its counters began.
type Tally struct {
	Calls  int   `json:"calls"`
	BusyMS int64 `json:"busy_ms"`
}

// Memory is what a governor keeps of a model from one minute to the next: how many calls ended of late and how long they
// took. What is old counts for less, by a factor of e each [fade].
type Memory struct {
	AtMS    int64               `json:"at_ms"` // of the tallies, since 1970; 0: nothing was learned yet
	Tallies map[llmq.Lane]Tally `json:"tallies"`
	Seconds float64             `json:"seconds"` // over which the sums below are
	Sums    map[llmq.Lane]faded `json:"sums"`
}

type faded struct {
	Calls float64 `json:"calls"`
	Busy  float64 `json:"busy_s"`
}

const fade = time.Minute

// Learn is the memory with one more reading of the counters. Counters that went back were wiped, and all begins anew.
func (m Memory) Learn(now time.Time, tallies map[llmq.Lane]Tally) Memory {
	next := Memory{AtMS: now.UnixMilli(), Tallies: tallies, Sums: map[llmq.Lane]faded{}}
	passed := now.Sub(time.UnixMilli(m.AtMS))
	if m.AtMS == 0 || passed <= 0 {
		return next
	}
	for l, t := range m.Tallies {
		if tallies[l].Calls < t.Calls || tallies[l].BusyMS < t.BusyMS {
			return next
		}
	}
	keep := math.Exp(-passed.Seconds() / fade.Seconds())
	next.Seconds = m.Seconds*keep + passed.Seconds()
	for l, t := range tallies {
		sum, before := m.Sums[l], m.Tallies[l]
		next.Sums[l] = faded{
			Calls: sum.Calls*keep + float64(t.Calls-before.Calls),
			Busy:  sum.Busy*keep + float64(t.BusyMS-before.BusyMS)/1000,
		}
	}
	return next
}

// Room is what a model may have in flight.
type Room struct {
	Slots     float64 // calls at once, as learned and capped
	Share     float64 // part of them that background lanes may use, above 0 to 1
	PerSecond float64 // calls that may start in a second at most; 0 is no bound
}

// Rates is how many calls start in a second: as many as ended of late, and at least as many as the room is for at the
// time that calls took of late. The second is for a backlog after quieter minutes, in which hardly any call ended
// because hardly any came.
func (m Memory) Rates(room Room) Rates {
	rt, bg := m.Sums[llmq.LaneRT], m.Sums[llmq.LaneBG].and(m.Sums[llmq.LaneBulk])
	all := rt.and(bg)
	if m.Seconds <= 0 || all.Calls < leastCalls {
		return Rates{}
	}
	ended := Rates{RT: rt.Calls / m.Seconds, Background: bg.Calls / m.Seconds}
	bound := math.Inf(1)
	if room.PerSecond > 0 {
		bound = room.PerSecond
	}
	left := max(0, room.Slots-rt.Busy/m.Seconds) // beside rt
	fits := Rates{
		RT:         min(room.Slots/rt.or(all).took(), bound),
		Background: min(min(room.Share*room.Slots, left)/bg.or(all).took(), max(0, bound-ended.RT)),
	}
	return Rates{RT: max(ended.RT, fits.RT), Background: max(ended.Background, fits.Background)}
}

// leastCalls is what is left of one call when it is forgotten.
const leastCalls = 1e-6

// leastTook keeps a rate finite: no provider answers sooner.
const leastTook = 0.001

func (f faded) and(g faded) faded { return faded{f.Calls + g.Calls, f.Busy + g.Busy} }

// or is f, or where it knows of no call, g.
func (f faded) or(g faded) faded {
	if f.Calls < leastCalls {
		return g
	}
	return f
}

// took is how long a call took in the mean, in seconds.
func (f faded) took() float64 { return max(leastTook, f.Busy/f.Calls) }
