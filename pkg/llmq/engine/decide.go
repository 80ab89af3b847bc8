package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
)

// outcome is what an attempt that failed came to.
type outcome int

const (
	throttled outcome = iota + 1
	retryable
	hung
	targetFatal
	callFatal
	unknown
)

// String is for dead letters and the trace.
func (o outcome) String() string {
	switch o {
	case throttled:
		return "throttle"
	case retryable:
		return "retryable"
	case hung:
		return "timeout"
	case targetFatal:
		return "target_fatal"
	case callFatal:
		return "call_fatal"
	case unknown:
		return "unknown"
	}
	return ""
}

// after is where a failure leads.
type after int

const (
	tryAgain after = iota // here, after a wait, while there are tries left
	moveOn                // to the next step; here again where there is none
	nextStep              // to the next step, or to the end
	theEnd
)

// rule is what an outcome means.
type rule struct {
	slot capacity.Ending // what the limiter is told: only a throttle speaks of load
	then after
}

// rules is the one table that says so (FEATURES D4, D5).
var rules = map[outcome]rule{
	throttled: {capacity.Throttled, tryAgain},
	retryable: {capacity.Failed, tryAgain},
	// What hangs has cost a whole attempt's time. Another target is the better bet for the next.
	hung: {capacity.Failed, moveOn},
	// No access, no such model, no money left: that will not go away while we wait.
	targetFatal: {capacity.Failed, nextStep},
	// The body is wrong, and would be as wrong anywhere else.
	callFatal: {capacity.Failed, theEnd},
	// No provider's error but one of ours; nothing is known of what it has cost.
	unknown: {capacity.Failed, theEnd},
}

// outcomeOf says what an attempt's error is.
func outcomeOf(err error) outcome {
	pe, ok := errors.AsType[*provider.Error](err)
	timeout := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, llmq.CodeTimeout)
	switch {
	case !ok && timeout, ok && pe.Class == provider.Retryable && timeout:
		return hung
	case !ok:
		return unknown
	}
	switch pe.Class {
	case provider.Throttle:
		return throttled
	case provider.Retryable:
		return retryable
	case provider.TargetFatal:
		return targetFatal
	case provider.CallFatal:
		return callFatal
	}
	return unknown
}

// mostCut is how many attempts of a call may be cut off by the end of the process that
// makes them. Each is paid for, and what did not fit twice will hardly fit a third time.
const mostCut = 2

// decide turns an attempt's failure into the end of the run, or into nil where another attempt is to follow.
func (r *run) decide(ctx context.Context, err error) *ending {
	now := time.Now()
	stopped := ctx.Err() != nil || (!r.Limit.IsZero() && !now.Before(r.Limit))
	switch {
	case stopOf(ctx) != nil:
		return &ending{slot: cutOff()} // conclude knows why
	case r.tape.hasBegun() && !now.Before(r.Request.Deadline):
		return r.brokeOff(err, llmq.CodeTimeout)
	case r.tape.hasBegun():
		return r.brokeOff(err, llmq.CodeStreamBroken)
	case !now.Before(r.Request.Deadline):
		return &ending{result: llmq.Result{Err: r.explain(hung, err)}, slot: r.cutShort(err)}
	case errors.Is(err, errNotBegun):
		return &ending{release: &Verdict{After: shortestRelease, Reason: reasonOutOfTime}, slot: cutOff()}
	case ctx.Err() != nil && r.stopped(): // cut by the drain, which says nothing of how long the call takes
		r.advance(func(p *claims.Progress) { p.Tries-- })
		return drained(0, cutOff())
	case stopped:
		end := &ending{result: llmq.Result{Err: r.explain(hung, err)}, slot: r.cutShort(err)}
		if p := r.advance(func(p *claims.Progress) { p.Cut++; p.Tries-- }); p.Cut < mostCut {
			end.release, end.slot = &Verdict{After: shortestRelease, Reason: reasonOutOfTime}, cutOff()
		}
		return end
	}
	came := outcomeOf(err)
	r.advance(func(p *claims.Progress) {
		p.Last = int(came)
		switch came {
		case throttled:
			p.Throttled++
		case retryable, hung:
			p.Failed++
		default: // says nothing about whether a repeat may help
		}
	})
	r.remember(came, r.explain(came, err))
	return r.follow(ctx, came, err)
}

// cutShort is what the gate is told of an attempt that failed as its time ran out. What a provider reported by
// then counts as ever; its silence says nothing, for it was not given a whole attempt's time.
func (r *run) cutShort(err error) capacity.Outcome {
	o := failed(outcomeOf(err), err)
	if o.Tokens == capacity.Unknown {
		o = capacity.Outcome{Ending: capacity.Failed, Tokens: capacity.Unknown}
	}
	return o
}

// remember keeps what the caller is told when no step is left: the last failure, but that of a target
// that would never have served says less than that of one that might have.
func (r *run) remember(came outcome, failure *llmq.Error) {
	if r.failure == nil || came != targetFatal {
		r.failure = failure
	}
}

// follow carries out what the table says.
func (r *run) follow(ctx context.Context, came outcome, err error) *ending {
	told, then := failed(came, err), rules[came].then
	if r.poisonous() && then != theEnd {
		return &ending{result: llmq.Result{Err: r.failure}, slot: told, poison: true}
	}
	if _, more := r.nextStep(); then == moveOn {
		if then = tryAgain; more {
			then = nextStep
		}
	}
	switch then {
	case theEnd:
		return &ending{result: llmq.Result{Err: r.failure}, slot: told}
	case tryAgain:
		d := r.patience().Decide(failureOf(came, err), triesOf(r.come()), r.window(), rand.Float64()) //nolint:gosec // spreads retries; nothing is secret
		r.traceBackoff(d)
		switch d.Move {
		case retry.Sleep:
			if r.stopped() {
				return drained(d.After, told)
			}
			until := time.Now().Add(d.After)
			if open := r.turn(ctx, told, nil); open > 0 {
				// What opened it ends the target's tries: another would find it closed (FEATURES D6).
				r.log().Info("breaker_open", "target", r.target().String(), "open_ms", open.Milliseconds())
				return r.goOn(ctx, told)
			}
			r.sleep(ctx, until)
			if r.stopped() {
				return drained(time.Until(until), cutOff())
			}
			return nil // what else ended it early is seen by whoever is next
		case retry.HandBack:
			return &ending{release: &Verdict{After: d.After, Reason: reasonRetry}, slot: told}
		default:
		}
	case nextStep, moveOn:
	}
	return r.goOn(ctx, told)
}

// sleepQueued is the longest sleep of a bg or bulk request in here: nobody waits for it by the
// second, and a function that sleeps is paid for (FEATURES D3).
const sleepQueued = 10 * time.Second

// patience is the policy of the request's lane. A direct one sleeps nowhere, and neither does a job: each of its attempts may
// take all of a function's time.
func (r *run) patience() retry.Policy {
	p := r.policy()
	switch {
	case r.Direct, r.Request.Op == llmq.OpJob:
		p.SleepMost = 0
	case r.Request.Lane != llmq.LaneRT:
		p.SleepMost = min(p.SleepMost, sleepQueued)
	}
	return p
}

func failureOf(came outcome, err error) retry.Failure {
	f := retry.Failure{Throttled: came == throttled}
	if pe, ok := errors.AsType[*provider.Error](err); ok {
		f.RetryAfter = pe.RetryAfter
	}
	return f
}

func triesOf(p claims.Progress) retry.Tries {
	return retry.Tries{Made: p.Tries, Throttled: p.Throttled}
}
