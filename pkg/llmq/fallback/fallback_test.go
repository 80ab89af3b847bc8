package fallback_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
)

func model(alias string, targets ...string) llmq.Model {
	m := llmq.Model{Alias: alias, Lanes: llmq.Lanes()}
	for _, name := range targets {
		wires := []llmq.Wire{llmq.WireOpenAI}
		if strings.HasPrefix(name, "c-") {
			wires = []llmq.Wire{llmq.WireConverse}
		}
		m.Targets = append(m.Targets, llmq.Target{Model: alias, Name: name, Provider: "p", ModelID: alias + "-" + name, Wires: wires, MaxConcurrency: 1})
	}
	return m
}

func catalogue() llmq.Catalogue {
	return llmq.NewCatalogue([]llmq.Model{
		model("big", "home", "apac", "c-conv"), model("small", "home"), model("conv", "c-a"), model("mixed", "c-b", "b"),
	})
}

func write(steps []fallback.Step) string {
	var out []string
	for _, s := range steps {
		text := s.Target.String()
		if s.RequireHeadroom {
			text += "?"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// D7.
func TestChain_Table(t *testing.T) {
	t.Parallel()
	all := fallback.Rules{Models: map[string][]fallback.Model{
		"big":   {{Alias: "small", RequireHeadroom: true}, {Alias: "conv"}, {Alias: "mixed"}, {Alias: "gone"}, {Alias: "small"}, {Alias: "big"}},
		"small": {{Alias: "big"}},
	}}
	skipping := all
	skipping.SkipTargets = map[string][]string{"big": {"home"}, "mixed": {"b"}, "small": {"home"}, "conv": {"c-a"}}
	for _, tc := range []struct {
		name  string
		rules fallback.Rules
		ask   fallback.Ask
		want  string
	}{
		{"the model's targets on the wire", fallback.Rules{}, fallback.Ask{llmq.ModelRef{Alias: "big"}, llmq.OpChat, llmq.FallbackChain}, "big@home big@apac"},
		{"on another wire", fallback.Rules{}, fallback.Ask{llmq.ModelRef{Alias: "big"}, llmq.OpConverse, llmq.FallbackChain}, "big@c-conv"},
		{"then other models of the wire, each target once", all, fallback.Ask{llmq.ModelRef{Alias: "big"}, llmq.OpChat, llmq.FallbackChain}, "big@home big@apac small@home? mixed@b"},
		{"the same on converse", all, fallback.Ask{llmq.ModelRef{Alias: "big"}, llmq.OpConverse, llmq.FallbackChain}, "big@c-conv conv@c-a mixed@c-b"},
		{"a ring ends where it began, and no rule of another's is followed", all, fallback.Ask{llmq.ModelRef{Alias: "small"}, llmq.OpChat, llmq.FallbackChain}, "small@home big@home big@apac"},
		{"policy target keeps the model", all, fallback.Ask{llmq.ModelRef{Alias: "big"}, llmq.OpChat, llmq.FallbackTarget}, "big@home big@apac"},
		{"embeddings keep the model", all, fallback.Ask{llmq.ModelRef{Alias: "big"}, llmq.OpEmbeddings, llmq.FallbackChain}, "big@home big@apac"},
		{"a pin keeps the target", all, fallback.Ask{llmq.ModelRef{Alias: "big", Target: "apac"}, llmq.OpChat, llmq.FallbackChain}, "big@apac"},
		{"a provider's own id names its target", all, fallback.Ask{llmq.ModelRef{Alias: "conv-c-a"}, llmq.OpConverse, llmq.FallbackChain}, "conv@c-a"},
		{"skipped targets are left out", skipping, fallback.Ask{llmq.ModelRef{Alias: "big"}, llmq.OpChat, llmq.FallbackChain}, "big@apac"},
		{"a pin is served though it is skipped", skipping, fallback.Ask{llmq.ModelRef{Alias: "big", Target: "home"}, llmq.OpChat, llmq.FallbackChain}, "big@home"},
		{"all skipped, another model serves", skipping, fallback.Ask{llmq.ModelRef{Alias: "small"}, llmq.OpChat, llmq.FallbackChain}, "big@apac"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			steps, err := tc.rules.Chain(catalogue(), tc.ask, anything)
			if got := write(steps); err != nil || got != tc.want {
				t.Errorf("Chain = %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestChain_NowhereToGo(t *testing.T) {
	t.Parallel()
	rules := fallback.Rules{Models: map[string][]fallback.Model{"conv": {{Alias: "big"}}}, SkipTargets: map[string][]string{"small": {"home"}}}
	for _, tc := range []struct {
		ask  fallback.Ask
		want llmq.Code
	}{
		{fallback.Ask{llmq.ModelRef{Alias: "nope"}, llmq.OpChat, llmq.FallbackChain}, llmq.CodeModelNotFound},
		{fallback.Ask{llmq.ModelRef{Alias: "big", Target: "nope"}, llmq.OpChat, llmq.FallbackChain}, llmq.CodeModelNotFound},
		{fallback.Ask{llmq.ModelRef{Alias: "small"}, llmq.OpChat, llmq.FallbackChain}, llmq.CodeModelNotFound},
		// A wrong wire is told at once: what stands in is for failures, not for mistakes.
		{fallback.Ask{llmq.ModelRef{Alias: "conv"}, llmq.OpChat, llmq.FallbackChain}, llmq.CodeWrongWire},
	} {
		t.Run(fmt.Sprint(tc.ask.Model), func(t *testing.T) {
			t.Parallel()
			if steps, err := rules.Chain(catalogue(), tc.ask, anything); !errors.Is(err, tc.want) || steps != nil {
				t.Errorf("Chain = %q, %v; want %s", write(steps), err, tc.want)
			}
		})
	}
}

// A model that can't stand in for another on any wire is a mistake of the configuration; a request that asks for
// no other model is served all the same.
func TestChain_ModelWithoutCommonWireIsRefused(t *testing.T) {
	t.Parallel()
	rules := fallback.Rules{Models: map[string][]fallback.Model{"small": {{Alias: "big"}, {Alias: "conv"}}}}
	steps, err := rules.Chain(catalogue(), fallback.Ask{llmq.ModelRef{Alias: "small"}, llmq.OpChat, llmq.FallbackChain}, anything)
	if !errors.Is(err, llmq.CodeConfiguration) || steps != nil || !strings.Contains(err.Error(), `"conv"`) {
		t.Errorf("Chain = %q, %v; want an error that names conv", write(steps), err)
	}
	for _, ask := range []fallback.Ask{
		{llmq.ModelRef{Alias: "small"}, llmq.OpChat, llmq.FallbackTarget},
		{llmq.ModelRef{Alias: "small", Target: "home"}, llmq.OpChat, llmq.FallbackChain},
		{llmq.ModelRef{Alias: "small"}, llmq.OpEmbeddings, llmq.FallbackChain},
	} {
		if steps, err := rules.Chain(catalogue(), ask, anything); err != nil || write(steps) != "small@home" {
			t.Errorf("Chain(%+v) = %q, %v", ask, write(steps), err)
		}
	}
}

// D7: a chain is never empty, never too long, never names a place twice, never leaves the
// wire, and begins at home.
func TestChain_HoldsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		aliases := []string{"a", "b", "c", "d", "e"}
		var models []llmq.Model
		rules := fallback.Rules{Models: map[string][]fallback.Model{}, SkipTargets: map[string][]string{}}
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"t1", "t2", "t3", "c-1", "c-2"}), 1, 4, rapid.ID[string])
		for _, a := range aliases {
			models = append(models, model(a, names.Draw(rt, "targets of "+a)...))
			for _, next := range rapid.SliceOfN(rapid.SampledFrom(append(aliases, "gone")), 0, 5).Draw(rt, "next of "+a) {
				rules.Models[a] = append(rules.Models[a], fallback.Model{Alias: next, RequireHeadroom: rapid.Bool().Draw(rt, "headroom")})
			}
			rules.SkipTargets[a] = rapid.SliceOfN(rapid.SampledFrom([]string{"t1", "c-1"}), 0, 2).Draw(rt, "skipped of "+a)
		}
		ask := fallback.Ask{
			Model: llmq.ModelRef{Alias: rapid.SampledFrom(aliases).Draw(rt, "model")}, Op: rapid.SampledFrom(llmq.Ops()).Draw(rt, "op"),
			Policy: rapid.SampledFrom([]llmq.FallbackPolicy{llmq.FallbackChain, llmq.FallbackTarget}).Draw(rt, "policy"),
		}
		steps, err := rules.Chain(llmq.NewCatalogue(models), ask, anything)
		if err != nil {
			if steps != nil {
				rt.Fatalf("%v beside %v", steps, err)
			}
			return
		}
		if len(steps) == 0 || len(steps) > fallback.MostSteps {
			rt.Fatalf("%d steps", len(steps))
		}
		seen := map[string]bool{}
		for _, s := range steps {
			if seen[s.Target.String()] || !s.Target.Speaks(ask.Op.Wire()) {
				rt.Fatalf("%s twice or on another wire in %q", s.Target, write(steps))
			}
			seen[s.Target.String()] = true
			if s.Target.Model == ask.Model.Alias && s.RequireHeadroom {
				rt.Fatalf("the model itself needs headroom in %q", write(steps))
			}
			if s.Target.Model != ask.Model.Alias && (ask.Op == llmq.OpEmbeddings || ask.Policy == llmq.FallbackTarget) {
				rt.Fatalf("%+v leaves its model: %q", ask, write(steps))
			}
		}
	})
}

func anything(llmq.Target) bool { return true }

// KT4, SEC05: what the key may not use is left out of the chain, whole models and single targets; a key that may use
// none of it is refused. A pin is no way around.
func TestChain_LeavesOutWhatTheKeyMayNotUse(t *testing.T) {
	t.Parallel()
	rules := fallback.Rules{Models: map[string][]fallback.Model{"big": {{Alias: "small"}}}}
	for _, tc := range []struct {
		allowed llmq.ModelSet
		ask     string
		want    string
	}{
		{llmq.ModelSet{"big", "small"}, "big", "big@home big@apac small@home"},
		{llmq.ModelSet{"big"}, "big", "big@home big@apac"},
		{llmq.ModelSet{"big@apac"}, "big", "big@apac"},
		{llmq.ModelSet{"big@apac", "small"}, "big", "big@apac small@home"},
		{llmq.ModelSet{"small"}, "big@home", ""},
		{llmq.ModelSet{"big@apac"}, "big@home", ""},
		{llmq.ModelSet{"bi", "big@", "@home", "home"}, "big", ""},
		{nil, "big", ""},
	} {
		ref, err := llmq.ParseModelRef(tc.ask)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := rules.Chain(catalogue(), fallback.Ask{Model: ref, Op: llmq.OpChat, Policy: llmq.FallbackChain}, tc.allowed.Has)
		if write(steps) != tc.want || (tc.want == "") != errors.Is(err, llmq.CodeForbidden) {
			t.Errorf("%s with %q = %q, %v; want %q", tc.ask, tc.allowed, write(steps), err, tc.want)
		}
	}
}
