package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

func (a *app) fallback() *cobra.Command {
	get := a.does(func(ctx context.Context, _ []string) error { return ask(ctx, a, "/fallback", nil, a.fallbacks) })
	c := &cobra.Command{
		Use:   "fallback",
		Short: "Show, set and try where calls go when their first target fails",
		Long: `Show where each model's calls go when their first target fails: the model's other targets, then, for calls that ask for the chain,
the models that stand in for it.`,
		Example: "  llmq fallback\n  llmq fallback test --model chat-a",
		Args:    noArgs,
		RunE:    get,
	}
	c.AddCommand(
		&cobra.Command{Use: "get", Short: "Show chains (what fallback alone does)", Example: "  llmq fallback get --json", Args: noArgs, RunE: get},
		a.setFallback(), a.testFallback(), a.resetFallback(),
	)
	return c
}

func (a *app) setFallback() *cobra.Command {
	var model, file string
	var chain, headroom, skip []string
	var replace bool
	var rev revision
	c := &cobra.Command{
		Use:   "set",
		Short: "Set a model's chain, or the targets that are left out",
		Long: `Set a model's chain live, or the targets that are left out of it. An empty list is none: --chain ''.

A file sets several models at once, all or none, and leaves the others as they are; with --replace it is all that is set live. It holds JSON:
{"chat-a": {"chain": [{"model": "chat-b", "require_headroom": true}], "skip_targets": []}}`,
		Example: "  llmq fallback set --model chat-a --chain chat-b,chat-c --require-headroom chat-b\n" +
			"  llmq fallback set --model chat-a --skip-targets second\n" +
			"  llmq fallback set --file chains.json --replace",
		Args: noArgs,
	}
	f := c.Flags()
	f.StringVar(&model, "model", "", "alias of the model")
	f.StringSliceVar(&chain, "chain", nil, "models that stand in for it, in order")
	f.StringSliceVar(&headroom, "require-headroom", nil, "those of the chain that are taken only where they have a slot free at once")
	f.StringSliceVar(&skip, "skip-targets", nil, "names of targets that are left out")
	f.StringVarP(&file, "file", "f", "", "what to set of several models, as JSON; - is stdin")
	f.BoolVar(&replace, "replace", false, "with --file: take back what was set live of all other models")
	rev.flag(c)
	c.MarkFlagsOneRequired("model", "file")
	c.MarkFlagsOneRequired("chain", "skip-targets", "file")
	for _, alone := range []string{"model", "chain", "require-headroom", "skip-targets"} {
		c.MarkFlagsMutuallyExclusive("file", alone)
	}
	_ = c.RegisterFlagCompletionFunc("model", a.completeModels) // it fails for a name that is no flag
	c.RunE = a.does(func(ctx context.Context, _ []string) error {
		r := admin.FallbackRequest{Model: model, Replace: replace, Revision: rev.asked()}
		if replace && file == "" {
			return usagef("--replace goes with --file, which then is all that is set live; llmq fallback reset takes all back")
		}
		if file != "" {
			text, err := a.read(file)
			if err != nil {
				return err
			}
			if key, at := twice(text); key != "" {
				return usagef("%s names %q twice, the second time in %s; nothing of it was set", file, key, at)
			}
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields()
			if err := d.Decode(&r.Models); err != nil || r.Models == nil {
				return usagef(`%s holds no rules by model, such as {"chat-a": {"chain": [{"model": "chat-b"}]}}: %v`, file, err)
			}
			if _, err := d.Token(); err != io.EOF {
				return usagef("%s holds more than one JSON value; nothing of it was set", file)
			}
		}
		for _, m := range headroom {
			if !slices.Contains(chain, m) {
				return usagef("--require-headroom names %q, which is not in --chain", m)
			}
		}
		if f.Changed("chain") {
			hops := []config.FallbackModel{}
			for _, m := range chain {
				hops = append(hops, config.FallbackModel{Model: m, RequireHeadroom: slices.Contains(headroom, m)})
			}
			r.Chain = &hops
		}
		if f.Changed("skip-targets") {
			skip = append([]string{}, skip...) // none is a list too
			r.SkipTargets = &skip
		}
		return tell(ctx, a, "/fallback/set", r, a.changed)
	})
	return c
}

func (a *app) testFallback() *cobra.Command {
	var r admin.FallbackTest
	c := &cobra.Command{
		Use: "test", Short: "Say which target would take a call now", Args: noArgs,
		Long:    "Say which target would take a call of a model now, and why those before it would not. Nothing is called.",
		Example: "  llmq fallback test --model chat-a",
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return tell(ctx, a, "/fallback/test", r, func(got admin.FallbackTested) []table.Table {
				t := table.Table{Columns: []table.Column{{Head: "TARGET"}, {Head: "NOW"}}}
				for _, s := range got.Steps {
					now := table.Cell{Text: s.Passed, Style: table.Warn}
					switch {
					case s.Target == got.Takes:
						now = table.Cell{Text: "takes it", Style: table.Good}
					case s.Passed == "":
						now = table.Cell{Text: "would be next", Style: table.Faint}
					}
					t.Rows = append(t.Rows, []table.Cell{table.Text(s.Target), now})
				}
				if got.Takes == "" {
					a.say("none would take it at once")
				}
				return []table.Table{t}
			})
		}),
	}
	c.Flags().StringVar(&r.Model, "model", "", "alias of the model")
	if err := c.MarkFlagRequired("model"); err != nil {
		panic(err) // the flag is above
	}
	_ = c.RegisterFlagCompletionFunc("model", a.completeModels) // it fails for a name that is no flag
	return c
}

func (a *app) resetFallback() *cobra.Command {
	var model string
	var rev revision
	c := &cobra.Command{
		Use: "reset", Short: "Take live chains back, of a model or of all", Example: "  llmq fallback reset --model chat-a", Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return tell(ctx, a, "/fallback/reset", admin.ResetFallbackRequest{Model: model, Revision: rev.asked()}, a.changed)
		}),
	}
	c.Flags().StringVar(&model, "model", "", "alias of a model; else of all")
	rev.flag(c)
	return c
}

// fallbacks shows every model's chain.
func (a *app) fallbacks(v admin.FallbackView) []table.Table {
	if v.Fault != "" {
		fmt.Fprintln(a.err, a.note("what is stored is not followed: "+v.Fault, table.Bad))
	}
	t := table.Table{Columns: []table.Column{{Head: "MODEL"}, {Head: "CHAIN"}, {Head: "LEAVES OUT"}, {Head: "FROM"}, {Head: "COMES TO", Drop: 1}}}
	for _, m := range v.Models {
		var chain []string
		for _, hop := range m.Chain {
			name := hop.Model
			if hop.RequireHeadroom {
				name += " (with headroom)"
			}
			chain = append(chain, name)
		}
		hops := strings.Join(chain, " → ")
		from := table.Cell{Text: "file", Style: table.Faint}
		if m.Live {
			from = table.Text("live")
		}
		t.Rows = append(t.Rows, []table.Cell{
			table.Text(m.Model), value(&hops), table.Text(strings.Join(m.SkipTargets, ", ")), from, table.Text(strings.Join(m.Steps, " → ")),
		})
	}
	return []table.Table{t}
}
