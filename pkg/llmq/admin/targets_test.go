package admin

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// operator is the verbs of targets beside those of live settings.
func (r *liveRig) operator(t *testing.T) *Operator {
	t.Helper()
	a := New(Deps{Catalogue: r.InForce(t.Context()).Catalogue, Capacity: capacity.New(r.space), Valkey: r.valkey, InForce: r.InForce})
	var b luascript.Batch
	a.Capacity.Preset(&b)
	if err := b.Run(t.Context(), r.valkey); err != nil {
		t.Fatal(err)
	}
	return NewOperator(a, OperatorDeps{Trail: Trail{slog.New(slog.NewJSONHandler(r.log, nil)), &r.records}})
}

// failing makes n calls of a target that fail.
func failing(t *testing.T, o *Operator, alias, name string, n int) {
	t.Helper()
	target, there := o.InForce(t.Context()).Catalogue.Target(alias, name)
	if !there {
		t.Fatalf("no target %s@%s", alias, name)
	}
	for range n {
		var b luascript.Batch
		admitted := o.Capacity.Admit(&b, capacity.Ask{Target: target, Lane: llmq.LaneRT, CallID: llmq.NewID()})
		if err := b.Run(t.Context(), o.Valkey); err != nil {
			t.Fatal(err)
		}
		a, err := admitted()
		if err != nil || !a.Granted {
			return // its breaker is open
		}
		var s luascript.Batch
		o.Capacity.Settle(&s, a.Slot, capacity.Outcome{Ending: capacity.Failed, Broken: true})
		if err := s.Run(t.Context(), o.Valkey); err != nil {
			t.Fatal(err)
		}
	}
}

// E5: breakers and limits are shown and reset by target or by model; what was reset is logged with who did it.
func TestTargets_AreShownAndReset(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t)
	o := r.operator(t)
	failing(t, o, "a", "x", 50)
	shown, err := o.Breakers(t.Context(), TargetRequest{Model: "a"})
	if err != nil || len(shown) != 2 || shown[0].Target != "a@x" || shown[0].Breaker != capacity.BreakerOpen || shown[0].OpenForMS <= 0 || shown[1].Breaker != capacity.BreakerClosed {
		t.Fatalf("breakers: %+v %v", shown, err)
	}
	if all, err := o.Limiter(t.Context(), TargetRequest{}); err != nil || len(all) != 3 || all[0].Ended[capacity.Failed] == 0 {
		t.Errorf("all: %+v %v", all, err)
	}
	if one, err := o.Limiter(t.Context(), TargetRequest{Model: "a", Target: "y"}); err != nil || len(one) != 1 || one[0].Target != "a@y" {
		t.Errorf("one: %+v %v", one, err)
	}
	done, err := o.ResetBreaker(t.Context(), "ops", TargetRequest{Model: "a"})
	if diff := cmp.Diff([]string{"a@x"}, done.Changed); err != nil || diff != "" || len(done.Targets) != 2 {
		t.Errorf("reset: %+v %v", done, err)
	}
	if shown, err = o.Breakers(t.Context(), TargetRequest{Model: "a", Target: "x"}); err != nil || shown[0].Breaker != capacity.BreakerClosed {
		t.Errorf("after it: %+v %v", shown, err)
	}
	done, err = o.ResetLimiter(t.Context(), "ops", TargetRequest{Model: "a", Target: "x"})
	if err != nil || len(done.Changed) != 1 || len(done.Targets) != 1 {
		t.Errorf("reset of the limiter: %+v %v", done, err)
	}
	if said := r.log.String(); !strings.Contains(said, `"verb":"breaker reset"`) || !strings.Contains(said, `"verb":"limiter reset"`) || !strings.Contains(said, `"by":"ops"`) {
		t.Errorf("logged %s", said)
	}
}

// E5: a name that there is not is refused, with the nearest that there is.
func TestTargets_UnknownNamesAreRefused(t *testing.T) {
	t.Parallel()
	o := newLiveRig(t).operator(t)
	for _, tc := range []struct {
		r    TargetRequest
		want string
	}{
		{TargetRequest{}, "model is missing"},
		{TargetRequest{Model: "aa"}, `no model "aa" is configured; did you mean a?`},
		{TargetRequest{Model: "a", Target: "xx"}, `a has no target "xx"; did you mean x?`},
	} {
		if _, err := o.ResetBreaker(t.Context(), "ops", tc.r); err == nil || !strings.Contains(llmq.AsError(err).Message, tc.want) {
			t.Errorf("%+v: %v, want %s", tc.r, err, tc.want)
		}
	}
	if _, err := o.Limiter(t.Context(), TargetRequest{Model: "nope"}); err == nil {
		t.Error("the limits of an unknown model are shown")
	}
}

// E5, E6: where calls go when their first target fails is set live, tried without a call, and taken back.
func TestFallback_IsSetTriedAndReset(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t)
	o := r.operator(t)
	chain := []config.FallbackModel{{Model: "b", RequireHeadroom: true}}
	done, err := r.SetFallback(t.Context(), "ops", FallbackRequest{Model: "a", Chain: &chain, SkipTargets: &[]string{"y"}})
	if err != nil || done.Revision != 1 || len(done.Changed) != 2 {
		t.Fatalf("set: %+v %v", done, err)
	}
	v, err := r.Fallback(t.Context())
	want := ModelFallback{Model: "a", Chain: chain, SkipTargets: []string{"y"}, Live: true, Steps: []string{"a@x", "b@z"}}
	if err != nil || v.Revision != 1 {
		t.Fatalf("get: %+v %v", v, err)
	}
	if diff := cmp.Diff(want, v.Models[0]); diff != "" {
		t.Errorf("the chain of a (-want +got):\n%s", diff)
	}
	if v.Models[1].Live || len(v.Models[1].Steps) != 1 {
		t.Errorf("the chain of b is %+v", v.Models[1])
	}
	if got, err := o.TestFallback(t.Context(), "ops", FallbackTest{Model: "a"}); err != nil || got.Takes != "a@x" {
		t.Errorf("tried: %+v %v", got, err)
	}
	failing(t, o, "a", "x", 50)
	got, err := o.TestFallback(t.Context(), "ops", FallbackTest{Model: "a"})
	if err != nil || got.Takes != "b@z" || len(got.Steps) != 2 || !strings.HasPrefix(got.Steps[0].Passed, "its breaker is open for ") {
		t.Errorf("tried with a breaker open: %+v %v", got, err)
	}
	if done, err = r.ResetFallback(t.Context(), "ops", ResetFallbackRequest{Model: "a"}); err != nil || len(done.Changed) != 2 {
		t.Errorf("reset: %+v %v", done, err)
	}
	if v, err = r.Fallback(t.Context()); err != nil || v.Models[0].Live || len(v.Models[0].Steps) != 2 {
		t.Errorf("after it: %+v %v", v, err)
	}
}

// E13: several models are set at once, and merge with what is set; replace makes them all that is set live.
func TestFallback_OfSeveralModelsMergesOrReplaces(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t)
	to := func(alias string) *[]config.FallbackModel { return &[]config.FallbackModel{{Model: alias}} }
	set := func(ask FallbackRequest, a, b int, skipped int) {
		t.Helper()
		if _, err := r.SetFallback(t.Context(), "ops", ask); err != nil {
			t.Fatalf("%+v: %v", ask, err)
		}
		v, err := r.Fallback(t.Context())
		if err != nil || len(v.Models[0].Chain) != a || len(v.Models[1].Chain) != b || len(v.Models[0].SkipTargets) != skipped {
			t.Errorf("after %+v: %+v %v", ask, v.Models, err)
		}
	}
	set(FallbackRequest{Models: map[string]FallbackRules{"a": {Chain: to("b"), SkipTargets: &[]string{"y"}}}}, 1, 0, 1)
	set(FallbackRequest{Models: map[string]FallbackRules{"b": {Chain: to("a")}}}, 1, 1, 1)
	set(FallbackRequest{Models: map[string]FallbackRules{"b": {Chain: to("a")}}, Replace: true}, 0, 1, 0)
	set(FallbackRequest{Models: map[string]FallbackRules{}, Replace: true}, 0, 0, 0)
}

// E6: a chain that can't be is refused, and nothing is written.
func TestFallback_FaultsAreRefused(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t)
	to := func(alias string) *[]config.FallbackModel { return &[]config.FallbackModel{{Model: alias}} }
	for _, tc := range []struct {
		r    FallbackRequest
		want string
	}{
		{FallbackRequest{}, "model is missing"},
		{FallbackRequest{Model: "a"}, "chain and skip_targets of a are both missing"},
		{FallbackRequest{Models: map[string]FallbackRules{}}, "model is missing"},
		{FallbackRequest{Models: map[string]FallbackRules{"a": {Chain: to("b")}, "b": {}}}, "chain and skip_targets of b are both missing"},
		{FallbackRequest{Model: "a", Models: map[string]FallbackRules{"a": {Chain: to("b")}}}, "both given"},
		{FallbackRequest{Model: "a", Chain: to("b"), Replace: true}, "replace goes with models"},
		{FallbackRequest{Models: map[string]FallbackRules{"a": {Chain: to("b")}, "c": {Chain: to("b")}}}, `no model is named "c"`},
		{FallbackRequest{Model: "c", Chain: to("b")}, `no model is named "c"`},
		{FallbackRequest{Model: "a", Chain: to("nope")}, "nope"},
		{FallbackRequest{Model: "a", Chain: to("a")}, "a"},
		{FallbackRequest{Model: "a", SkipTargets: &[]string{"q"}}, "q"},
		{FallbackRequest{Model: "a", SkipTargets: &[]string{"x", "y"}}, "target"},
	} {
		if _, err := r.SetFallback(t.Context(), "ops", tc.r); err == nil || !strings.Contains(llmq.AsError(err).Message, tc.want) {
			t.Errorf("%+v: %v, want %s", tc.r, err, tc.want)
		} else {
			t.Log(llmq.AsError(err).Message)
		}
	}
	if _, err := r.ResetFallback(t.Context(), "ops", ResetFallbackRequest{Model: "aa"}); err == nil || !strings.Contains(llmq.AsError(err).Message, "did you mean a?") {
		t.Errorf("reset of an unknown model: %v", err)
	}
	if v, err := r.Fallback(t.Context()); err != nil || v.Revision != 0 {
		t.Errorf("something was written: %+v %v", v, err)
	}
}

// A target says why it would not take a call.
func TestTargetStatus_SaysWhyItPasses(t *testing.T) {
	t.Parallel()
	zero := 0
	for want, row := range map[string]TargetStatus{
		"":                              {TargetUse: &TargetUse{Limit: 2, InUse: 1}},
		"its state can't be read: down": {Error: "down"},
		"the state store is new, and nothing is admitted for 9s": {TargetUse: &TargetUse{QuarantineMS: (9 * time.Second).Milliseconds()}},
		"no slot is free":                          {TargetUse: &TargetUse{Limit: 2, InUse: 2}},
		"others wait for its slots":                {TargetUse: &TargetUse{Limit: 2, Waiting: 1}},
		"its budget of calls or tokens is used up": {TargetUse: &TargetUse{Budgets: Budgets{TPMLeft: &zero}}},
		"its breaker is open for 1s":               {TargetUse: &TargetUse{Breaker: capacity.BreakerOpen, OpenForMS: 400}},
	} {
		if got := row.passed(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
