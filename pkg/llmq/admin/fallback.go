package admin

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// FallbackView is where calls go when their first target fails.
type FallbackView struct {
	Revision int             `json:"revision"`
	Models   []ModelFallback `json:"models"`
	Fault    string          `json:"fault,omitempty"` // why processes don't follow what is stored
}

// ModelFallback is that of a model.
type ModelFallback struct {
	Model       string                 `json:"model"`
	Chain       []config.FallbackModel `json:"chain"` // the models that stand in for it, in order
	SkipTargets []string               `json:"skip_targets"`
	Live        bool                   `json:"live"`  // any of it was set live
	Steps       []string               `json:"steps"` // the targets that this comes to, as alias@target, for a call on a wire that they all speak
}

// Fallback shows it for every model.
func (s *Settings) Fallback(ctx context.Context) (FallbackView, error) {
	st, err := s.deps.Store.Load(ctx)
	if err != nil {
		return FallbackView{}, err
	}
	merged, known, fault := s.merged(st)
	v := FallbackView{Revision: st.Revision, Models: []ModelFallback{}, Fault: fault}
	steps := chains(merged, merged.Catalogue())
	for _, m := range merged.Models {
		row := ModelFallback{Model: m.Alias, Chain: []config.FallbackModel{}, SkipTargets: []string{}, Steps: []string{}}
		row.Chain, row.SkipTargets = append(row.Chain, m.Fallback...), append(row.SkipTargets, m.SkipTargets...)
		_, chain := known.Chains[m.Alias]
		_, skip := known.SkipTargets[m.Alias]
		row.Live = chain || skip
		for _, t := range steps[m.Alias] {
			row.Steps = append(row.Steps, t.String())
		}
		v.Models = append(v.Models, row)
	}
	return v, nil
}

// FallbackRequest sets it for a model, or for several at once.
type FallbackRequest struct {
	Model       string                   `json:"model"`
	Chain       *[]config.FallbackModel  `json:"chain"`            // models that stand in, in order; [] is none; left out it stays
	SkipTargets *[]string                `json:"skip_targets"`     // names of targets that are left out; [] is none; left out it stays
	Models      map[string]FallbackRules `json:"models,omitzero"`  // by alias, in place of model, chain and skip_targets
	Replace     bool                     `json:"replace,omitzero"` // with models: what was set live of all other models is taken back
	Revision    *int                     `json:"revision"`
}

// FallbackRules are those of one model.
type FallbackRules struct {
	Chain       *[]config.FallbackModel `json:"chain,omitempty"`        // as in [FallbackRequest]
	SkipTargets *[]string               `json:"skip_targets,omitempty"` // likewise
}

// models are the rules by model, or what is wrong with the request.
func (r FallbackRequest) models() (map[string]FallbackRules, error) {
	const example = `such as {"chain": [{"model": "chat-b"}]}`
	several := r.Models != nil
	if !several && r.Model != "" {
		r.Models = map[string]FallbackRules{r.Model: {r.Chain, r.SkipTargets}}
	}
	switch {
	case several && (r.Model != "" || r.Chain != nil || r.SkipTargets != nil):
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "models and model are both given; give one").At("models")
	case r.Replace && !several:
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "replace goes with models, which then are all that is set live").At("replace")
	case len(r.Models) == 0 && !r.Replace:
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "model is missing; name a configured model by its alias").At("model")
	}
	for _, alias := range slices.Sorted(maps.Keys(r.Models)) { // sorted: the same request gets the same answer
		if m := r.Models[alias]; m.Chain == nil && m.SkipTargets == nil {
			where := "chain"
			if several {
				where = "models." + alias
			}
			return nil, llmq.Errorf(llmq.CodeInvalidRequest, "chain and skip_targets of %s are both missing; give one, %s", llmq.Clip(alias, 80), example).At(where)
		}
	}
	return r.Models, nil
}

// SetFallback sets where calls of models go when their first target fails, of all that are named or of none. What can't be is refused, with the
// nearest right name.
func (s *Settings) SetFallback(ctx context.Context, by string, r FallbackRequest) (Changed, error) {
	models, fault := r.models()
	return s.change(ctx, by, "fallback set", r.Revision, fault, func(o config.Overrides) (config.Overrides, error) {
		if r.Replace {
			o.Chains, o.SkipTargets = nil, nil
		}
		o.Chains, o.SkipTargets = cloned(o.Chains), cloned(o.SkipTargets)
		for alias, m := range models {
			if m.Chain != nil {
				o.Chains[alias] = *m.Chain
			}
			if m.SkipTargets != nil {
				o.SkipTargets[alias] = *m.SkipTargets
			}
		}
		return o, nil
	})
}

func cloned[V any](m map[string]V) map[string]V {
	out := map[string]V{}
	maps.Copy(out, m)
	return out
}

// ResetFallbackRequest takes live chains back.
type ResetFallbackRequest struct {
	Model    string `json:"model"` // left out: of all models
	Revision *int   `json:"revision"`
}

// ResetFallback takes live chains back: the file's hold then.
func (s *Settings) ResetFallback(ctx context.Context, by string, r ResetFallbackRequest) (Changed, error) {
	var fault error
	if r.Model != "" && !slices.Contains(s.aliases(), r.Model) {
		fault = llmq.Errorf(llmq.CodeModelNotFound, "no model %q is configured%s", llmq.Clip(r.Model, 80), near(r.Model, s.aliases())).At("model")
	}
	return s.change(ctx, by, "fallback reset", r.Revision, fault, func(o config.Overrides) (config.Overrides, error) {
		if r.Model == "" {
			o.Chains, o.SkipTargets = nil, nil
			return o, nil
		}
		o.Chains, o.SkipTargets = cloned(o.Chains), cloned(o.SkipTargets)
		delete(o.Chains, r.Model)
		delete(o.SkipTargets, r.Model)
		return o, nil
	})
}

func (s *Settings) aliases() []string {
	var all []string
	for _, m := range s.deps.Config.Models {
		all = append(all, m.Alias)
	}
	return all
}

// FallbackTest asks where a live call of a model would begin now. Nothing is called, and nothing is taken.
type FallbackTest struct {
	Model string `json:"model"`
}

// FallbackTested is what such a call would find.
type FallbackTested struct {
	Model string         `json:"model"`
	Takes string         `json:"takes"` // the target that would take it, as alias@target; "": none would at once
	Steps []FallbackStep `json:"steps"`
}

// FallbackStep is one of the chain's targets.
type FallbackStep struct {
	Target string `json:"target"`           // alias@target
	Passed string `json:"passed,omitempty"` // why it would not take the call at once
}

// TestFallback goes through a model's chain as a live call does that waits nowhere.
func (a *Admin) TestFallback(ctx context.Context, _ string, r FallbackTest) (FallbackTested, error) {
	if _, err := a.pickTargets(TargetRequest{Model: r.Model}); err != nil {
		return FallbackTested{}, err
	}
	rows := map[string]TargetStatus{}
	for _, row := range a.targets(ctx) {
		rows[row.Target] = row
	}
	out := FallbackTested{Model: r.Model, Steps: []FallbackStep{}}
	for _, t := range a.InForce(ctx).Chains[r.Model] {
		step := FallbackStep{Target: t.String(), Passed: rows[t.String()].passed()}
		if out.Steps = append(out.Steps, step); step.Passed == "" && out.Takes == "" {
			out.Takes = step.Target
		}
	}
	return out, nil
}

// passed is why a target would not take a live call at once; "" if it would.
func (t TargetStatus) passed() string {
	switch u := t.TargetUse; {
	case u == nil:
		return "its state can't be read: " + t.Error
	case u.QuarantineMS > 0:
		return "the state store is new, and nothing is admitted for " + left(u.QuarantineMS)
	case u.Breaker == capacity.BreakerOpen:
		return "its breaker is open for " + left(u.OpenForMS)
	case u.Limit > 0 && u.InUse >= u.Limit:
		return "no slot is free"
	case u.Waiting > 0:
		return "others wait for its slots"
	case u.Budgets.none():
		return "its budget of calls or tokens is used up"
	}
	return ""
}

func left(ms int64) string {
	return max(time.Duration(ms)*time.Millisecond, time.Second).Round(time.Second).String()
}

// none says that a budget has nothing left.
func (b Budgets) none() bool {
	for _, n := range []*int{b.RPMLeft, b.TPMLeft, b.SharedRPMLeft, b.SharedTPMLeft} {
		if n != nil && *n <= 0 {
			return true
		}
	}
	return false
}
