package admin

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/live"
	"github.com/llm-queue/llmq/pkg/llmq/settings"
)

// Settings serves the verbs of what holds while processes run: settings of models and providers, routing and fallback
// (FEATURES E3, E4, E13). It is safe for concurrent use and keeps no state.
type Settings struct{ deps SettingsDeps }

// SettingsDeps are what these verbs work with; all are required.
type SettingsDeps struct {
	Config *config.Config
	Store  *live.Store
	Valkey redis.UniversalClient
	Space  keys.Space
	Trail  Trail
}

// NewSettings makes the verbs.
func NewSettings(d SettingsDeps) *Settings { return &Settings{d} }

// SettingsView is what holds for a model or a provider; with neither named, it is all that was set live.
type SettingsView struct {
	Revision int               `json:"revision"`
	Model    string            `json:"model,omitempty"`
	Provider string            `json:"provider,omitempty"`
	Settings []config.Setting  `json:"settings,omitempty"`
	Live     *config.Overrides `json:"live,omitempty"`
	Fault    string            `json:"fault,omitempty"` // why processes don't follow what is stored; they keep what they had
	Unknown  []string          `json:"unknown,omitempty"`
}

// Settings shows every setting of a model or a provider with its source.
func (s *Settings) Settings(ctx context.Context, model, provider string) (SettingsView, error) {
	if model != "" && provider != "" {
		return SettingsView{}, llmq.Errorf(llmq.CodeInvalidRequest, "model and provider are both given; name one").At("provider")
	}
	st, err := s.deps.Store.Load(ctx)
	if err != nil {
		return SettingsView{}, err
	}
	v := SettingsView{Revision: st.Revision, Model: model, Provider: provider}
	known, unknown := s.deps.Config.Known(st.Overrides)
	if v.Unknown = unknown; st.Err != nil {
		v.Fault = st.Err.Error()
	} else if _, err := s.deps.Config.Override(known); err != nil {
		v.Fault = err.Error()
	}
	switch {
	case model != "":
		v.Settings, err = s.deps.Config.ModelSettings(known, model)
	case provider != "":
		v.Settings, err = s.deps.Config.ProviderSettings(known, provider)
	default:
		v.Live = &st.Overrides
	}
	return v, err
}

// Text is a setting's value: JSON's text, number or truth.
type Text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(b []byte) error {
	switch {
	case len(b) == 0 || strings.ContainsRune(`{[n`, rune(b[0])): // null among them
		return &json.UnmarshalTypeError{Value: "value of a setting", Field: "set"}
	case b[0] == '"':
		var s string
		err := json.Unmarshal(b, &s)
		*t = Text(s)
		return err
	}
	*t = Text(b)
	return nil
}

// SetRequest sets values of one model or one provider, all of them or none.
type SetRequest struct {
	Model    string          `json:"model"`
	Provider string          `json:"provider"` // in its place
	Set      map[string]Text `json:"set"`      // by names such as max_concurrency and timeout_secs.rt
	Revision *int            `json:"revision"` // that it is made of; another is refused. Left out: whatever is stored
}

// UnsetRequest takes live values back: what stands below them holds again.
type UnsetRequest struct {
	Model    string   `json:"model"`
	Provider string   `json:"provider"`
	Unset    []string `json:"unset"`
	Revision *int     `json:"revision"`
}

// ResetRequest takes all live values of their kind back.
type ResetRequest struct {
	Revision *int `json:"revision"`
}

// Changed is a change that is stored. Processes follow it within the reload time.
type Changed struct {
	Revision int                   `json:"revision"`
	Changed  []settings.Difference `json:"changed"` // none: it was so before, and nothing was written
	Warnings []string              `json:"warnings,omitempty"`
	Note     string                `json:"note"`
}

// Set sets values live.
func (s *Settings) Set(ctx context.Context, by string, r SetRequest) (Changed, error) {
	of, err := entryOf(r.Model, r.Provider)
	if err == nil && len(r.Set) == 0 {
		err = llmq.Errorf(llmq.CodeInvalidRequest, "set is missing; give values by name, such as {\"max_concurrency\": 20}").At("set")
	}
	values := config.Values{}
	for name, value := range r.Set {
		values[name] = string(value)
	}
	return s.change(ctx, by, "settings set", r.Revision, err, func(o config.Overrides) (config.Overrides, error) {
		return settings.Set(o, of, values), nil
	})
}

// Unset takes values back. A name that was not set live is refused: it may be misspelt.
func (s *Settings) Unset(ctx context.Context, by string, r UnsetRequest) (Changed, error) {
	of, err := entryOf(r.Model, r.Provider)
	if err == nil && len(r.Unset) == 0 {
		err = llmq.Errorf(llmq.CodeInvalidRequest, "unset is missing; list names, such as [\"max_concurrency\"]").At("unset")
	}
	return s.change(ctx, by, "settings unset", r.Revision, err, func(o config.Overrides) (config.Overrides, error) {
		there := o.Models[of.Model]
		if of.Provider != "" {
			there = o.Providers[of.Provider]
		}
		var names []string
		for name := range there {
			names = append(names, name)
		}
		for _, name := range r.Unset {
			if !slices.Contains(names, name) {
				return o, llmq.Errorf(llmq.CodeInvalidRequest, "%q is not set live for %s%s%s", llmq.Clip(name, 60), of.Model, of.Provider, near(name, names)).At("unset")
			}
		}
		return settings.Unset(o, of, r.Unset), nil
	})
}

// near ends a message about an unknown name with the nearest known one.
func near(name string, known []string) string {
	if n := llmq.Nearest(name, known); n != "" {
		return "; did you mean " + n + "?"
	}
	return ""
}

// Reset takes every live value of models and providers back. Chains and the kill switch have verbs of their own. What is stored and
// can't be read goes as a whole.
func (s *Settings) Reset(ctx context.Context, by string, r ResetRequest) (Changed, error) {
	return s.change(ctx, by, "settings reset", r.Revision, nil, func(o config.Overrides) (config.Overrides, error) {
		o.Models, o.Providers = nil, nil
		return o, nil
	})
}

// auditShown is how many changes are shown.
const auditShown = 50

// Audit is the last changes, the latest first.
func (s *Settings) Audit(ctx context.Context) ([]settings.Change, error) {
	return s.deps.Store.History(ctx, auditShown)
}

func entryOf(model, provider string) (settings.Of, error) {
	if (model == "") == (provider == "") {
		return settings.Of{}, llmq.Errorf(llmq.CodeInvalidRequest, "name a model or a provider, and not both").At("model")
	}
	return settings.Of{Model: model, Provider: provider}, nil
}

// mostTries is how often a change is made anew of what others have stored meanwhile.
const mostTries = 5

// change stores what edit makes of what is stored, once it is known to be valid, and audits it. fault ends it at once.
func (s *Settings) change(ctx context.Context, by, verb string, revision *int, fault error, edit func(config.Overrides) (config.Overrides, error)) (done Changed, err error) {
	defer func() {
		err = s.deps.Trail.record(ctx, deed{by: by, verb: verb, args: []any{"revision", done.Revision, "changed", done.Changed}}, err)
	}()
	if fault != nil {
		return Changed{}, fault
	}
	for range mostTries {
		if done, err = s.once(ctx, by, verb, revision, edit); !errors.Is(err, live.ErrConflict) {
			return done, err
		}
		if revision != nil {
			break
		}
	}
	return Changed{}, llmq.Errorf(llmq.CodeInvalidRequest, "the settings have changed meanwhile, to revision %d; read them again", done.Revision).At("revision")
}

func (s *Settings) once(ctx context.Context, by, verb string, revision *int, edit func(config.Overrides) (config.Overrides, error)) (Changed, error) {
	st, err := s.deps.Store.Load(ctx)
	switch {
	case err != nil:
		return Changed{}, err
	case revision != nil && *revision != st.Revision:
		return Changed{Revision: st.Revision}, live.ErrConflict
	case errors.Is(st.Err, settings.ErrNewer):
		return Changed{}, llmq.Errorf(llmq.CodeConfiguration, "a newer release has stored the live settings, and only that may change them").Because(st.Err)
	case st.Err != nil && !strings.HasSuffix(verb, " reset"):
		return Changed{}, llmq.Errorf(llmq.CodeConfiguration, "the stored live settings can't be read; reset drops them").Because(st.Err)
	}
	before, _ := s.deps.Config.Known(st.Overrides) // what is gone of the configuration goes with the next change
	after, err := edit(before)
	if err != nil {
		return Changed{}, err
	}
	merged, err := s.deps.Config.Override(after)
	if err != nil {
		return Changed{}, refusal(err)
	}
	done := Changed{
		Revision: st.Revision, Changed: settings.Differences(st.Overrides, after), Warnings: s.newWarnings(merged),
		Note: "processes follow within " + s.deps.Config.Timing.Reload.String(),
	}
	if len(done.Changed) == 0 && st.Err == nil {
		return done, nil
	}
	done.Revision, err = s.deps.Store.Save(ctx, st.Revision, after, settings.Change{At: time.Now().UTC().Truncate(time.Millisecond), By: by, Verb: verb, Changed: done.Changed})
	return done, err
}

// newWarnings are those that the configuration itself does not have.
func (s *Settings) newWarnings(merged *config.Config) []string {
	old := s.deps.Config.Warnings()
	return slices.DeleteFunc(merged.Warnings(), func(w string) bool { return slices.Contains(old, w) })
}

// refusal is what is wrong with a change, for its operator.
func refusal(err error) error {
	faults, ok := errors.AsType[config.Faults](err)
	if !ok || len(faults) == 0 {
		return err
	}
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.String())
	}
	return llmq.Errorf(llmq.CodeInvalidRequest, "nothing was changed: %s", strings.Join(lines, "; ")).At(faults[0].Path)
}
