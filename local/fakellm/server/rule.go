package server

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

const (
	maxRules  = 1000
	maxPhases = 1000
	// maxPhase bounds the time of one phase.
	maxPhase = 366 * 24 * time.Hour
	// maxOutput bounds the tokens of a drawn answer.
	maxOutput = 1 << 20
)

// Dimension is what a Rule counts apart.
type Dimension string

// The dimensions of a Rule.
const (
	ByModel  Dimension = "model"
	ByRegion Dimension = "region"
	ByKey    Dimension = "key"
)

// Rule says how the calls that match are limited, slowed down and failed, over time. A call
// follows the first rule that fits it, and no rule if none does.
type Rule struct {
	Match Match
	// Per names what has quotas of its own within the rule; nil means model and region.
	Per []Dimension
	// Phases follow each other from the moment the rule is set.
	Phases []Phase
	// Loop starts the phases again after the last one, which else goes on for ever.
	Loop bool
	// Seed makes all that the rule draws the same each time.
	Seed uint64
}

// Phase is how a provider behaves for a while. The zero value is a provider without limits that
// answers at once.
type Phase struct {
	// For is how long the phase lasts; 0 is for ever, in a last phase without Loop.
	For time.Duration
	// From and To multiply all quotas, changing evenly over the phase: a slow recovery is a phase
	// from 0.1 to 1. Both 0 is no change. Needs For.
	From, To float64
	// Limits are the quotas. An empty Charge is the wire's own: Bedrock reserves, OpenAI estimates.
	Limits quota.Limits
	// ThrottleShare of the calls is throttled by chance; 0 to 1.
	ThrottleShare float64
	// Throttle changes what throttled calls get: Status, Code, Message, Header and Body of it count.
	Throttle Reply
	// RetryAfter is how throttled calls are told to wait.
	RetryAfter RetryAfter
	// RefuseDelay is how long throttled calls and errors take; 0 is no time.
	RefuseDelay time.Duration
	// Latency is that of all other calls.
	Latency Latency
	// OutputTokens is how long answers are made; the zero value leaves them as they come. What a
	// call allows at most cuts them still.
	OutputTokens Spread
	// ContextTokens is what input and answer together may have; 0 is no limit.
	ContextTokens int
	// Faults are drawn before all else.
	Faults []Fault
}

// Fault is something that goes wrong with a share of the calls.
type Fault struct {
	Share float64 // 0 to 1; those of a phase add up to 1 at most
	// Reply is what those calls get. Hang, Times and Fail work as for a queued reply.
	Reply Reply
}

func (r Rule) validate() error {
	var faults []error
	if len(r.Phases) == 0 || len(r.Phases) > maxPhases {
		faults = append(faults, at("phases", fmt.Errorf("want 1 to %d", maxPhases)))
	}
	for i, d := range r.Per {
		if d != ByModel && d != ByRegion && d != ByKey {
			faults = append(faults, at("per/"+itoa(i), fmt.Errorf("%q: want model, region or key", d)))
		}
	}
	for i, p := range r.Phases {
		mayBeEndless := i == len(r.Phases)-1 && !r.Loop
		if err := p.validate(mayBeEndless); err != nil {
			faults = append(faults, at("phases/"+itoa(i), err))
		}
	}
	return errors.Join(faults...)
}

func (p Phase) validate(mayBeEndless bool) error {
	var faults []error
	check := func(place string, err error) {
		if err != nil {
			faults = append(faults, at(place, err))
		}
	}
	if p.For < 0 || p.For > maxPhase || p.For == 0 && !mayBeEndless {
		check("for_ms", fmt.Errorf("%v: want more than 0, and at most %v (0, for ever, is for a last phase that does not loop)", p.For, maxPhase))
	}
	if p.From < 0 || p.To < 0 || !(p.From <= 1000 && p.To <= 1000) {
		check("scale", fmt.Errorf("from %v to %v: want 0 to 1,000", p.From, p.To))
	}
	if p.For == 0 && p.From != p.To {
		check("scale", errors.New("a phase that lasts for ever has no end to change towards"))
	}
	check("rpm", p.Limits.Requests.Validate())
	check("tpm", p.Limits.Tokens.Validate())
	others := p.Limits
	others.Requests, others.Tokens = quota.Rate{}, quota.Rate{}
	check("", others.Validate())
	check("throttle", p.Throttle.validate())
	check("retry_after", p.RetryAfter.validate())
	check("latency", p.Latency.validate())
	check("output_tokens", p.OutputTokens.validate(maxOutput))
	if p.ContextTokens < 0 {
		check("context_tokens", fmt.Errorf("%d: want 0 or more", p.ContextTokens))
	}
	if p.RefuseDelay < 0 || p.RefuseDelay > maxDelay {
		check("refuse_delay_ms", fmt.Errorf("%v: want 0 to %v", p.RefuseDelay, maxDelay))
	}
	if !(p.ThrottleShare >= 0 && p.ThrottleShare <= 1) {
		check("throttle_share", fmt.Errorf("%v: want 0 to 1", p.ThrottleShare))
	}
	sum := 0.0
	for i, f := range p.Faults {
		if !(f.Share >= 0 && f.Share <= 1) {
			check("faults/"+itoa(i)+"/share", fmt.Errorf("%v: want 0 to 1", f.Share))
		}
		check("faults/"+itoa(i), f.Reply.validate())
		if f.Reply.isNormal() {
			check("faults/"+itoa(i), errors.New("nothing goes wrong: want a status, code, fail, reset, hang, delay_ms or another thing that a reply may have"))
		}
		sum += f.Share
	}
	if sum > 1+1e-9 {
		check("faults", fmt.Errorf("the shares add up to %v: want at most 1", sum))
	}
	return errors.Join(faults...)
}

// at gives the phase that is in force so long after the start, its number, and by how much its
// quotas are multiplied now. It is a pure function of a validated rule.
func (r Rule) at(elapsed time.Duration) (p Phase, number int, factor float64) {
	elapsed = max(0, elapsed)
	if r.Loop {
		var all time.Duration
		for i := range r.Phases {
			all += r.Phases[i].For
		}
		elapsed %= all
	}
	for number < len(r.Phases)-1 && elapsed >= r.Phases[number].For {
		elapsed -= r.Phases[number].For
		number++
	}
	p = r.Phases[number]
	if p.From == 0 && p.To == 0 {
		return p, number, 1
	}
	if p.For == 0 {
		return p, number, p.To
	}
	progress := min(1, float64(elapsed)/float64(p.For))
	return p, number, p.From + (p.To-p.From)*progress
}

// scope names the quotas that a call shares.
func (r Rule) scope(model string, who identity) scope {
	s := scope{match: r.Match}
	per := r.Per
	if per == nil {
		per = []Dimension{ByModel, ByRegion}
	}
	if slices.Contains(per, ByModel) {
		s.model = model
	}
	if slices.Contains(per, ByRegion) {
		s.region = who.region
	}
	if slices.Contains(per, ByKey) {
		s.key = who.keyHash
	}
	return s
}

type scope struct {
	match              Match
	model, region, key string
}

func (r Rule) clone() Rule {
	r.Match = r.Match.hashed()
	r.Per, r.Phases = slices.Clone(r.Per), slices.Clone(r.Phases)
	for i := range r.Phases {
		p := &r.Phases[i]
		p.Throttle = p.Throttle.clone()
		p.Faults = slices.Clone(p.Faults)
		for j := range p.Faults {
			p.Faults[j].Reply = p.Faults[j].Reply.clone()
		}
	}
	return r
}
