package engine

import (
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// ask is what an admission is asked for. callID is unique to it.
type ask struct {
	target  llmq.Target
	request llmq.Request
	callID  string
	until   time.Time // when an rt request gives up waiting; until then it counts as waiting
}

// shortage is what an admission lacked.
type shortage int

const (
	shortOfSlots shortage = iota // or of anything else that comes free by itself
	shortOfRate                  // the budget of calls or tokens is used up until retry
	targetClosed                 // its breaker is open: it takes nothing before retry
)

// admission is the gate's answer as the engine sees it.
type admission struct {
	granted bool
	slot    capacity.Slot // valid when granted
	short   shortage      // what was missing when not
	retry   time.Duration // when to ask again when not
}

// gate is what the engine needs of capacity.
type gate interface {
	admit(b *luascript.Batch, a ask) luascript.Pending[admission]
	renew(b *luascript.Batch, s capacity.Slot) luascript.Pending[struct{}]
	settle(b *luascript.Batch, s capacity.Slot, e capacity.Ending) luascript.Pending[struct{}]
}

// slots is the gate that capacity is. This file is all of the engine that knows its answers.
type slots struct{ *capacity.Gate }

var _ gate = slots{}

func (g slots) admit(b *luascript.Batch, a ask) luascript.Pending[admission] {
	pending := g.Admit(b, capacity.Ask{Target: a.target, Lane: a.request.Lane, CallID: a.callID, Until: a.until})
	return func() (admission, error) {
		got, err := pending()
		out := admission{granted: got.Granted, slot: got.Slot, retry: got.Retry}
		switch {
		case got.Missing == capacity.MissingHealth:
			out.short = targetClosed
		case got.Missing.IsRate():
			out.short = shortOfRate
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

func (g slots) settle(b *luascript.Batch, s capacity.Slot, e capacity.Ending) luascript.Pending[struct{}] {
	return told(g.Settle(b, s, capacity.Outcome{Ending: e, Tokens: capacity.Unknown}))
}

// told drops an answer that the engine has no use for.
func told[T any](answer luascript.Pending[T]) luascript.Pending[struct{}] {
	return func() (struct{}, error) {
		_, err := answer()
		return struct{}{}, err
	}
}
