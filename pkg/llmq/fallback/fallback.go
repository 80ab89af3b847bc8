// Package fallback orders the places that may serve a request: the targets of its model,
// then those of the models that stand in for it. It is pure: it looks at no target and
// keeps no state (FEATURES D7).
package fallback

import (
	"errors"
	"slices"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// MostSteps bounds a chain. Each step may be tried several times, so a longer one
// would outlast every deadline.
const MostSteps = 8

// Model is one that stands in for another.
type Model struct {
	Alias           string
	RequireHeadroom bool // only where a slot is free at once: what stands in for others has callers of its own
}

// Rules say where requests go when their first target fails. The zero value knows no
// other models, and skips no target.
type Rules struct {
	Models      map[string][]Model  // by alias: which models stand in for it, in order; not theirs in turn
	SkipTargets map[string][]string // by alias: names of targets that its chains leave out
}

// Step is one place to try.
type Step struct {
	Target          llmq.Target
	RequireHeadroom bool // pass it by where no slot is free at once
}

// Ask is what decides a request's chain.
type Ask struct {
	Model  llmq.ModelRef
	Op     llmq.Op
	Policy llmq.FallbackPolicy
}

// Chain lists the steps for a request, at least one and at most [MostSteps], none twice.
//
// A reference that pins a target gets that target and no other. Policy chain goes on to the
// models that stand in, where they speak the request's wire; the policy target stays with its model. So
// do embeddings, whose vectors mean nothing beside another model's, and what is sent to be invoked: its body is the
// model's own, and may ask for vectors too.
//
// may says of a target whether the request's key may use it; what it may not is left out. It is
// asked once for each target that would be a step.
//
// The error is that of [llmq.Catalogue.Resolve]: there is nowhere to go at all. A model whose
// targets are all skipped has those of the models that stand in, else [llmq.CodeModelNotFound].
// A key that may use no step is [llmq.CodeForbidden].
func (r Rules) Chain(c llmq.Catalogue, ask Ask, may func(llmq.Target) bool) ([]Step, error) {
	steps, err := r.steps(c, ask)
	if err != nil {
		return nil, err
	}
	steps = slices.DeleteFunc(steps, func(s Step) bool { return !may(s.Target) })
	if len(steps) == 0 {
		return nil, llmq.Errorf(llmq.CodeForbidden, "the key may use no target of model %q", llmq.Clip(ask.Model.String(), 80)).At("model")
	}
	return steps[:min(len(steps), MostSteps)], nil
}

// steps is the chain of whoever may use everything.
func (r Rules) steps(c llmq.Catalogue, ask Ask) ([]Step, error) {
	model, targets, err := c.Resolve(ask.Model, ask.Op.Wire())
	if err != nil {
		return nil, err
	}
	if ask.Model.Target != "" {
		return []Step{{Target: targets[0]}}, nil
	}
	steps := r.add(nil, targets, false)
	if ask.Policy == llmq.FallbackChain && movable(ask.Op) {
		for _, next := range r.Models[model.Alias] {
			other, targets, err := c.Resolve(llmq.ModelRef{Alias: next.Alias}, ask.Op.Wire())
			if errors.Is(err, llmq.CodeWrongWire) && !share(model.Wires(), other.Wires()) {
				return nil, llmq.Errorf(llmq.CodeConfiguration, "model %q can't stand in for %q: no wire is common to both", next.Alias, model.Alias)
			}
			if err != nil {
				continue // it is gone, or serves the other wire that both speak: the chain does without it
			}
			steps = r.add(steps, targets, next.RequireHeadroom)
		}
	}
	if len(steps) == 0 {
		return nil, llmq.Errorf(llmq.CodeModelNotFound, "every target of model %q is set aside", ask.Model).At("model")
	}
	return steps, nil
}

// movable reports whether another model can take what an op asks for.
func movable(op llmq.Op) bool { return op != llmq.OpEmbeddings && op.Wire() != llmq.WireInvoke }

// share reports whether a wire is in both on which calls move from model to model.
func share(a, b []llmq.Wire) bool {
	return slices.ContainsFunc(a, func(w llmq.Wire) bool { return w != llmq.WireInvoke && slices.Contains(b, w) })
}

// add appends the targets that are neither skipped nor there already.
func (r Rules) add(steps []Step, targets []llmq.Target, headroom bool) []Step {
	for _, t := range targets {
		there := func(s Step) bool { return s.Target.Model == t.Model && s.Target.Name == t.Name }
		if slices.Contains(r.SkipTargets[t.Model], t.Name) || slices.ContainsFunc(steps, there) {
			continue
		}
		steps = append(steps, Step{Target: t, RequireHeadroom: headroom})
	}
	return steps
}
