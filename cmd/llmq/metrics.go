package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
)

func (a *app) metrics() *cobra.Command {
	return &cobra.Command{
		Use:   "metrics",
		Short: "What is counted, and what CloudWatch takes for it",
		Long: `What is counted: names, kinds and labels, and how many series each has in CloudWatch for the models, lanes, targets and
chains of this deployment, at most, in hours without faults. The price is that of us-east-1; CloudWatch reckons a series by the hours
in which it has a value. docs/OPERATE.md tells what each means.`,
		Example: "  llmq metrics --json",
		Args:    noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			api, err := a.admin(ctx)
			if err != nil {
				return err
			}
			raw, err := api.Get(ctx, "/metrics", nil)
			if err != nil {
				return err
			}
			return answer(a, raw, metricsTables)
		}),
	}
}

func metricsTables(v admin.MetricsView) []table.Table {
	t := table.Table{Columns: []table.Column{{Head: "METRIC"}, {Head: "KIND"}, {Head: "LABELS"}, {Head: "SERIES", Right: true}, {Head: "NOTE"}}}
	for _, m := range v.Metrics {
		note, series := "", fmt.Sprint(m.Series)
		switch {
		case m.Native:
			note, series = "AWS/SQS has it", "-"
		case m.Rare:
			note, series = "only with a fault", "-"
		}
		t.Rows = append(t.Rows, []table.Cell{table.Text(string(m.Name)), table.Text(m.Kind), table.Text(strings.Join(m.Labels, ", ")), table.Text(series), {Text: note, Style: table.Faint}})
	}
	t.Rows = append(t.Rows, []table.Cell{
		table.Text("in all"),
		{},
		{},
		table.Text(fmt.Sprint(v.Series)),
		{Text: fmt.Sprintf("$%.2f/month", v.Dollars)},
	})
	return []table.Table{t}
}
