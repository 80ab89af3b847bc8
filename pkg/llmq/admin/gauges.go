package admin

import (
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// Gauge tells the metrics what the gate knows of a target: of all processes that call it (FEATURES E7).
func Gauge(rec *telemetry.Recorder, t llmq.Target, st capacity.State) {
	l := telemetry.Labels{Model: t.Model, Target: t.Name}
	rec.Set(telemetry.Inflight, l, float64(st.InUse))
	open := 0.0
	if st.Breaker == capacity.BreakerOpen {
		open = 1
	}
	rec.Set(telemetry.BreakerOpen, l, open)
	for _, b := range []struct {
		kind       string
		used, left int
	}{{telemetry.KindCalls, st.CallsUsed, st.CallsLeft}, {telemetry.KindTokens, st.TokensUsed, st.TokensLeft}} {
		if b.left == capacity.None {
			continue
		}
		l.Kind = b.kind
		rec.Set(telemetry.RateUsed, l, float64(b.used))
		rec.Set(telemetry.RateRemaining, l, float64(b.left))
	}
}

// gauge tells them of every target of which something is known.
func (o *Operator) gauge(lim limits) {
	told := map[string]bool{}
	for _, chain := range lim.chains {
		for _, t := range chain {
			if st, known := lim.states[t.String()]; known && !told[t.String()] {
				told[t.String()] = true
				Gauge(o.deps.Metrics, t, st)
			}
		}
	}
}

// gaugeDepths tells them what lies in the queues.
func (o *Operator) gaugeDepths(depths map[queue.Name]queue.Depth) {
	for q, d := range depths {
		for kind, n := range map[string]int{telemetry.KindWaiting: d.Visible, telemetry.KindDelayed: d.Delayed, telemetry.KindReceived: d.InFlight} {
			o.deps.Metrics.Set(telemetry.QueueDepth, telemetry.Labels{Queue: string(q), Kind: kind}, float64(n))
		}
	}
}
