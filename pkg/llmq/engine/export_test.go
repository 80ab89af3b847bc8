package engine

import (
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Shortage is what a gate that a test wraps says of a target instead of its own answer.
type Shortage struct {
	Closed bool // the breaker is open; else the rate's budget is used up
	Retry  time.Duration
}

// WrapGate makes e's gate deny targets, by their full name, as the breaker and the rates of a gate
// that has them do.
func WrapGate(e *Engine, deny func(target string) (Shortage, bool)) { e.gate = denying{e.gate, deny} }

type denying struct {
	gate
	deny func(target string) (Shortage, bool)
}

func (d denying) admit(b *luascript.Batch, a ask) luascript.Pending[admission] {
	s, denied := d.deny(a.target.String())
	if !denied {
		return d.gate.admit(b, a)
	}
	short := shortOfRate
	if s.Closed {
		short = targetClosed
	}
	return func() (admission, error) { return admission{short: short, retry: s.Retry, wait: s.Retry}, nil }
}
