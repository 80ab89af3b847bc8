package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

// limiterAnswer is what GET /limiter answers, breakersAnswer what GET /breaker does.
type (
	limiterAnswer struct {
		Targets []admin.TargetStatus `json:"targets"`
	}
	breakersAnswer struct {
		Breakers []admin.BreakerStatus `json:"breakers"`
	}
)

func (a *app) limiter() *cobra.Command {
	return ofTargets(a, "limiter", "Show what is known of targets' limits; have them learned anew",
		"Show what is known of targets' limits, in words, and what is used of them.",
		"Have targets learn their limits anew, from limiter_initial. Calls that run keep their slots.",
		func(l limiterAnswer) []table.Table {
			t := table.Table{Columns: []table.Column{{Head: "TARGET"}, {Head: "IN USE", Right: true}, {Head: "LIMITED BY"}, {Head: "LEARNED"}}}
			for _, s := range l.Targets {
				if s.TargetUse == nil {
					t.Rows = append(t.Rows, []table.Cell{table.Text(s.Target), {}, {}, {Text: s.Error, Style: table.Bad}})
					continue
				}
				t.Rows = append(t.Rows, []table.Cell{
					table.Text(s.Target), table.Text(fmt.Sprintf("%d/%d", s.InUse, s.Limit)), table.Text(s.LimitIs), table.Text(s.Learned),
				})
			}
			return []table.Table{t}
		})
}

func (a *app) breaker() *cobra.Command {
	return ofTargets(a, "breaker", "Show targets' breakers; close them",
		"Show targets' breakers: closed lets calls through, open none for so long, half open one at a time.",
		"Close the breakers of targets, with nothing counted.",
		func(b breakersAnswer) []table.Table {
			t := table.Table{Columns: []table.Column{{Head: "TARGET"}, {Head: "BREAKER"}, {Head: "ERROR"}}}
			for _, s := range b.Breakers {
				t.Rows = append(t.Rows, []table.Cell{table.Text(s.Target), breakerCell(s.Breaker, s.OpenForMS), {Text: s.Error, Style: table.Bad}})
			}
			return []table.Table{t}
		})
}

// breakerCell is a breaker's state, and for how long it stays open.
func breakerCell(state capacity.BreakerState, openMS int64) table.Cell {
	c := table.Cell{Text: strings.ReplaceAll(string(state), "_", " "), Style: table.Good}
	if state != capacity.BreakerClosed {
		c.Style = table.Bad
	}
	if openMS > 0 {
		c.Text += " " + (time.Duration(openMS) * time.Millisecond).Round(time.Second).String()
	}
	return c
}

// targetFlags are the flags that name targets.
func targetFlags(a *app, c *cobra.Command, of *admin.TargetRequest) {
	c.Flags().StringVar(&of.Model, "model", "", "alias of a model")
	c.Flags().StringVar(&of.Target, "target", "", "one of the model's targets, by its name; else all of them")
	_ = c.RegisterFlagCompletionFunc("model", a.completeModels) // it fails for a name that is no flag
}

// ofTargets is a command that shows a thing of targets, with its reset.
func ofTargets[T any](a *app, name, short, long, resets string, view func(T) []table.Table) *cobra.Command {
	var shown, forgotten admin.TargetRequest
	show := a.does(func(ctx context.Context, _ []string) error {
		query := url.Values{}
		for key, value := range map[string]string{"model": shown.Model, "target": shown.Target} {
			if value != "" {
				query.Set(key, value)
			}
		}
		return ask(ctx, a, "/"+name, query, view)
	})
	c := &cobra.Command{
		Use: name, Short: short, Long: long, Args: noArgs, RunE: show,
		Example: "  llmq " + name + "\n  llmq " + name + " reset --model chat-a",
	}
	again := &cobra.Command{Use: "show", Short: "Show them (what " + name + " alone does)", Example: "  llmq " + name + " show --model chat-a", Args: noArgs, RunE: show}
	reset := &cobra.Command{
		Use: "reset", Short: resets[:strings.IndexAny(resets, ",.")], Long: resets, Args: noArgs,
		Example: "  llmq " + name + " reset --model chat-a --target main",
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return tell(ctx, a, "/"+name+"/reset", forgotten, a.forgotten)
		}),
	}
	targetFlags(a, c, &shown)
	targetFlags(a, again, &shown)
	targetFlags(a, reset, &forgotten)
	if err := reset.MarkFlagRequired("model"); err != nil {
		panic(err) // the flag is above
	}
	c.AddCommand(again, reset)
	return c
}

// forgotten shows what a reset has found.
func (a *app) forgotten(f admin.Forgotten) []table.Table {
	a.say("%s", f.Note)
	had := map[string]bool{}
	for _, t := range f.Changed {
		had[t] = true
	}
	t := table.Table{Columns: []table.Column{{Head: "TARGET"}, {Head: "RESET"}}}
	for _, name := range f.Targets {
		what := table.Cell{Text: "it was as new before", Style: table.Faint}
		if had[name] {
			what = table.Cell{Text: "done", Style: table.Good}
		}
		t.Rows = append(t.Rows, []table.Cell{table.Text(name), what})
	}
	return []table.Table{t}
}
