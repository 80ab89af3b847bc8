package admin

import (
	"context"
	"slices"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// TargetRequest names targets.
type TargetRequest struct {
	Model  string `json:"model"`
	Target string `json:"target"` // by its name; left out: all of the model's
}

// BreakerStatus is a target's breaker. Error says why it could not be read; the row then has no more.
type BreakerStatus struct {
	Target    string                `json:"target"` // alias@target
	Breaker   capacity.BreakerState `json:"breaker,omitempty"`
	OpenForMS int64                 `json:"open_for_ms,omitempty"`
	Error     string                `json:"error,omitempty"`
}

// Limiter shows what is known of the limits of targets: of all, of a model's, or of one. An unknown name is refused.
func (a *Admin) Limiter(ctx context.Context, r TargetRequest) ([]TargetStatus, error) {
	var chosen []llmq.Target
	if r != (TargetRequest{}) {
		var err error
		if chosen, err = a.pickTargets(r); err != nil {
			return nil, err
		}
	}
	rows := a.targets(ctx)
	return slices.DeleteFunc(rows, func(row TargetStatus) bool {
		return chosen != nil && !slices.ContainsFunc(chosen, func(t llmq.Target) bool { return t.String() == row.Target })
	}), nil
}

// Breakers shows their breakers.
func (a *Admin) Breakers(ctx context.Context, r TargetRequest) ([]BreakerStatus, error) {
	rows, err := a.Limiter(ctx, r)
	if err != nil {
		return nil, err
	}
	out := []BreakerStatus{}
	for _, row := range rows {
		b := BreakerStatus{Target: row.Target, Error: row.Error}
		if row.TargetUse != nil {
			b.Breaker, b.OpenForMS = row.Breaker, row.OpenForMS
		}
		out = append(out, b)
	}
	return out, nil
}

// pickTargets are the targets that a verb names.
func (a *Admin) pickTargets(r TargetRequest) ([]llmq.Target, error) {
	if r.Model == "" {
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "model is missing; name a configured model by its alias").At("model")
	}
	var aliases []string
	for _, m := range a.Catalogue.Models() {
		if m.Alias != r.Model {
			aliases = append(aliases, m.Alias)
			continue
		}
		if r.Target == "" {
			return m.Targets, nil
		}
		var names []string
		for _, t := range m.Targets {
			if t.Name == r.Target {
				return []llmq.Target{t}, nil
			}
			names = append(names, t.Name)
		}
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "%s has no target %q%s", m.Alias, llmq.Clip(r.Target, 60), near(r.Target, names)).At("target")
	}
	return nil, llmq.Errorf(llmq.CodeModelNotFound, "no model %q is configured%s", llmq.Clip(r.Model, 80), near(r.Model, aliases)).At("model")
}

// Forgotten says what a reset has found.
type Forgotten struct {
	Targets []string `json:"targets"` // whose state is as new
	Changed []string `json:"changed"` // those of them that had any
	Note    string   `json:"note"`
}

// ResetLimiter has targets learn their limits anew. Calls that run keep their slots.
func (o *Operator) ResetLimiter(ctx context.Context, by string, r TargetRequest) (Forgotten, error) {
	out, err := o.forget(ctx, by, "limiter reset", r, o.Capacity.ForgetLimits)
	out.Note = "limits are learned anew, from limiter_initial"
	return out, err
}

// ResetBreaker closes the breakers of targets.
func (o *Operator) ResetBreaker(ctx context.Context, by string, r TargetRequest) (Forgotten, error) {
	out, err := o.forget(ctx, by, "breaker reset", r, o.Capacity.ForgetBreaker)
	out.Note = "breakers are closed, with nothing counted"
	return out, err
}

func (o *Operator) forget(ctx context.Context, by, verb string, r TargetRequest, what func(*luascript.Batch, llmq.Target) luascript.Pending[bool]) (out Forgotten, err error) {
	d := deed{by: by, verb: verb}
	defer func() {
		d.args = []any{"model", llmq.Clip(r.Model, 80), "target", llmq.Clip(r.Target, 80), "changed", out.Changed}
		err = o.deps.Trail.record(ctx, d, err)
	}()
	chosen, err := o.pickTargets(r)
	if err != nil {
		return Forgotten{}, err
	}
	if d.before, err = o.Limiter(ctx, r); err != nil {
		return Forgotten{}, err
	}
	var b luascript.Batch
	var told []luascript.Pending[bool]
	for _, t := range chosen {
		told = append(told, what(&b, t))
	}
	if err := b.Run(ctx, o.Valkey); err != nil {
		return Forgotten{}, err
	}
	out = Forgotten{Targets: []string{}, Changed: []string{}}
	for i, t := range chosen {
		had, err := told[i]()
		if err != nil {
			return out, err
		}
		if out.Targets = append(out.Targets, t.String()); had {
			out.Changed = append(out.Changed, t.String())
		}
	}
	return out, nil
}
