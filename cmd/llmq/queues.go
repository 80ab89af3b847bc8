package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// queuesAnswer is what GET /queues answers.
type queuesAnswer struct {
	Queues []admin.QueueState `json:"queues"`
}

func (a *app) queues() *cobra.Command {
	list := a.does(func(ctx context.Context, _ []string) error {
		api, err := a.admin(ctx)
		if err != nil {
			return err
		}
		raw, err := api.Get(ctx, "/queues", nil)
		if err != nil {
			return err
		}
		return answer(a, raw, queuesTables)
	})
	c := &cobra.Command{
		Use:     "queues",
		Short:   "List queues and dead letters; redrive, create, purge, pause and resume",
		Long:    "List queues with their messages, their dead letters and what feeds them. A queue is named by itself, or by --model and --lane.",
		Example: "  llmq queues\n  llmq queues redrive llm-chat-a --dry-run",
		Args:    noArgs,
		RunE:    list,
	}
	c.AddCommand(
		&cobra.Command{
			Use: "list", Short: "List queues (what queues alone does)", Example: "  llmq queues list --json", Args: noArgs, RunE: list,
		},
		a.dead(),
		a.redrive(),
		a.create(),
		a.purge(),
		a.flip("pause", "Stop what feeds a queue to its worker",
			"Stop what feeds a queue to its worker. Calls are still taken and wait until the queue is resumed or their deadline passes; calls that run are not stopped."),
		a.flip("resume", "Start what feeds a queue to its worker", "Start what feeds a queue to its worker. Calls whose deadline has passed meanwhile end as expired."),
	)
	return c
}

func queuesTables(qs queuesAnswer) []table.Table {
	t := table.Table{Columns: []table.Column{
		{Head: "QUEUE"},
		{Head: "WAITING", Right: true},
		{Head: "DELAYED", Right: true},
		{Head: "RECEIVED", Right: true},
		{Head: "DEAD", Right: true},
		{Head: "SOURCE"},
		{Head: "WORKERS", Right: true},
		{Head: "GOVERNOR", Drop: 1},
		{Head: "ERROR"},
		{Head: "CHANGED", Drop: 2},
	}}
	for _, q := range qs.Queues {
		changed := ""
		if at := q.Source.Changed; at != nil {
			changed = at.UTC().Format(time.DateTime)
		}
		cells := append([]table.Cell{table.Text(string(q.Queue))}, queueCells(q.QueueStatus, q.Source)...)
		t.Rows = append(t.Rows, append(cells, table.Cell{Text: changed, Style: table.Faint}))
	}
	return []table.Table{t}
}

// which names a queue: by its own name or by model and lane.
type which struct{ model, lane string }

// flags adds what names a queue in place of an argument.
func (w *which) flags(c *cobra.Command) {
	c.Flags().StringVar(&w.model, "model", "", "model of the queue, with --lane")
	c.Flags().StringVar(&w.lane, "lane", "", "lane of the queue: rt, bg or bulk")
}

// ask is the argument, or the flags.
func (w *which) ask(args []string) (admin.SwitchRequest, error) {
	switch {
	case len(args) == 1 && (w.model != "" || w.lane != ""):
		return admin.SwitchRequest{}, usagef("name the queue, or --model and --lane, not both")
	case len(args) == 1:
		return admin.SwitchRequest{Queue: queue.Name(args[0])}, nil
	case w.model == "" || w.lane == "":
		return admin.SwitchRequest{}, usagef("which queue? name it (llmq queues lists them), or use --model and --lane")
	}
	return admin.SwitchRequest{Model: w.model, Lane: llmq.Lane(w.lane)}, nil
}

// flip is pause or resume.
func (a *app) flip(verb, short, long string) *cobra.Command {
	var w which
	c := &cobra.Command{
		Use:   verb + " [QUEUE]",
		Short: short,
		Long:  long + " Lambda does it in seconds to a minute; llmq queues shows when it has arrived.",
		Example: "  llmq queues " + verb + " llm-chat-a-bulk\n" +
			"  llmq queues " + verb + " --model chat-a --lane bulk",
		Args: cobra.MaximumNArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			ask, err := w.ask(args)
			if err != nil {
				return err
			}
			api, err := a.admin(ctx)
			if err != nil {
				return err
			}
			raw, err := api.Post(ctx, "/queues/"+verb, ask)
			if err != nil {
				return err
			}
			return answer(a, raw, func(s admin.Switched) []table.Table {
				a.say("%s", s.Note)
				return []table.Table{{
					Columns: []table.Column{{Head: "QUEUE"}, {Head: "SOURCE"}},
					Rows:    [][]table.Cell{{table.Text(string(s.Queue)), {Text: strings.ToLower(string(s.State)), Style: table.Warn}}},
				}}
			})
		}),
		ValidArgsFunction: a.completeQueues,
	}
	w.flags(c)
	return c
}

func (a *app) purge() *cobra.Command {
	var confirm string
	c := &cobra.Command{
		Use:   "purge QUEUE",
		Short: "Empty a queue for good",
		Long: `Empty a queue, or its dead-letter queue (QUEUE-dlq), for good. Callers who wait for what was in it get a time-out at their
deadline; calls that run go on. SQS empties a queue once in 60 s at most.`,
		Example: "  llmq queues purge llm-emb-a-bulk --confirm llm-emb-a-bulk",
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if confirm != args[0] {
				return usagef("it can't be undone: repeat the name, --confirm %s", args[0])
			}
			api, err := a.admin(ctx)
			if err != nil {
				return err
			}
			raw, err := api.Post(ctx, "/queues/purge", admin.PurgeRequest{Queue: queue.Name(args[0]), Confirm: queue.Name(confirm)})
			if err != nil {
				return err
			}
			return answer(a, raw, func(p admin.Purged) []table.Table {
				a.say("%s", p.Note)
				return []table.Table{{
					Columns: []table.Column{{Head: "QUEUE"}, {Head: "MESSAGES", Right: true}},
					Rows:    [][]table.Cell{{table.Text(string(p.Queue)), count(p.Messages, table.Plain)}},
				}}
			})
		}),
		ValidArgsFunction: a.completeQueues,
	}
	c.Flags().StringVar(&confirm, "confirm", "", "the queue's name again")
	return c
}

// completeWithin bounds what a completion may take of a person's time.
const completeWithin = 2 * time.Second

// completeQueues names the queues to a shell.
func (a *app) completeQueues(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var qs queuesAnswer
	if !a.look(cmd.Context(), "/queues", &qs) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, q := range qs.Queues {
		names = append(names, string(q.Queue))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
