package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/forecast"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// foresee leaves a snapshot of every model whose queues can be read (FEATURES A16), and returns of how many. One that can't be
// read keeps its last, until that is too old to be used.
func (o *Operator) foresee(ctx context.Context, lim limits, byWorker map[string]listed) (int, error) {
	models := o.Catalogue.Models()
	depths := o.depths(ctx)
	o.gaugeDepths(depths)
	var reads luascript.Batch
	recalls := make([]luascript.Pending[forecast.Memory], len(models))
	for i, m := range models {
		recalls[i] = o.deps.Forecast.Recall(&reads, m.Alias)
	}
	if err := reads.Run(ctx, o.Valkey); err != nil {
		return 0, err
	}
	now := time.Now()
	var writes luascript.Batch
	var kept []luascript.Pending[struct{}]
	var errs []error
	for i, m := range models {
		memory, err := recalls[i]()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		memory = memory.Learn(now, tallies(m, lim))
		snap := forecast.Snapshot{TakenMS: now.UnixMilli(), Waiting: map[llmq.Lane]int{}, Rates: memory.Rates(room(m, lim))}
		for _, l := range m.Lanes {
			q := o.Names.Model(m.Alias, l)
			d, read := depths[q]
			if !read {
				err = fmt.Errorf("the depth of %s can't be read", q)
				break
			}
			snap.Waiting[l] = max(0, d.Visible+d.Delayed+d.InFlight-running(m, l, lim))
			if s, err := byWorker[o.rule(place{m, l, q}).Worker].of(q); err == nil && s.State.Paused() {
				snap.Paused = append(snap.Paused, l)
			}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done, err := o.deps.Forecast.Keep(&writes, m.Alias, snap, memory)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		kept = append(kept, done)
	}
	if err := writes.Run(ctx, o.Valkey); err != nil {
		return 0, errors.Join(append(errs, err)...)
	}
	n := 0
	for _, done := range kept {
		if _, err := done(); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// depths reads every queue's depth; of one that can't be read there is none.
func (o *Operator) depths(ctx context.Context) map[queue.Name]queue.Depth {
	places := o.places()
	found := make([]*queue.Depth, len(places))
	var wg sync.WaitGroup
	slots := make(chan struct{}, readers)
	for i, p := range places {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if d, err := o.deps.Queue.Depth(ctx, p.queue); err == nil {
				found[i] = &d
			}
		})
	}
	wg.Wait()
	all := map[queue.Name]queue.Depth{}
	for i, p := range places {
		if found[i] != nil {
			all[p.queue] = *found[i]
		}
	}
	return all
}

// tallies sums what a model's targets have ended. Calls that another model stood in for are counted there.
func tallies(m llmq.Model, lim limits) map[llmq.Lane]forecast.Tally {
	all := map[llmq.Lane]forecast.Tally{}
	for _, t := range m.Targets {
		for l, ran := range lim.states[t.String()].Ran {
			all[l] = forecast.Tally{Calls: all[l].Calls + ran.Calls, BusyMS: all[l].BusyMS + ran.Busy.Milliseconds()}
		}
	}
	return all
}

// running is how many of a lane's calls hold a slot: their messages are received and wait for nothing.
func running(m llmq.Model, l llmq.Lane, lim limits) int {
	n := 0
	for _, t := range m.Targets {
		n += lim.states[t.String()].Lanes[l]
	}
	return n
}

// room is that of the first target of a model's chain that is open: a background call waits there.
func room(m llmq.Model, lim limits) forecast.Room {
	for _, t := range lim.chains[m.Alias] {
		st, known := lim.states[t.String()]
		if !known {
			continue
		}
		g := target(t, st, llmq.LaneBG)
		if g.Closed {
			continue
		}
		r := forecast.Room{Slots: g.Limit, Share: g.Share, PerSecond: perSecond(t, st)}
		if math.IsInf(r.Slots, 1) {
			r.Slots = 0 // only what ended tells
		}
		if bg, bulk := t.Limits.Lanes[llmq.LaneBG], t.Limits.Lanes[llmq.LaneBulk]; bg > 0 && bulk > 0 && r.Slots > 0 {
			r.Share = min(r.Share, float64(bg+bulk)/r.Slots)
		}
		return r
	}
	return forecast.Room{}
}

// perSecond is how many calls may start at a target in a second, as learned or configured; 0 is no bound.
func perSecond(t llmq.Target, st capacity.State) float64 {
	least := 0.0
	for _, perMinute := range []float64{st.Learned.Starts.Limit, float64(t.Limits.Rates.RPM), float64(t.Shared.Rates.RPM)} {
		if perMinute > 0 {
			least = min(cmp.Or(least, math.Inf(1)), perMinute/60)
		}
	}
	return least
}
