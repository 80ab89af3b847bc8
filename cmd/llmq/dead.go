package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
)

func (a *app) dead() *cobra.Command {
	var w which
	var ask admin.DeadRequest
	c := &cobra.Command{
		Use:   "dead [QUEUE]",
		Short: "Show dead letters: why each is one, and whose it is",
		Long: `Show a queue's dead letters: why each is one, how it was tried, the id of its call. They stay where they are. REASON is an error code;
none is what SQS moved by itself, after 1,000 receives. A hopeless one dies again if it is sent again as it is.`,
		Example: "  llmq queues dead llm-chat-a\n  llmq queues dead --model chat-a --lane bulk --limit 100 --json | jq -r '.letters[].id'",
		Args:    cobra.MaximumNArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			named, err := w.ask(args)
			if err != nil {
				return err
			}
			ask.Queue, ask.Model, ask.Lane = named.Queue, named.Model, named.Lane
			return tell(ctx, a, "/queues/dead", ask, a.deadTables)
		}),
		ValidArgsFunction: a.completeQueues,
	}
	w.flags(c)
	c.Flags().IntVar(&ask.Limit, "limit", 20, "letters at most, 1 to 100")
	return c
}

func (a *app) deadTables(d admin.DeadLetters) []table.Table {
	t := table.Table{Title: string(d.Queue), Columns: []table.Column{
		{Head: "REASON"}, {Head: "ATTEMPTS", Right: true}, {Head: "LAST"}, {Head: "ID"}, {Head: "TENANT", Drop: 2}, {Head: "DIED", Drop: 1}, {Head: "ERROR"},
	}}
	for _, l := range d.Letters {
		reason := table.Cell{Text: l.Reason, Style: table.Bad}
		if l.Hopeless {
			reason.Text += " (hopeless)"
		}
		t.Rows = append(t.Rows, []table.Cell{
			reason, count(l.Attempts, table.Plain), table.Text(printable(l.LastClass)), table.Text(printable(l.ID)), table.Text(printable(l.Tenant)),
			{Text: l.Died.UTC().Format(time.DateTime), Style: table.Faint},
			{Text: printable(l.Error), Style: table.Faint},
		})
	}
	switch {
	case len(d.Letters) > 0:
	case d.Left == 0:
		fmt.Fprintf(a.out, "%s has no dead letters\n", d.Queue)
		return nil
	default:
		fmt.Fprintf(a.out, "%s has about %d dead letters, and none is in sight: an earlier look hides them for two minutes at most\n", d.Queue, d.Left)
		return nil
	}
	if n := d.Left - len(d.Letters); n > 0 {
		more := fmt.Sprintf("about %d more", n)
		if d.Hidden > 0 {
			more += fmt.Sprintf(", %d of them out of sight for two minutes at most", min(d.Hidden, n))
		}
		a.say("%s", more)
	}
	if len(d.Letters) > 0 {
		a.say("llmq queues redrive %s --dry-run tells what would be sent again", d.Queue)
	}
	return []table.Table{t}
}
