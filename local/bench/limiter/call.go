package main

import (
	"math"
	"math/rand/v2"
)

// All times are virtual, in milliseconds.

type lane int

const (
	laneRT lane = iota
	laneBG
	laneBulk
)

// call is one request on its way.
type call struct {
	id        int64 // of this admission: a retry has a new one
	lane      lane
	tokensIn  int64
	tokensOut int64
	maxOut    int64 // what is sent as the maximum of output
	guessIn   int64 // our estimate of tokensIn
	latency   int64 // of the provider's answer
	arrived   int64
	giveUpAt  int64 // rt only
	attempts  int
}

// reserved is what is taken off a token budget before the call starts; the provider,
// who can count, takes required.
func (c *call) reserved() int64 { return c.guessIn + c.maxOut }
func (c *call) required() int64 { return c.tokensIn + c.maxOut }

// charged is what the provider bills in the end: output tokens weigh burndown each.
func (c *call) charged(burndown float64) int64 {
	return c.tokensIn + int64(float64(c.tokensOut)*burndown)
}

// workload is what calls look like: medians of tokens, log-normal.
type workload struct {
	in, out   float64
	perSecond float64 // output tokens
}

const (
	spreadIn      = 0.9
	spreadOut     = 1.0
	firstToken    = 0.3 // seconds
	guessBias     = 1.05
	guessSpread   = 0.15
	readPerSecond = 20_000
	latencyMin    = 0.3
	latencyMax    = 30
)

func usual() workload { return workload{in: 600, out: 250, perSecond: 80} }

func (w workload) draw(r *rand.Rand, id int64, l lane) *call {
	in := math.Max(10, w.in*math.Exp(spreadIn*r.NormFloat64()))
	out := math.Max(1, w.out*math.Exp(spreadOut*r.NormFloat64()))
	var most float64
	switch u := r.Float64(); {
	case u < 0.6:
		most = 1024
	case u < 0.9:
		most = 4096
	default: // a caller who knows what he asks for
		most = math.Ceil(out * 1.2)
	}
	out = math.Min(out, most)
	first := firstToken * math.Exp(0.3*r.NormFloat64())
	latency := first + out/(w.perSecond*math.Exp(0.2*r.NormFloat64())) + in/readPerSecond
	latency = math.Min(latencyMax, math.Max(latencyMin, latency))
	guess := in * guessBias * math.Exp(guessSpread*r.NormFloat64())
	return &call{
		id: id, lane: l, tokensIn: int64(in), tokensOut: int64(out), maxOut: int64(most), guessIn: int64(guess),
		latency: int64(latency * 1000),
	}
}

// What is drawn from which stream of random numbers. Calls have streams of their own, so
// that every law meets the same ones.
const (
	streamWorld    = 1
	streamProvider = 2
	streamRT       = 3
	streamBulk     = 4
	streamForeign  = 9
)

func stream(seed, kind, i uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed*1000003+kind, i*2654435761+12345))
}
