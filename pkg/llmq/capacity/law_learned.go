package capacity

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Certainty is how sure the law is of a ceiling.
type Certainty int

// From nothing to what was configured.
const (
	Untouched  Certainty = iota // never refused: it is how far we have come
	Suspect                     // refused, but what was taken differed each time
	Known                       // samples agree
	Sure                        // several did
	Configured                  // a configured cap holds it
)

// Ceiling is one learned limit.
type Ceiling struct {
	Limit     float64 // in force now: slots, or starts or tokens per minute; 0 is none
	Certainty Certainty
	Binding   bool // it is what held calls back last
}

// Learned is what the law knows of a target.
type Learned struct {
	Slots, Starts, Tokens Ceiling
	Noise                 float64       // part of calls refused for no reason of ours, 0 to 1
	Checking              bool          // a cut is being judged
	Recovering            bool          // after a wall: a few calls may try
	ProbeIn               time.Duration // until the binding ceiling may be tested; 0 is now, or nothing to test
	ClosedFor             time.Duration // until a target opens that refused nearly everything
}

// learnedFacts is the number of integers that the law's facts are.
const learnedFacts = 11

// ReadLearned makes sense of the law's facts.
func ReadLearned(facts []int64) (Learned, error) {
	if len(facts) != learnedFacts {
		return Learned{}, llmq.Errorf(llmq.CodeInternal, "the law told %d facts, want %d", len(facts), learnedFacts)
	}
	ceiling := func(i int, unit float64) Ceiling {
		return Ceiling{Limit: float64(facts[2*i-1]) / unit, Certainty: Certainty(facts[2*i]), Binding: facts[7] == int64(i)}
	}
	return Learned{
		Slots: ceiling(1, 1000), Starts: ceiling(2, 1000), Tokens: ceiling(3, 1),
		Noise:    float64(facts[8]) / 10_000,
		Checking: facts[0] == 1 || facts[0] == 2, Recovering: facts[0] == 4,
		ProbeIn: time.Duration(facts[9]) * time.Millisecond, ClosedFor: time.Duration(facts[10]) * time.Millisecond,
	}, nil
}

// String tells it in words, such as "about 480 calls/min (binding), 190k tokens/min,
// 47 slots; 2 % of calls are refused as noise; probing in 12 s".
func (l Learned) String() string {
	var ceilings []string
	for _, c := range []struct {
		Ceiling
		unit string
	}{{l.Starts, "calls/min"}, {l.Tokens, "tokens/min"}, {l.Slots, "slots"}} {
		if c.Limit > 0 {
			ceilings = append(ceilings, c.words(c.unit))
		}
	}
	out := []string{strings.Join(ceilings, ", ")}
	if l.Noise > 0 {
		out = append(out, strconv.FormatFloat(l.Noise*100, 'f', -1, 64)+" % of calls are refused as noise")
	}
	switch {
	case l.ClosedFor > 0:
		out = append(out, "closed for "+inSeconds(l.ClosedFor))
	case l.Recovering:
		out = append(out, "a few calls try whether it is open")
	case l.Checking:
		out = append(out, "checking whether the last cut helped")
	case l.ProbeIn > 0:
		out = append(out, "probing in "+inSeconds(l.ProbeIn))
	}
	return strings.Join(out, "; ")
}

func (c Ceiling) words(unit string) string {
	number := amount(c.Limit) + " " + unit
	switch c.Certainty {
	case Untouched:
		number += ", not refused yet"
	case Suspect:
		number = "perhaps " + number
	case Known, Sure:
		number = "about " + number
	case Configured:
		number += " as configured"
	}
	if c.Binding {
		number += " (binding)"
	}
	return number
}

// amount writes a number with three digits that count.
func amount(v float64) string {
	for _, unit := range []struct {
		from   float64
		suffix string
	}{{1e6, "M"}, {1e4, "k"}} {
		if v >= unit.from {
			scale := 1e6
			if unit.suffix == "k" {
				scale = 1e3
			}
			return strconv.FormatFloat(v/scale, 'g', 3, 64) + unit.suffix
		}
	}
	return fmt.Sprintf("%.0f", v)
}

func inSeconds(d time.Duration) string {
	return fmt.Sprintf("%.0f s", d.Round(time.Second).Seconds())
}
