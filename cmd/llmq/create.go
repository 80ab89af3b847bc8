package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
)

func (a *app) create() *cobra.Command {
	var w which
	var ask admin.CreateRequest
	c := &cobra.Command{
		Use:   "create [QUEUE]",
		Short: "Create queues that are missing; not on AWS",
		Long: `Create a queue of this deployment with its dead-letter queue, or, where none is named, all that are missing. A queue that there is
stays as it is. On AWS infrastructure code creates them, with the event sources that feed them to their workers.`,
		Example: "  llmq queues create\n" +
			"  llmq queues create llm-chat-a --visibility-secs 330 --max-receives 1000 --retention-secs 345600",
		Args: cobra.MaximumNArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if len(args) > 0 || w != (which{}) {
				named, err := w.ask(args)
				if err != nil {
					return err
				}
				ask.Queue, ask.Model, ask.Lane = named.Queue, named.Model, named.Lane
			}
			api, err := a.admin(ctx)
			if err != nil {
				return err
			}
			raw, err := api.Post(ctx, "/queues/create", ask)
			if err != nil {
				return err
			}
			return answer(a, raw, createdTables)
		}),
		ValidArgsFunction: a.completeQueues,
	}
	w.flags(c)
	c.Flags().IntVar(&ask.VisibilitySecs, "visibility-secs", 0, "how long a message that was received is hidden; the timeout of the queue's function where nothing is said")
	c.Flags().IntVar(&ask.MaxReceives, "max-receives", 0, "receives of a message before SQS makes it a dead letter, releases among them; 1000 where nothing is said")
	c.Flags().IntVar(&ask.RetentionSecs, "retention-secs", 0, "how long a message is kept; 345600 where nothing is said")
	return c
}

func createdTables(c admin.Created) []table.Table {
	t := table.Table{Columns: []table.Column{
		{Head: "QUEUE"}, {Head: "CREATED"}, {Head: "VISIBILITY", Right: true}, {Head: "RECEIVES", Right: true}, {Head: "KEPT", Right: true}, {Head: "DEAD LETTERS"},
	}}
	for _, q := range c.Queues {
		if !q.Created {
			t.Rows = append(t.Rows, []table.Cell{table.Text(string(q.Queue)), {Text: "was there", Style: table.Faint}, {}, {}, {}, table.Text(string(q.DLQ))})
			continue
		}
		t.Rows = append(t.Rows, []table.Cell{
			table.Text(string(q.Queue)),
			{Text: "created", Style: table.Good},
			table.Text(strconv.Itoa(q.VisibilitySecs) + " s"), table.Text(strconv.Itoa(q.MaxReceives)), table.Text(strconv.Itoa(q.RetentionSecs) + " s"),
			table.Text(string(q.DLQ)),
		})
	}
	return []table.Table{t}
}
