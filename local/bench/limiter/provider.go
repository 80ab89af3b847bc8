package main

import (
	"math"
	"math/rand/v2"
)

const minute = 60_000

// change is a quota over time; the time counts from the start of the run.
type change func(since int64) float64

// window is how a quota per minute counts.
type window int

const (
	bucket   window = iota // refilled all the time, up to a burst
	calendar               // so much in each minute of the provider's clock
	sliding                // so much in any 60 s
)

// outage is what a provider does instead of answering.
type outage int

const (
	noOutage outage = iota
	throttlesAll
	failsAll
)

// retryAfter is what a refusal says of when to come back.
type retryAfter int

const (
	silent retryAfter = iota
	truthful
	always30s
	always1ms
)

// provider refuses calls by its quotas. A nil quota is none.
type provider struct {
	slots       change
	starts      change  // per minute
	startsBurst float64 // of a bucket; 0 is a whole minute
	startsBy    window
	punishes    bool   // a sliding window counts refused calls as well
	tokens      change // per minute
	tokensBy    window // bucket or calendar
	burndown    float64
	random      float64 // part of calls refused for no reason
	outage      func(since int64) outage
	retryAfter  retryAfter
	skew        int64 // its clock minus ours
	slow        func(c *call) float64

	rng        *rand.Rand
	inFlight   int
	refilled   int64
	startLevel float64
	startCount float64 // in the current minute
	tokenLevel float64
	tokenCount float64
	inMinute   int64
	recent     []int64 // starts of the last minute, for sliding
}

func (p *provider) begin(seed uint64) {
	p.rng = stream(seed, streamProvider, 0)
	p.refilled, p.inMinute = runStart, (runStart+p.skew)/minute
	if p.starts != nil {
		p.startLevel = p.startsFull(runStart)
	}
	if p.tokens != nil {
		p.tokenLevel = p.tokens(0)
	}
	if p.burndown == 0 {
		p.burndown = 1
	}
}

func (p *provider) startsFull(now int64) float64 {
	if p.startsBurst > 0 {
		return p.startsBurst
	}
	return p.starts(now - runStart)
}

func (p *provider) refill(now int64) {
	elapsed := float64(now - p.refilled)
	p.refilled = now
	if p.starts != nil {
		p.startLevel = math.Min(p.startsFull(now), p.startLevel+p.starts(now-runStart)/minute*elapsed)
		for len(p.recent) > 0 && p.recent[0] <= now-minute {
			p.recent = p.recent[1:]
		}
	}
	if p.tokens != nil {
		quota := p.tokens(now - runStart)
		p.tokenLevel = math.Min(quota, p.tokenLevel+quota/minute*elapsed)
	}
	if m := (now + p.skew) / minute; m != p.inMinute {
		p.inMinute, p.startCount, p.tokenCount = m, 0, 0
	}
}

// takes tells whether the quotas leave room for a call of so many tokens, and if not in
// how many ms they may.
func (p *provider) takes(now, tokens int64) (bool, int64) {
	p.refill(now)
	toNextMinute := minute - (now+p.skew)%minute
	if p.slots != nil && float64(p.inFlight)+1 > p.slots(now-runStart) {
		return false, 1000
	}
	if p.starts != nil {
		quota := p.starts(now - runStart)
		switch {
		case p.startsBy == calendar:
			if p.startCount+1 > quota {
				return false, toNextMinute
			}
		case p.startsBy == sliding:
			if float64(len(p.recent))+1 > quota {
				return false, p.recent[0] + minute - now
			}
		case p.startLevel < 1:
			return false, int64((1-p.startLevel)/quota*minute) + 1
		}
	}
	if p.tokens != nil {
		quota, need := p.tokens(now-runStart), float64(tokens)
		if p.tokensBy == calendar {
			if p.tokenCount+need > quota {
				return false, toNextMinute
			}
		} else if p.tokenLevel < need {
			return false, int64((need-p.tokenLevel)/quota*minute) + 1
		}
	}
	return true, 0
}

// verdict is what a provider does with a call at its door.
type verdict int

const (
	accepted verdict = iota
	throttled
	failed
)

// start offers a call. The second value is the Retry-After of a refusal in ms, 0 for none.
func (p *provider) start(now int64, c *call) (verdict, int64) {
	if p.outage != nil {
		switch p.outage(now - runStart) {
		case throttlesAll:
			return throttled, p.says(2000)
		case failsAll:
			return failed, 0
		case noOutage:
		}
	}
	if p.random > 0 && p.rng.Float64() < p.random {
		return throttled, p.says(1000)
	}
	ok, wait := p.takes(now, c.required())
	if !ok {
		if p.punishes {
			p.recent = append(p.recent, now)
		}
		return throttled, p.says(wait)
	}
	p.inFlight++
	p.startLevel--
	p.startCount++
	if p.startsBy == sliding {
		p.recent = append(p.recent, now)
	}
	p.tokenLevel -= float64(c.required())
	p.tokenCount += float64(c.required())
	return accepted, 0
}

func (p *provider) says(truth int64) int64 {
	switch p.retryAfter {
	case truthful:
		return truth
	case always30s:
		return 30_000
	case always1ms:
		return 1
	case silent:
	}
	return 0
}

// finish takes an accepted call out and gives back what it reserved and did not use.
func (p *provider) finish(now int64, c *call) {
	p.refill(now)
	p.inFlight--
	if p.tokens != nil {
		back := float64(c.required() - c.charged(p.burndown))
		p.tokenLevel = math.Min(p.tokens(now-runStart), p.tokenLevel+back)
		p.tokenCount = math.Max(0, p.tokenCount-back)
	}
}
