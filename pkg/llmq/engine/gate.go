package engine

import (
	"errors"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// ask is what an admission is asked for. callID is unique to it.
type ask struct {
	target llmq.Target
	lane   llmq.Lane
	callID string
	load   provider.Load
	most   string    // what the call's wire calls the most output
	until  time.Time // when an rt request gives up waiting; until then it counts as waiting. Zero: it does not wait
	direct bool      // see Call
}

// tokens is what the call reserves.
func (a ask) tokens() int {
	return capacity.Reserve(a.load.InputChars, a.load.MaxOutput, a.load.NoOutput)
}

func (a ask) capacity() capacity.Ask {
	return capacity.Ask{Target: a.target, Lane: a.lane, CallID: a.callID, Tokens: a.tokens(), Most: a.most, Until: a.until, Direct: a.direct}
}

// mostOf is what an op's wire calls the most output. The models that are invoked have a name of their own each.
func mostOf(op llmq.Op) string {
	switch op {
	case llmq.OpChat:
		return "max_tokens"
	case llmq.OpResponses:
		return "max_output_tokens"
	case llmq.OpConverse, llmq.OpConverseStream:
		return "inferenceConfig.maxTokens"
	default:
		return ""
	}
}

// shortage is what an admission lacked.
type shortage int

const (
	shortOfSlots shortage = iota // or of anything else that comes free by itself
	shortOfRate                  // the budget of calls or tokens is used up until retry
	targetClosed                 // its breaker is open: it takes nothing before retry
)

// String is for the trace.
func (s shortage) String() string {
	switch s {
	case shortOfRate:
		return "rate"
	case targetClosed:
		return "breaker_open"
	case shortOfSlots:
	}
	return "slots"
}

// admission is the gate's answer as the engine sees it.
type admission struct {
	granted bool
	slot    capacity.Slot // valid when granted
	short   shortage      // what was missing when not
	retry   time.Duration // when to ask again when not
	wait    time.Duration // how long an rt request that came anew would wait
	sooner  bool          // it may be there sooner: calls in flight give back what they don't use of their tokens
	unheard bool          // the store did not answer, so nothing is known
	never   *llmq.Error   // why it can never be granted; nothing was asked then
}

// gate is what the engine needs of capacity.
type gate interface {
	admit(b *luascript.Batch, a ask) luascript.Pending[admission]
	renew(b *luascript.Batch, s capacity.Slot) luascript.Pending[struct{}]
	// settle returns the slot of an attempt; the answer is for how long the target's breaker is open.
	settle(b *luascript.Batch, s capacity.Slot, o capacity.Outcome) luascript.Pending[time.Duration]
	// misfits are the keys of a target that no admission can use; none unless err says that there are any.
	misfits(b *luascript.Batch, t llmq.Target, err error) luascript.Pending[[]capacity.Misfit]
	// abandon undoes an admission under which nothing was attempted, whatever became of it.
	abandon(b *luascript.Batch, a ask) luascript.Pending[struct{}]
}

// slots is the gate that capacity is. This file is all of the engine that knows its answers.
type slots struct{ *capacity.Gate }

var _ gate = slots{}

func (g slots) admit(b *luascript.Batch, a ask) luascript.Pending[admission] {
	pending := g.Admit(b, a.capacity())
	return func() (admission, error) {
		got, err := pending()
		if errors.Is(err, capacity.ErrAboveBurst) || errors.Is(err, capacity.ErrZeroRate) {
			return admission{never: llmq.AsError(err)}, nil
		}
		out := admission{granted: got.Granted, slot: got.Slot, retry: got.Retry, wait: got.Wait}
		switch {
		case got.Missing == capacity.MissingHealth:
			out.short = targetClosed
		case got.Missing.IsRate():
			out.short = shortOfRate
			out.sooner = got.Missing == capacity.MissingTPM && got.InUse > 0 || got.Missing == capacity.MissingSharedTPM
		case got.Missing == capacity.MissingSlots || got.Missing == capacity.MissingLane || got.Missing == capacity.MissingShared:
			// Whoever is next looks in often: how soon a slot comes free is a guess where little starts.
			if got.Place <= 1 {
				out.retry = min(out.retry, retryFull)
			}
		}
		return out, err
	}
}

func (g slots) renew(b *luascript.Batch, s capacity.Slot) luascript.Pending[struct{}] {
	return told(g.Renew(b, s))
}

func (g slots) settle(b *luascript.Batch, s capacity.Slot, o capacity.Outcome) luascript.Pending[time.Duration] {
	pending := g.Settle(b, s, o)
	return func() (time.Duration, error) {
		got, err := pending()
		return got.Open, err
	}
}

func (g slots) misfits(b *luascript.Batch, t llmq.Target, err error) luascript.Pending[[]capacity.Misfit] {
	if !capacity.IsMisfit(err) {
		return nil
	}
	return g.Misfits(b, t)
}

func (g slots) abandon(b *luascript.Batch, a ask) luascript.Pending[struct{}] {
	return told(g.Abandon(b, a.capacity()))
}

// told drops an answer that the engine has no use for.
func told[T any](answer luascript.Pending[T]) luascript.Pending[struct{}] {
	return func() (struct{}, error) {
		_, err := answer()
		return struct{}{}, err
	}
}

// replied is what the gate is told of an attempt that was answered: the tokens that t's provider
// charges for it, where the reply tells any.
func replied(t llmq.Target, u *provider.Usage) capacity.Outcome {
	o := capacity.Outcome{Ending: capacity.OK, Tokens: capacity.Unknown}
	if u != nil {
		o.Tokens = capacity.Cost(t.Tokens, capacity.Usage{Input: u.Input, CacheWrite: u.CacheWrite, Output: u.Output})
	}
	return o
}

// failed is what the gate is told of an attempt that failed. A failure that the provider reported is not charged, nor
// what never went out; of what was cut off, or answered with something that is no reply, nobody
// knows. Only a server's failure and silence say that a target is broken (FEATURES D6).
func failed(came outcome, err error) capacity.Outcome {
	o := capacity.Outcome{Ending: rules[came].slot, Tokens: capacity.Unknown, Broken: came == hung}
	pe, ok := errors.AsType[*provider.Error](err)
	if !ok {
		return o
	}
	o.RetryAfter = pe.RetryAfter
	o.Broken = o.Broken || came == retryable && pe.Status >= 500
	if pe.Unsent || pe.Status != 0 && pe.Status/100 != 2 || notConnected(pe.Err) {
		o.Tokens = 0
	}
	return o
}

// cutOff is what the gate is told of an attempt that we ended: nothing of the target.
func cutOff() capacity.Outcome {
	return capacity.Outcome{Ending: capacity.Abandoned, Tokens: capacity.Unknown}
}
