package admin

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/governor"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// defaultShare is the part of a limit that background lanes may use where nobody says another.
const defaultShare = 0.8

// Governed is what a run of the governor did.
type Governed struct {
	Off      bool   `json:"off,omitempty"` // it is turned off; no source is changed
	Forecast int    `json:"forecast"`      // models of which it is known how long a queued call waits
	Sources  int    `json:"sources"`       // bg and bulk sources that there are
	Moved    int    `json:"moved"`
	Failed   int    `json:"failed"`   // moves that were refused; the next minute tries again
	Requests int    `json:"requests"` // to AWS about event sources; lists of more than 100 are one each
	Error    string `json:"error,omitempty"`
}

// Govern looks once at every background event source and asks for the moves that the limits want. It is to be
// called each minute. What it can't do now it leaves to the next minute: nothing waits for it.
//
// A source that another change is under way of is left alone, as one is that is paused; a throttle ends the run.
// With the state store down or new nothing is asked of AWS: a width from before is a better guess than none.
//
// Beside it reads every queue's depth, a request to SQS each, and leaves what doors forecast from: also where it is off, if it
// is called.
// Runs may overlap: they decide alike, and the second to ask is told that the source is busy.
func (o *Operator) Govern(ctx context.Context) Governed {
	start := time.Now()
	run := o.govern(ctx)
	log := o.deps.Trail.Log.InfoContext
	if run.Error != "" {
		log = o.deps.Trail.Log.WarnContext
	}
	log(ctx, "governor_ran", "sources", run.Sources, "moved", run.Moved, "failed", run.Failed, "requests", run.Requests, "forecast", run.Forecast,
		"error", run.Error, "took_ms", time.Since(start).Milliseconds())
	return run
}

func (o *Operator) govern(ctx context.Context) Governed {
	var run Governed
	lim := o.limits(ctx)
	if lim.err != nil {
		run.Error = "limits unknown, nothing changed: " + lim.err.Error()
		return run
	}
	o.gauge(lim)
	byWorker := o.listAll(ctx)
	foreseen, err := o.foresee(ctx, lim, byWorker)
	if o.deps.Governed {
		run = o.obey(ctx, lim, byWorker)
	} else {
		run.Off = true
	}
	run.Forecast, run.Requests = foreseen, run.Requests+len(byWorker)
	if err != nil {
		run.Error = strings.TrimPrefix(run.Error+"\nno forecast of some: "+err.Error(), "\n")
	}
	return run
}

// obey asks for what the limits want of each source.
func (o *Operator) obey(ctx context.Context, lim limits, byWorker map[string]listed) Governed {
	var run Governed
	var errs []error
	for _, l := range governor.Lanes() {
		errs = append(errs, byWorker[o.deps.Lanes[l].Worker].err)
	}
	for _, p := range o.places() {
		from := byWorker[o.rule(p).Worker]
		if !governs(p) || from.err != nil {
			continue
		}
		s, err := from.of(p.queue)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		run.Sources++
		d := governor.Decide(o.facts(p, s, lim))
		if !d.Move {
			continue
		}
		run.Requests++
		_, err = o.deps.Sources.SetMaxConcurrency(ctx, s.ID, d.Want)
		o.logMove(ctx, p, s, d, err)
		if err == nil {
			run.Moved++
			continue
		}
		run.Failed++
		if errors.Is(err, queue.ErrThrottled) || ctx.Err() != nil {
			errs = append(errs, err)
			break
		}
		if !errors.Is(err, queue.ErrBusy) && !errors.Is(err, queue.ErrNoSource) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		run.Error = err.Error()
	}
	return run
}

func (o *Operator) logMove(ctx context.Context, p place, s queue.Source, d governor.Decision, err error) {
	args := []any{"queue", string(p.queue), "from", s.MaxConcurrency, "to", d.Want, "reason", string(d.Reason)}
	if err != nil {
		o.deps.Trail.Log.WarnContext(ctx, "governor_move_failed", append(args, "error", err)...)
		return
	}
	o.deps.Trail.Log.InfoContext(ctx, "governor_moved", args...)
}

// limits is what the gate knows of every target of every chain, by the target's name.
type limits struct {
	states map[string]capacity.State
	chains map[string][]llmq.Target // by model; see [InForce]
	err    error                    // none could be read
}

// limits reads them in one round trip.
func (o *Operator) limits(ctx context.Context) limits {
	var b luascript.Batch
	asked := map[string]luascript.Pending[capacity.State]{}
	chains := o.InForce(ctx).Chains
	for _, m := range o.Catalogue.Models() {
		for _, t := range chains[m.Alias] {
			if asked[t.String()] == nil {
				asked[t.String()] = o.Capacity.Peek(&b, t)
			}
		}
	}
	if err := b.Run(ctx, o.Valkey); err != nil {
		return limits{err: err}
	}
	out := limits{states: map[string]capacity.State{}, chains: chains}
	for name, answer := range asked {
		st, err := answer()
		if err != nil {
			return limits{err: err}
		}
		out.states[name] = st
	}
	return out
}

// facts is what a source's decision is made from.
func (o *Operator) facts(p place, s queue.Source, lim limits) governor.Facts {
	rule := o.deps.Lanes[p.lane]
	f := governor.Facts{
		Batch: cmp.Or(s.BatchSize, rule.BatchSize, 1), Ceiling: rule.MaxConcurrency, Now: s.MaxConcurrency,
		Steady: s.State == queue.SourceEnabled || s.State == queue.SourceDisabled, Paused: s.State.Paused(), Blind: lim.err != nil,
	}
	for _, t := range lim.chains[p.model.Alias] {
		st, known := lim.states[t.String()]
		if !known || st.Quarantine > 0 {
			f.Blind = true
			continue
		}
		f.Chain = append(f.Chain, target(t, st, p.lane))
	}
	return f
}

// target is a target's headroom for a lane. Neither is a rate among it: calls that wait for a budget wait in the
// queue by their visibility, whatever the number of invocations.
func target(t llmq.Target, st capacity.State, lane llmq.Lane) governor.Target {
	limit := st.Learned.Slots.Limit
	if limit <= 0 { // nothing bounds it
		limit = math.Inf(1)
	}
	for _, most := range []int{t.MaxConcurrency, t.Shared.MaxConcurrency} {
		if most > 0 {
			limit = min(limit, float64(most))
		}
	}
	return governor.Target{
		Limit: limit, Share: cmp.Or(t.Limits.BackgroundShare, defaultShare), Lane: t.Limits.Lanes[lane],
		Closed: st.Breaker == capacity.BreakerOpen || st.Learned.ClosedFor > 0,
	}
}
