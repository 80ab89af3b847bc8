package config

import (
	"slices"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Source says which layer a value comes from.
type Source string

// The layers; the first that has a value wins (FEATURES E2). What the file says of a model or a provider counts as a variable does.
const (
	FromLiveModel    Source = "live:model"
	FromLiveProvider Source = "live:provider"
	FromEnvModel     Source = "env:model"
	FromEnvProvider  Source = "env:provider"
	FromEnv          Source = "env"
	FromDefault      Source = "default"
)

// Setting is a setting's value and where it comes from.
type Setting struct {
	Name   string `json:"name"`
	Target string `json:"target,omitempty"` // of a model, where its targets differ
	Value  string `json:"value"`            // "" is none
	Source Source `json:"source"`
	Note   string `json:"note,omitempty"` // what no value means
}

// ModelSettings is every setting of a model that can be set live, with o over c, in the table's order. An unknown
// alias is [llmq.CodeModelNotFound].
func (c *Config) ModelSettings(o Overrides, alias string) ([]Setting, error) {
	i := slices.IndexFunc(c.Models, func(m Model) bool { return m.Alias == alias })
	if i < 0 {
		var known []string
		for _, m := range c.Models {
			known = append(known, m.Alias)
		}
		return nil, llmq.Errorf(llmq.CodeModelNotFound, "no model is named %s%s", quoted(alias), didYouMean(alias, known, "models")).At("model")
	}
	l := c.layers(o)
	var out []Setting
	for _, name := range l.names(atModel) {
		var of []Setting
		for _, t := range c.Models[i].Targets {
			s := l.ofTarget(name, c.Models[i], t)
			s.Target = t.Name
			of = append(of, s)
		}
		alike := func(s Setting) bool { return s.Value == of[0].Value && s.Source == of[0].Source }
		if _, each := l.targets[name]; !each || !slices.ContainsFunc(of, func(s Setting) bool { return !alike(s) }) {
			of = of[:1]
			of[0].Target = ""
		}
		out = append(out, of...)
	}
	return out, nil
}

// ProviderSettings is the same of a provider. An unknown name is [llmq.CodeInvalidRequest].
func (c *Config) ProviderSettings(o Overrides, name string) ([]Setting, error) {
	if c.provider(name).Name != name || name == "" {
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "no provider is named %s%s", quoted(name), didYouMean(name, providerNames(c), "providers")).At("provider")
	}
	l := c.layers(o)
	var out []Setting
	for _, key := range l.names(atProvider) {
		out = append(out, l.ofProvider(key, name))
	}
	return out, nil
}

// layers looks values up.
type layers struct {
	over      Overrides
	rows      []setting
	draft     draft
	given     map[string]bool
	targets   map[string]setting
	models    map[string]setting
	providers map[string]setting
	all       map[string]string // what holds for all, by path
}

func (c *Config) layers(o Overrides) layers {
	whole := *c
	l := layers{over: o, rows: settings(), draft: newDraft(&whole), given: c.given, all: map[string]string{}}
	l.targets, l.models, l.providers = overridable(l.rows, atTarget), overridable(l.rows, atModel), overridable(l.rows, atProvider)
	for _, st := range l.rows {
		if st.at == nil || strings.HasPrefix(st.path, atModel) || strings.HasPrefix(st.path, atProvider) || strings.HasPrefix(st.path, "producers[]") {
			continue
		}
		for _, s := range l.draft.scopes(st.path) {
			if value, zero := text(st.at(&s)); !zero || st.zeroCounts() {
				l.all[s.prefix+st.leaf()] = value
			}
		}
	}
	return l
}

// names are those of the settings at a place, in the table's order.
func (l layers) names(at string) []string {
	known := map[string]map[string]setting{atModel: l.models, atProvider: l.providers}[at]
	var out []string
	for _, st := range l.rows {
		if name, here := strings.CutPrefix(st.path, at); here && known[name].path != "" {
			out = append(out, name)
		}
	}
	return out
}

// ofTarget is what holds at a target of a model.
func (l layers) ofTarget(name string, m Model, t Target) Setting {
	if value, here := l.over.Models[m.Alias][name]; here {
		return Setting{Name: name, Value: value, Source: FromLiveModel}
	}
	provider := t.Provider
	_, each := l.targets[name]
	if !each {
		provider = m.Targets[0].Provider
	}
	if value, here := l.over.Providers[provider][name]; here {
		return Setting{Name: name, Value: value, Source: FromLiveProvider}
	}
	if value, here := given(l.targets[name], &scope{target: &t}); here {
		return Setting{Name: name, Value: value, Source: FromEnvModel}
	}
	if value, here := given(l.models[name], &scope{model: &m}); here {
		return Setting{Name: name, Value: value, Source: FromEnvModel}
	}
	if s, here := l.below(name, provider); here {
		return s
	}
	s := l.ofAll(name, l.models[name])
	if lane, embeds := strings.CutPrefix(name, "embed_timeout_secs."); embeds && s.Value == "" {
		s.Value = l.ofTarget("timeout_secs."+lane, m, t).Value
	}
	return s
}

// ofProvider is what holds at a provider's targets that say nothing else.
func (l layers) ofProvider(name, provider string) Setting {
	if value, here := l.over.Providers[provider][name]; here {
		return Setting{Name: name, Value: value, Source: FromLiveProvider}
	}
	if s, here := l.below(name, provider); here {
		return s
	}
	return l.ofAll(name, l.providers[name])
}

// below is what the file says of a provider.
func (l layers) below(name, provider string) (Setting, bool) {
	for _, s := range l.draft.scopes(atProvider) {
		if s.name == provider {
			value, here := given(l.providers[name], &s)
			return Setting{Name: name, Value: value, Source: FromEnvProvider}, here
		}
	}
	return Setting{}, false
}

// ofAll is what holds where no entry says anything.
func (l layers) ofAll(name string, st setting) Setting {
	s := Setting{Name: name, Value: l.all[st.above], Source: FromDefault}
	switch {
	case s.Value == "":
		s.Note = st.defNote
	case l.given[st.above]:
		s.Source = FromEnv
	}
	return s
}

// given is a row's value at an entry, and whether there is one.
func given(st setting, s *scope) (string, bool) {
	if st.at == nil {
		return "", false
	}
	value, zero := text(st.at(s))
	return value, !zero
}
