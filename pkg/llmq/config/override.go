package config

import (
	"maps"
	"slices"
	"strings"
)

// Values are settings by their names, such as max_concurrency or timeout_secs.rt, each written as in the file.
type Values map[string]string

// Overrides are what holds over a configuration while its processes run. The zero value is nothing.
type Overrides struct {
	Models      map[string]Values          `json:"models,omitempty"`       // by alias; over Providers
	Providers   map[string]Values          `json:"providers,omitempty"`    // by name
	Chains      map[string][]FallbackModel `json:"chains,omitempty"`       // by alias: in place of its fallback; an empty one is none
	SkipTargets map[string][]string        `json:"skip_targets,omitempty"` // by alias: in place of its skip_targets
	Killed      bool                       `json:"killed,omitempty"`       // nothing is queued
}

// The places of settings that can be overridden. A target's row, where there is one, is set in its model's stead: it is the nearest.
const (
	atTarget   = "models.*.targets[]."
	atModel    = "models.*."
	atProvider = "providers.*."
)

// overridable are the rows of one of the places, by the names of settings that hold for one provider or model.
func overridable(rows []setting, at string) map[string]setting {
	names := map[string]bool{}
	for _, st := range slices.Concat(capAndLimits(at, "", nil, nil), tryRows(at, nil), callRows(at, nil)) {
		names[st.path] = true
	}
	if at == atProvider {
		for _, st := range sharedLimits() {
			names[st.path] = true
		}
	}
	of := map[string]setting{}
	for _, st := range rows {
		if name, here := strings.CutPrefix(st.path, at); here && names[st.path] {
			of[name] = st
		}
	}
	return of
}

// Override is c with o over it, or what is wrong with o, which is [Faults]. All rules hold for what comes of it. c stays as it is.
func (c *Config) Override(o Overrides) (*Config, error) {
	merged := *c
	merged.Providers, merged.Models = slices.Clone(c.Providers), slices.Clone(c.Models)
	for i := range merged.Models {
		merged.Models[i].Targets = slices.Clone(c.Models[i].Targets)
	}
	merged.Routing.Killed = o.Killed
	w := overrider{report: newReport(""), draft: newDraft(&merged), rows: models()}
	for _, name := range slices.Sorted(maps.Keys(o.Providers)) {
		w.provider(name, o.Providers[name])
	}
	for _, alias := range slices.Sorted(maps.Keys(o.Models)) {
		w.model(alias, o.Models[alias])
	}
	for _, alias := range slices.Sorted(maps.Keys(o.Chains)) {
		if m := w.modelNamed(alias); m != nil {
			m.Fallback = slices.Clone(o.Chains[alias])
		}
	}
	for _, alias := range slices.Sorted(maps.Keys(o.SkipTargets)) {
		if m := w.modelNamed(alias); m != nil {
			m.SkipTargets = slices.Clone(o.SkipTargets[alias])
		}
	}
	if w.err() == nil {
		(&checker{report: w.report, cfg: &merged}).check()
	}
	if err := w.err(); err != nil {
		return nil, err
	}
	return &merged, nil
}

// Known is o without what names a model or a provider that c lacks, and the names of those.
func (c *Config) Known(o Overrides) (known Overrides, unknown []string) {
	drop := func(name string, there bool) bool {
		if !there && !slices.Contains(unknown, name) {
			unknown = append(unknown, name)
		}
		return !there
	}
	hasModel := func(alias string) bool {
		return slices.ContainsFunc(c.Models, func(m Model) bool { return m.Alias == alias })
	}
	known = Overrides{
		Models: maps.Clone(o.Models), Providers: maps.Clone(o.Providers), Chains: maps.Clone(o.Chains), SkipTargets: maps.Clone(o.SkipTargets), Killed: o.Killed,
	}
	maps.DeleteFunc(known.Models, func(alias string, _ Values) bool { return drop(alias, hasModel(alias)) })
	maps.DeleteFunc(known.SkipTargets, func(alias string, _ []string) bool { return drop(alias, hasModel(alias)) })
	maps.DeleteFunc(known.Chains, func(alias string, _ []FallbackModel) bool { return drop(alias, hasModel(alias)) })
	maps.DeleteFunc(known.Providers, func(name string, _ Values) bool { return drop(name, c.provider(name).Name == name) })
	slices.Sort(unknown)
	return known, unknown
}

// overrider puts overrides into a draft. Its rows are the table's.
type overrider struct {
	*report
	draft draft
	rows  []setting
}

// provider sets what holds for a provider: at itself, or at what it serves.
func (w overrider) provider(name string, values Values) {
	at := "providers." + segment(name)
	if w.draft.cfg.provider(name).Name != name {
		w.fault(at, "no provider is named %s%s", quoted(name), didYouMean(name, providerNames(w.draft.cfg), "providers"))
		return
	}
	targets, own, shared := overridable(w.rows, atTarget), overridable(w.rows, atModel), overridable(w.rows, atProvider)
	w.each(at, values, shared, func(key, text string) string {
		if st, here := targets[key]; here {
			return w.store(atTarget, st, text, func(s scope) bool { return s.target.Provider == name })
		}
		if st, here := own[key]; here {
			return w.store(atModel, st, text, func(s scope) bool { return len(s.model.Targets) > 0 && s.model.Targets[0].Provider == name })
		}
		return w.store(atProvider, shared[key], text, func(s scope) bool { return s.name == name })
	})
}

// model sets what holds for a model: at each of its targets, or at itself.
func (w overrider) model(alias string, values Values) {
	if w.modelNamed(alias) == nil {
		return
	}
	targets, own := overridable(w.rows, atTarget), overridable(w.rows, atModel)
	w.each(modelPath(alias), values, own, func(key, text string) string {
		if st, here := targets[key]; here {
			return w.store(atTarget, st, text, func(s scope) bool { return s.model.Alias == alias })
		}
		return w.store(atModel, own[key], text, func(s scope) bool { return s.name == alias })
	})
}

// store sets a row in those of its entries that are meant.
func (w overrider) store(at string, st setting, text string, meant func(scope) bool) string {
	if problem := st.check(text); problem != "" {
		return problem
	}
	for _, s := range w.draft.scopes(at) {
		if meant(s) {
			st.store(st.at(&s), text)
		}
	}
	return ""
}

// each has values set one by one; what is none of the known settings, or has no such value, is a fault.
func (w overrider) each(at string, values Values, known map[string]setting, set func(key, text string) string) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		path := at + "." + segment(key)
		if _, is := known[key]; !is {
			w.fault(path, "%s", w.notLive(key, known))
			continue
		}
		if problem := set(key, values[key]); problem != "" {
			w.fault(path, "%s", problem)
		}
	}
}

// notLive says why a setting can't be set here.
func (w overrider) notLive(key string, known map[string]setting) string {
	if _, shared := overridable(w.rows, atProvider)[key]; shared {
		return "holds for a provider, over all its models; set it for one"
	}
	for _, st := range settings() {
		if st.path == key || st.leaf() == key || st.collection() == key || strings.HasSuffix(st.path, "."+key) {
			return "is read when a process starts, and not live: change the file, or its variable, and deploy"
		}
	}
	return "no such setting" + didYouMean(key, slices.Sorted(maps.Keys(known)), "live settings")
}

// modelNamed is the model of that alias; where there is none that is a fault.
func (w overrider) modelNamed(alias string) *Model {
	for i := range w.draft.cfg.Models {
		if m := &w.draft.cfg.Models[i]; m.Alias == alias {
			return m
		}
	}
	var known []string
	for _, m := range w.draft.cfg.Models {
		known = append(known, m.Alias)
	}
	w.fault(modelPath(alias), "no model is named %s%s", quoted(alias), didYouMean(alias, known, "models"))
	return nil
}

func providerNames(c *Config) []string {
	var known []string
	for _, p := range c.Providers {
		known = append(known, p.Name)
	}
	return known
}
