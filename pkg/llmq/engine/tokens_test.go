package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// meter is a provider that knows what it reserves and tells what it charged. It counts who is there at once.
type meter struct {
	load provider.Load
	call act

	mu        sync.Mutex // guards now and peak
	now, peak int
}

func (m *meter) Measure(provider.Request) provider.Load { return m.load }

func (m *meter) Call(ctx context.Context, req provider.Request) (*provider.Response, error) {
	m.mu.Lock()
	m.now++
	m.peak = max(m.peak, m.now)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.now--
		m.mu.Unlock()
	}()
	return m.call(ctx, req)
}

func charges(u provider.Usage, after time.Duration) act {
	return func(ctx context.Context, req provider.Request) (*provider.Response, error) {
		resp, err := answers("{}", after)(ctx, req)
		if resp != nil {
			resp.Usage = &u
		}
		return resp, err
	}
}

// budgeted is a target with a fixed budget of tokens at the provider "meter".
func budgeted(name string, tpm int) llmq.Target {
	t := place("m", name)
	t.Provider, t.MaxConcurrency, t.Limits.Rates = "meter", 0, llmq.Rates{TPM: tpm, Fixed: true}
	return t
}

// H13, in two processes: of five calls at once no more than two fit; those that are refused leave no trace; what is used in the end is
// what was reported.
func TestRun_CallsAtOnceDontSlipThroughATokenBudget(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		m := &meter{load: provider.Load{InputChars: 40, MaxOutput: 390}, call: charges(provider.Usage{Input: 12, Output: 38}, 2*time.Second)}
		r.wires = map[string]provider.Provider{"meter": m}
		target := budgeted("t", 1000)
		r.chainOf(fallback.Rules{}, target)
		r.stops = r.newStops()
		engines := []*engine.Engine{r.engine, r.newEngine("w2", 30*time.Second)}
		impatient := []*engine.Engine{r.newEngine("w1", 0), r.newEngine("w2", 0)}
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				req := request()
				req.ID = fmt.Sprint("first-", i)
				wantVerdict(t, engines[i%2].Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
			})
		}
		time.Sleep(time.Second)
		if st := r.peek(target); st.InUse != 2 || st.TokensUsed != 800 {
			t.Errorf("%d calls run on %d tokens, want 2 on 800", st.InUse, st.TokensUsed)
		}
		for i := range 20 {
			wg.Go(func() {
				req := request()
				req.ID = fmt.Sprint("refused-", i)
				wantVerdict(t, impatient[i%2].Run(t.Context(), engine.Call{Request: req}), engine.Stored, "abandoned")
				r.wantStored(req, llmq.CodeRateLimited)
			})
		}
		wg.Wait()
		st := r.peek(target)
		if st.TokensUsed != 5*50 || st.InUse != 0 || st.Waiting != 0 || m.peak != 2 {
			t.Errorf("%d tokens are used, %d slots held, %d wait, %d ran at once; want 250, 0, 0, 2", st.TokensUsed, st.InUse, st.Waiting, m.peak)
		}
	})
}

// fate is what becomes of a call, and what it is charged in the end.
type fate struct {
	name string
	play act
	cost func(reserved int, u provider.Usage) int
}

func fates(u provider.Usage) []fate {
	none := func(int, provider.Usage) int { return 0 }
	all := func(reserved int, _ provider.Usage) int { return reserved }
	used := func(_ int, u provider.Usage) int { return u.Input + u.CacheWrite + 5*u.Output }
	return []fate{
		{"answered", charges(u, 2*time.Second), used},
		{"answered without a bill", answers("{}", time.Second), all},
		{"throttled", throttles(0), none},
		{"broken", breaks(), none},
		{"rejected", fails(provider.Error{Class: provider.CallFatal, Code: llmq.CodeProviderRejected, Status: 400}), none},
		{"not sent", fails(provider.Error{Class: provider.TargetFatal, Code: llmq.CodeProviderAuth, Unsent: true}), none},
		{"lost", fails(provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Err: errors.New("reset")}), all},
		{"garbled", fails(provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 200}), all},
		{"hung", answers("{}", time.Hour), all},
		{"cancelled", answers("{}", 10*time.Minute), all},
	}
}

// C13, DS9, DS35: on any interleaving of calls of all lanes, what is used of a budget once all have ended is what each was
// charged: the bill of what was answered, nothing for what the provider reported or never got, all that was reserved
// where nobody knows.
func TestRun_BudgetHoldsWhatWasReported(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		type call struct {
			lane  llmq.Lane
			load  provider.Load
			usage provider.Usage
			fate  int
			begin time.Duration
		}
		tpm := rapid.IntRange(1500, 20_000).Draw(rt, "tpm")
		share := rapid.SampledFrom([]float64{0, 0.2}).Draw(rt, "rt share")
		calls := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) call {
			return call{
				lane: rapid.SampledFrom(llmq.Lanes()).Draw(rt, "lane"), fate: rapid.IntRange(0, 9).Draw(rt, "fate"),
				load:  provider.Load{InputChars: rapid.IntRange(0, 2000).Draw(rt, "chars"), MaxOutput: rapid.IntRange(1, 1500).Draw(rt, "most")},
				usage: provider.Usage{Input: rapid.IntRange(0, 600).Draw(rt, "input"), CacheWrite: rapid.IntRange(0, 50).Draw(rt, "written"), Output: rapid.IntRange(1, 200).Draw(rt, "output")},
				begin: time.Duration(rapid.IntRange(0, 5000).Draw(rt, "ms")) * time.Millisecond,
			}
		}), 1, 12).Draw(rt, "calls")
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, luatest.Pipe(t, llmqtest.NewMiniredis(t)), nil)
			r.attempt = 5 * time.Second
			r.policy.Attempts, r.policy.ThrottleAttempts = 1, 1
			target := budgeted("t", tpm)
			target.Limits.Rates.RTShare, target.Tokens.Burndown = share, 5
			target.Limits.Breaker.Threshold = 1000
			var (
				mu   sync.Mutex // guards want
				want int
				wg   sync.WaitGroup
			)
			for i, c := range calls {
				f := fates(c.usage)[c.fate]
				name := fmt.Sprint("meter-", i)
				r.wires = map[string]provider.Provider{"meter": &meter{load: c.load, call: func(ctx context.Context, req provider.Request) (*provider.Response, error) {
					mu.Lock()
					want += f.cost(capacity.Reserve(c.load.InputChars, c.load.MaxOutput, false), c.usage)
					mu.Unlock()
					return f.play(ctx, req)
				}}}
				r.chainOf(fallback.Rules{}, target)
				e := r.newEngine(name, 3*time.Second)
				wg.Go(func() {
					time.Sleep(c.begin)
					req := request()
					req.ID, req.Lane, req.Deadline = name, c.lane, time.Now().Add(20*time.Second)
					if f.name == "cancelled" {
						wg.Go(func() {
							time.Sleep(4 * time.Second)
							r.cancel(req)
						})
					}
					e.Run(t.Context(), engine.Call{Request: req})
				})
			}
			wg.Wait()
			time.Sleep(time.Second)
			st := r.peek(target)
			if st.TokensUsed != want || st.InUse != 0 || st.Waiting != 0 {
				rt.Errorf("%d tokens are used, want %d; %d slots are held and %d wait", st.TokensUsed, want, st.InUse, st.Waiting)
			}
		})
	})
}

// What can never be granted is no failure of the store: it ends its step, and the request where no other is left.
func TestRun_WhatCanNeverBeGrantedEndsItsStep(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(t *llmq.Target)
		lane   llmq.Lane
		code   llmq.Code
	}{
		"above the burst, rt":   {func(t *llmq.Target) { t.Limits.Rates.TPM = 300 }, llmq.LaneRT, llmq.CodeInvalidRequest},
		"above the burst, bulk": {func(t *llmq.Target) { t.Limits.Rates.TPM = 300 }, llmq.LaneBulk, llmq.CodeInvalidRequest},
		"no rate for the lane":  {func(t *llmq.Target) { t.Limits.Rates.RTShare = 1 }, llmq.LaneBG, llmq.CodeConfiguration},
	} {
		for _, spares := range []int{0, 1} {
			t.Run(fmt.Sprint(name, ", ", spares, " more targets"), func(t *testing.T) {
				t.Parallel()
				bubble(t, nil, func(t *testing.T, r *rig) {
					m := &meter{load: provider.Load{InputChars: 40, MaxOutput: 390}, call: charges(provider.Usage{Input: 1}, 0)}
					r.wires = map[string]provider.Provider{"meter": m}
					targets := []llmq.Target{budgeted("never", 1000), budgeted("spare", 1000)}
					tc.change(&targets[0])
					r.chainOf(fallback.Rules{}, targets[:1+spares]...)
					req, start := request(), time.Now()
					req.Lane = tc.lane
					v := r.engine.Run(t.Context(), engine.Call{Request: req})
					if time.Since(start) != 0 {
						t.Errorf("took %v", time.Since(start))
					}
					if spares == 0 {
						wantVerdict(t, v, engine.Stored, "abandoned")
						if e := r.wantStored(req, tc.code); m.peak != 0 || e.Meta.Attempts != 0 || e.Meta.Target != "never" {
							t.Errorf("%d attempts, stored %+v", m.peak, e)
						}
					} else if wantVerdict(t, v, engine.Stored, "ok"); r.stored(req).Reply.Meta.Target != "spare" {
						t.Errorf("meta %+v", r.stored(req).Reply.Meta)
					}
					for _, target := range targets {
						if st := r.peek(target); st.InUse != 0 || st.Waiting != 0 {
							t.Errorf("%s: %d slots are held and %d wait", target, st.InUse, st.Waiting)
						}
					}
				})
			})
		}
	}
}
