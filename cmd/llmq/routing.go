package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

func (a *app) routing() *cobra.Command {
	get := a.does(func(ctx context.Context, _ []string) error { return ask(ctx, a, "/routing", nil, a.routes) })
	c := &cobra.Command{
		Use:   "routing",
		Short: "Show and set how live calls reach their providers; the kill switch",
		Long: `Show how live (rt) calls reach their providers: direct (where their callers wait, if a slot is free), queue, or auto, which tries
the first and takes the second; with a part of the sessions that queue all the same. bg and bulk always queue.`,
		Example: "  llmq routing\n  llmq routing set --model chat-a --pct 10",
		Args:    noArgs,
		RunE:    get,
	}
	c.AddCommand(
		&cobra.Command{Use: "get", Short: "Show routes (what routing alone does)", Example: "  llmq routing get --json", Args: noArgs, RunE: get},
		a.setRoute(), a.kill(), a.resetLive("routing", "Take the kill switch and every live route back"),
	)
	return c
}

func (a *app) setRoute() *cobra.Command {
	var model, lane, mode string
	var percent float64
	var rev revision
	c := &cobra.Command{
		Use:   "set",
		Short: "Route a model's live calls",
		Long:  "Route a model's live calls: by --mode, or by the percentage of sessions that queue (a session stays where it is).",
		Example: "  llmq routing set --model chat-a --lane rt --pct 10\n" +
			"  llmq routing set --model chat-a --mode queue",
		Args: noArgs,
	}
	f := c.Flags()
	f.StringVar(&model, "model", "", "alias of the model")
	f.StringVar(&lane, "lane", string(llmq.LaneRT), "rt; bg and bulk always queue")
	f.StringVar(&mode, "mode", "", "auto, direct or queue")
	f.Float64Var(&percent, "pct", 0, "sessions that queue, 0 to 100 in a hundred")
	rev.flag(c)
	if err := c.MarkFlagRequired("model"); err != nil {
		panic(err) // the flag is above
	}
	c.MarkFlagsOneRequired("mode", "pct")
	_ = c.RegisterFlagCompletionFunc("model", a.completeModels) // it fails for a name that is no flag
	c.RunE = a.does(func(ctx context.Context, _ []string) error {
		r := admin.RouteRequest{Model: model, Lane: llmq.Lane(lane), Mode: mode, Revision: rev.asked()}
		if f.Changed("pct") {
			r.QueuePercent = &percent
		}
		return tell(ctx, a, "/routing/set", r, a.changed)
	})
	return c
}

func (a *app) kill() *cobra.Command {
	var rev revision
	c := &cobra.Command{
		Use:   "kill on|off",
		Short: "Throw the kill switch: nothing is queued",
		Long: `Throw the kill switch. While it is on nothing is queued: live calls run where their callers wait, as slots are free; all else is
refused with queue_unavailable. What lies in the queues is run.`,
		Example:   "  llmq routing kill on",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"on", "off"},
		RunE: a.does(func(ctx context.Context, args []string) error {
			on := args[0] == "on"
			if !on && args[0] != "off" {
				return usagef("%q: the kill switch is on or off", args[0])
			}
			return tell(ctx, a, "/routing/kill", admin.KillRequest{On: &on, Revision: rev.asked()}, a.changed)
		}),
	}
	rev.flag(c)
	return c
}

// routes shows every model's route.
func (a *app) routes(v admin.RoutingView) []table.Table {
	if v.Killed {
		fmt.Fprintln(a.err, a.note("the kill switch is on: nothing is queued", table.Bad))
	}
	if v.Fault != "" {
		fmt.Fprintln(a.err, a.note("what is stored is not followed: "+v.Fault, table.Bad))
	}
	t := table.Table{Columns: []table.Column{{Head: "MODEL"}, {Head: "MODE"}, {Head: "QUEUES", Right: true}, {Head: "FAILOVER"}}}
	for _, m := range v.Models {
		queues := m.QueuePercent
		if m.Mode == config.RoutingQueue {
			queues = 100
		}
		failover := table.Cell{}
		if m.FailoverMS > 0 {
			failover = table.Cell{Text: "without its queue for " + (time.Duration(m.FailoverMS) * time.Millisecond).Round(time.Second).String(), Style: table.Warn}
		}
		t.Rows = append(t.Rows, []table.Cell{
			table.Text(m.Model), table.Text(string(m.Mode)), table.Text(strconv.FormatFloat(queues, 'f', -1, 64) + " %"), failover,
		})
	}
	return []table.Table{t}
}
