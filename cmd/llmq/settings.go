package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/settings"
)

// entry names whose settings are meant: a model's or a provider's.
type entry struct{ model, provider string }

func (e *entry) flags(a *app, c *cobra.Command) {
	c.Flags().StringVar(&e.model, "model", "", "of a model, by its alias")
	c.Flags().StringVar(&e.provider, "provider", "", "of a provider and all its models, by its name")
	c.MarkFlagsMutuallyExclusive("model", "provider")
	_ = c.RegisterFlagCompletionFunc("model", a.completeModels) // it fails for a name that is no flag
}

func (a *app) settings() *cobra.Command {
	var of entry
	get := a.does(func(ctx context.Context, _ []string) error {
		query := url.Values{}
		for name, value := range map[string]string{"model": of.model, "provider": of.provider} {
			if value != "" {
				query.Set(name, value)
			}
		}
		return ask(ctx, a, "/settings", query, a.settingsTables)
	})
	c := &cobra.Command{
		Use:   "settings",
		Short: "Show settings and where they come from; set them live",
		Long: `Show every setting of a model or a provider that can be set live, with its value and where that comes from; without --model and
--provider, what was set live. A live value is checked before it is stored, and every process follows it within the reload time.`,
		Example: "  llmq settings --model chat-a\n  llmq settings set --model chat-a max_concurrency=5 rpm=600",
		Args:    noArgs,
		RunE:    get,
	}
	of.flags(a, c)
	again := &cobra.Command{Use: "get", Short: "Show settings (what settings alone does)", Example: "  llmq settings get --provider openai --json", Args: noArgs, RunE: get}
	of.flags(a, again)
	c.AddCommand(again, a.setSettings(), a.unsetSettings(), a.resetLive("settings", "Take every live value of models and providers back"), a.auditSettings())
	return c
}

// ask reads what lies under a path, and shows it.
func ask[T any](ctx context.Context, a *app, path string, query url.Values, view func(T) []table.Table) error {
	api, err := a.admin(ctx)
	if err != nil {
		return err
	}
	raw, err := api.Get(ctx, path, query)
	if err != nil {
		return err
	}
	return answer(a, raw, view)
}

// tell sends a verb's arguments, and shows what came of it.
func tell[T any](ctx context.Context, a *app, path string, what any, view func(T) []table.Table) error {
	api, err := a.admin(ctx)
	if err != nil {
		return err
	}
	raw, err := api.Post(ctx, path, what)
	if err != nil {
		return err
	}
	return answer(a, raw, view)
}

// revision is the flag of the verbs that change what is live.
type revision struct{ n int }

func (r *revision) flag(c *cobra.Command) {
	c.Flags().IntVar(&r.n, "revision", -1, "only if this is the revision still; -1 is any")
}

func (r *revision) asked() *int {
	if r.n < 0 {
		return nil
	}
	return &r.n
}

func (a *app) setSettings() *cobra.Command {
	var of entry
	var rev revision
	c := &cobra.Command{
		Use:     "set NAME=VALUE…",
		Short:   "Set values of a model or a provider, all of them or none",
		Long:    "Set values of a model or a provider live, all of them or none. Names are those that llmq settings shows.",
		Example: "  llmq settings set --model chat-a max_concurrency=5\n  llmq settings set --provider openai timeout_secs.rt=60",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			set := map[string]admin.Text{}
			for _, arg := range args {
				name, value, ok := strings.Cut(arg, "=")
				if _, twice := set[name]; !ok || name == "" || twice {
					return usagef("%q: give each setting once, as NAME=VALUE", arg)
				}
				set[name] = admin.Text(value)
			}
			return tell(ctx, a, "/settings/set", admin.SetRequest{Model: of.model, Provider: of.provider, Set: set, Revision: rev.asked()}, a.changed)
		}),
	}
	of.flags(a, c)
	c.MarkFlagsOneRequired("model", "provider")
	rev.flag(c)
	return c
}

func (a *app) unsetSettings() *cobra.Command {
	var of entry
	var rev revision
	c := &cobra.Command{
		Use:     "unset NAME…",
		Short:   "Take live values back",
		Long:    "Take live values of a model or a provider back: what stands below them holds again.",
		Example: "  llmq settings unset --model chat-a max_concurrency",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			return tell(ctx, a, "/settings/unset", admin.UnsetRequest{Model: of.model, Provider: of.provider, Unset: args, Revision: rev.asked()}, a.changed)
		}),
	}
	of.flags(a, c)
	c.MarkFlagsOneRequired("model", "provider")
	rev.flag(c)
	return c
}

// resetLive is the reset of a kind of live settings.
func (a *app) resetLive(kind, short string) *cobra.Command {
	var rev revision
	c := &cobra.Command{
		Use: "reset", Short: short, Example: "  llmq " + kind + " reset", Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return tell(ctx, a, "/"+kind+"/reset", admin.ResetRequest{Revision: rev.asked()}, a.changed)
		}),
	}
	rev.flag(c)
	return c
}

// auditAnswer is what GET /settings/audit answers.
type auditAnswer struct {
	Changes []settings.Change `json:"changes"`
}

func (a *app) auditSettings() *cobra.Command {
	return &cobra.Command{
		Use: "audit", Short: "Who changed what live, and when", Long: "The last changes of what is live, routing and fallback included, the latest first.",
		Example: "  llmq settings audit", Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return ask(ctx, a, "/settings/audit", nil, func(got auditAnswer) []table.Table {
				t := table.Table{Columns: []table.Column{
					{Head: "REV", Right: true, Drop: 2}, {Head: "AT"}, {Head: "VERB", Drop: 1}, {Head: "SETTING"}, {Head: "BEFORE"}, {Head: "AFTER"}, {Head: "BY"},
				}}
				for _, change := range got.Changes {
					for i, d := range change.Changed {
						row := []table.Cell{{}, {}, {}}
						if i == 0 {
							row = []table.Cell{table.Text(fmt.Sprint(change.Revision)), table.Text(change.At.UTC().Format("01-02 15:04:05")), table.Text(change.Verb)}
						}
						t.Rows = append(t.Rows, append(row, table.Text(d.Name), value(d.Before), value(d.After), table.Cell{Text: change.By, Style: table.Faint}))
					}
				}
				return []table.Table{t}
			})
		}),
	}
}

// value is a setting's value, or a dash where there is none.
func value(v *string) table.Cell {
	if v == nil || *v == "" {
		return table.Cell{Text: "-", Style: table.Faint}
	}
	return table.Text(*v)
}

// changed shows a change that is stored.
func (a *app) changed(c admin.Changed) []table.Table {
	for _, w := range c.Warnings {
		fmt.Fprintln(a.err, a.note("warning: "+w, table.Warn))
	}
	t := table.Table{Columns: []table.Column{{Head: "SETTING"}, {Head: "BEFORE"}, {Head: "AFTER"}}}
	for _, d := range c.Changed {
		t.Rows = append(t.Rows, []table.Cell{table.Text(d.Name), value(d.Before), value(d.After)})
	}
	if len(t.Rows) == 0 {
		a.say("revision %d: it was so before, and nothing was changed", c.Revision)
		return nil
	}
	a.say("revision %d; %s", c.Revision, c.Note)
	return []table.Table{t}
}

func (a *app) settingsTables(v admin.SettingsView) []table.Table {
	var all []table.Table
	if v.Fault != "" || len(v.Unknown) > 0 {
		t := table.Table{Columns: []table.Column{{Head: "NOT FOLLOWED"}}}
		if v.Fault != "" {
			t.Rows = append(t.Rows, []table.Cell{{Text: v.Fault, Style: table.Bad}})
		}
		for _, name := range v.Unknown {
			t.Rows = append(t.Rows, []table.Cell{{Text: name + " is no longer in the configuration", Style: table.Warn}})
		}
		all = append(all, t)
	}
	if v.Live != nil {
		live := liveTable(*v.Live)
		if len(live.Rows) == 0 {
			a.say("nothing is set live; --model or --provider shows what holds")
			return all
		}
		return append(all, live)
	}
	t := table.Table{Columns: []table.Column{{Head: "SETTING"}, {Head: "TARGET"}, {Head: "VALUE"}, {Head: "FROM"}, {Head: "NOTE", Drop: 1}}}
	for _, s := range v.Settings {
		from := table.Text(string(s.Source))
		if s.Source == config.FromDefault {
			from.Style = table.Faint
		}
		t.Rows = append(t.Rows, []table.Cell{table.Text(s.Name), table.Text(s.Target), value(&s.Value), from, {Text: s.Note, Style: table.Faint}})
	}
	return append(all, t)
}

// liveTable is all that was set live.
func liveTable(o config.Overrides) table.Table {
	t := table.Table{Columns: []table.Column{{Head: "OF"}, {Head: "SETTING"}, {Head: "LIVE VALUE"}}}
	row := func(of, name, is string) {
		t.Rows = append(t.Rows, []table.Cell{table.Text(of), table.Text(name), value(&is)})
	}
	for _, kind := range []struct {
		name string
		of   map[string]config.Values
	}{{"model", o.Models}, {"provider", o.Providers}} {
		for _, name := range slices.Sorted(maps.Keys(kind.of)) {
			values := kind.of[name]
			for _, setting := range slices.Sorted(maps.Keys(values)) {
				row(kind.name+" "+name, setting, values[setting])
			}
		}
	}
	for _, alias := range slices.Sorted(maps.Keys(o.Chains)) {
		var chain []string
		for _, f := range o.Chains[alias] {
			chain = append(chain, f.Model)
		}
		row("model "+alias, "fallback", strings.Join(chain, " → "))
	}
	for _, alias := range slices.Sorted(maps.Keys(o.SkipTargets)) {
		row("model "+alias, "skip_targets", strings.Join(o.SkipTargets[alias], ", "))
	}
	if o.Killed {
		row("all", "kill switch", "on: nothing is queued")
	}
	return t
}
