package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
)

func (a *app) redrive() *cobra.Command {
	var w which
	var ask admin.RedriveRequest
	c := &cobra.Command{
		Use:   "redrive [QUEUE]",
		Short: "Send dead letters again",
		Long: `Send a queue's dead letters again, each as a new message with a fresh deadline, page by page until all were looked at.
What can't but die again (a bad message, the wrong queue) stays where it is, unless --reason asks for it. Ctrl-C stops after
the page that runs; what was sent stays sent.`,
		Example: "  llmq queues redrive llm-chat-a --dry-run\n" +
			"  llmq queues redrive --model chat-a --lane bg --reason worker_crash --max-rate 50",
		Args: cobra.MaximumNArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			named, err := w.ask(args)
			if err != nil {
				return err
			}
			ask.Queue, ask.Model, ask.Lane = named.Queue, named.Model, named.Lane
			api, err := a.admin(ctx)
			if err != nil {
				return err
			}
			raw, err := a.redriveAll(ctx, api, ask)
			if err != nil {
				return err
			}
			return answer(a, raw, redriveTables)
		}),
		ValidArgsFunction: a.completeQueues,
	}
	w.flags(c)
	c.Flags().StringVar(&ask.Reason, "reason", "", "only those with this reason, an error code; none is those that SQS moved by itself")
	c.Flags().IntVar(&ask.MaxRate, "max-rate", 10, "messages a second, 1 to 500")
	c.Flags().BoolVar(&ask.DryRun, "dry-run", false, "only say what would be sent, and how long it would take")
	return c
}

// redriveAll asks for page after page, and returns the last, whose counts are of all. A page that runs is waited for also
// after Ctrl-C: the server goes on with it anyway, and its counts would be lost.
func (a *app) redriveAll(ctx context.Context, api *remote.Remote, ask admin.RedriveRequest) (json.RawMessage, error) {
	bar := progress{a: a}
	defer bar.end()
	for {
		raw, err := api.Post(context.WithoutCancel(ctx), "/queues/redrive", ask)
		if err != nil {
			return nil, err
		}
		var page admin.Redriven
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		if page.Done || page.Cursor == "" || page.DryRun {
			return raw, nil
		}
		bar.step(page)
		if ctx.Err() != nil {
			bar.end()
			a.say("stopped after %d messages; ask again to go on", page.Moved)
			return nil, context.Cause(ctx)
		}
		ask.Cursor = page.Cursor
	}
}

// progress tells how far a redrive is: by a bar on a terminal, else a line per page.
type progress struct {
	a     *app
	all   int
	drawn bool
}

const barWidth = 30

func (p *progress) step(page admin.Redriven) {
	looked := 0
	for _, n := range page.Reasons {
		looked += n
	}
	p.all = max(p.all, page.Left, looked)
	if !p.a.errTerminal {
		p.a.say("%d of about %d sent again", page.Moved, p.all)
		return
	}
	full := barWidth * looked / max(1, p.all)
	fmt.Fprintf(p.a.err, "\r[%s%s] %d of about %d looked at, %d sent again", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), looked, p.all, page.Moved)
	p.drawn = true
}

func (p *progress) end() {
	if p.drawn {
		fmt.Fprintln(p.a.err)
		p.drawn = false
	}
}

func redriveTables(r admin.Redriven) []table.Table {
	t := table.Table{Title: string(r.Queue), Columns: []table.Column{{Head: "DEAD LETTERS"}, {Head: "COUNT", Right: true}, {Head: "WHY"}}}
	row := func(what string, n int, s table.Style, why string) {
		if n > 0 {
			t.Rows = append(t.Rows, []table.Cell{{Text: what, Style: s}, table.Text(fmt.Sprint(n)), {Text: why, Style: table.Faint}})
		}
	}
	if r.DryRun {
		about := ""
		if r.Estimated {
			about = ", reckoned from the first thousand"
		}
		t.Rows = append(t.Rows, []table.Cell{
			{Text: "would be sent again", Style: table.Good}, table.Text(fmt.Sprint(r.Matching)), {Text: fmt.Sprintf("of about %d, in %d s%s", r.Left, r.Seconds, about), Style: table.Faint},
		})
	} else {
		t.Rows = append(t.Rows, []table.Cell{{Text: "sent again", Style: table.Good}, table.Text(fmt.Sprint(r.Moved))})
	}
	row("sent, not deleted", r.Twice, table.Warn, "they come up again; one of both runs")
	row("came back", r.CameBack, table.Warn, "they died after this redrive began")
	for _, reason := range slices.Sorted(maps.Keys(r.Hopeless)) {
		next := "; --reason " + reason + " sends it all the same"
		if reason == string(llmq.CodeSenderNotAllowed) {
			next = "; only its producer can send it anew"
		}
		row("hopeless", r.Hopeless[reason], table.Warn, reason+next)
	}
	row("skipped", r.Skipped, table.Plain, "another reason than asked for")
	row("unreadable", r.Unreadable, table.Bad, "no requests; only their producer can send them anew")
	row("unknown", r.Unknown, table.Bad, "it can't be told whose they are")
	row("failed", r.Failed, table.Bad, "the queue did not take them; ask again")
	row("out of sight", r.OutOfSight, table.Plain, "hidden by an earlier look; ask again in two minutes")
	return []table.Table{t}
}
