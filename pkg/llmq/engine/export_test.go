package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
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

// TraceSteps returns a function that goes through every step of a call's trace, of an engine with that log.
func TraceSteps(log *slog.Logger) func() {
	e := &Engine{Deps: Deps{Log: log}}
	r := &run{Engine: e, traced: log.Enabled(context.Background(), slog.LevelDebug)}
	a, failed := &admission{}, errors.New("failed")
	return func() {
		r.traceStarted()
		r.traceSlot()
		r.traceNoSlot(a, time.Second)
		r.traceWait(time.Time{})
		r.traceAttempt(failed, time.Second)
		r.traceBackoff(retry.Decision{})
		r.traceStep()
		r.traceEnd(Verdict{})
	}
}
