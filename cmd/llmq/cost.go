package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq/awscost"
)

// costFlags say what is priced.
type costFlags struct {
	file        string // of counts
	day         string // of a deployment; "" is yesterday
	callSeconds float64
	reset       bool
}

func (a *app) cost() *cobra.Command {
	var f costFlags
	c := &cobra.Command{
		Use:   "cost",
		Short: "What AWS would bill: per million calls, idle, and what changes would do",
		Long: `What AWS would bill for the operations that a local cloud has counted since its start or the last --reset: item by item for a
million calls like those counted, for a month without a call, and what each lever would change. Models are not in it.

With --env it is a day of a deployment, by what CloudWatch and Lambda tell your own AWS identity; what they don't tell is listed.

Prices are of a dated list that comes with this program; look them up before you rely on a sum. The state store's ECPU are
estimated: one for each command, those of scripts too, and one for each KB.`,
		Example: "  llmq cost --reset\n  llmq cost --call-seconds 10\n  llmq cost --env prod --day 2026-11-30\n  llmq cost --json > counts.json; llmq cost --counts counts.json",
		Args:    noArgs,
		RunE:    a.does(func(ctx context.Context, _ []string) error { return a.runCost(ctx, f) }),
	}
	c.Flags().StringVar(&f.file, "counts", "", "a file with what was counted, as --json writes it, in place of a local cloud; - is the standard input")
	c.Flags().StringVar(&f.day, "day", "", "the day of a deployment (--env), as 2026-11-30, in UTC; else it is yesterday")
	c.Flags().Float64Var(&f.callSeconds, "call-seconds", 0, "how long the provider took for a call, which nobody counts: some levers need it")
	c.Flags().BoolVar(&f.reset, "reset", false, "count anew from now, once this was told")
	c.MarkFlagsMutuallyExclusive("counts", "reset", "day")
	return c
}

func (a *app) runCost(ctx context.Context, f costFlags) error {
	if f.callSeconds < 0 {
		return usagef("--call-seconds is %g, must be above 0", f.callSeconds)
	}
	r, err := a.reading(ctx, f)
	if err != nil {
		return err
	}
	if f.callSeconds > 0 {
		r.Counts.CallSeconds = f.callSeconds * r.Counts.Calls
	}
	prices, err := awscost.Load()
	if err != nil {
		return err
	}
	s := statement{prices.Statement(r), r.Standing}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write the statement: %w", err)
	}
	if err := answer(a, text, costTables); err != nil {
		return err
	}
	a.say("prices of %s, %s. %s", s.PricesOf, s.Region, s.Note)
	if !s.MonthCounted {
		a.say("the month is by formula: %.0f s are too short to tell how often queues are polled", r.Counts.Seconds)
	}
	if r.Standing == nil {
		a.say("what stands (alarms, secrets and the like) is not known, and not in the month")
	}
	for _, what := range r.Counts.Uncounted {
		a.say("not counted: %s", what)
	}
	return nil
}

// statement is what llmq cost tells a program. It can be read again as counts.
type statement struct {
	awscost.Statement

	Standing *awscost.Standing `json:"standing,omitempty"`
}

// reading is what was counted: by a file, by the metrics of a deployment, or by the local cloud.
func (a *app) reading(ctx context.Context, f costFlags) (r awscost.Reading, err error) {
	var text []byte
	switch deployed := a.envName != "" && a.envName != envLocal; {
	case f.file != "":
		text, err = a.countsFile(f.file)
	case deployed && f.reset:
		return r, usagef("--reset is for a local cloud; a deployment is counted by the day")
	case deployed:
		r.Counts, err = a.countsOfDay(ctx, f.day)
		return r, err
	case a.adminURL != "":
		return r, usagef("a deployment's cost is found by --env, not by --admin-url")
	case f.day != "":
		return r, usagef("--day is for a deployment: name it by --env")
	default:
		text, err = a.countsOfCloud(ctx, f.reset)
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read the counts: %w", err)
	}
	if r.Counts.Seconds <= 0 {
		return r, errors.New("read the counts: they tell of no time (counts.seconds)")
	}
	return r, nil
}

// mostCountsBytes bounds a file of counts.
const mostCountsBytes = 1 << 20

func (a *app) countsFile(name string) ([]byte, error) {
	in := a.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, usageError{err.Error()}
		}
		defer file.Close() // it was only read
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, mostCountsBytes))
	if err != nil {
		return nil, fmt.Errorf("read the counts: %w", err)
	}
	return text, nil
}

func (a *app) countsOfCloud(ctx context.Context, anew bool) ([]byte, error) {
	c, err := a.localCloud("use --counts")
	if err != nil {
		return nil, err
	}
	if c.CountsURL == "" {
		return nil, errors.New("the local cloud that runs here does not count yet: it is older than this program")
	}
	api, err := a.open(c.CountsURL, remote.Anonymous())
	if err != nil {
		return nil, err
	}
	if anew {
		return api.Post(ctx, "/reset", struct{}{})
	}
	return api.Get(ctx, "", nil)
}

func costTables(s statement) []table.Table {
	items := func(title, count string, all []awscost.Item, n, usd float64) table.Table {
		t := table.Table{Title: title, Columns: []table.Column{{Head: "ITEM"}, {Head: count, Right: true}, {Head: "UNIT"}, {Head: "USD", Right: true}}}
		for _, i := range all {
			t.Rows = append(t.Rows, []table.Cell{table.Text(i.Name), table.Text(awscost.Amount(i.Count / n)), table.Text(i.Unit), table.Text(dollars(i.USD))})
		}
		t.Rows = append(t.Rows, []table.Cell{table.Text("together"), {}, {}, table.Text(dollars(usd))})
		return t
	}
	const million = 1e6
	var out []table.Table
	if s.Counts.Calls > 0 {
		title := fmt.Sprintf("A million calls like the %s of %s s", awscost.Amount(s.Counts.Calls), awscost.Amount(s.Counts.Seconds))
		out = append(out, items(title, "A CALL", s.Million, million, s.MillionUSD), shapeTable(s.Shape), leverTable(s))
	}
	return append(out, items("A month without a call", "COUNT", s.Month, 1, s.MonthUSD))
}

// shapeTable shows the levers as they stand.
func shapeTable(s awscost.Shape) table.Table {
	t := table.Table{Title: "The levers as they stand", Columns: []table.Column{{Head: "LEVER"}, {Head: "NOW", Right: true}, {Head: "NOTE"}}}
	row := func(name string, now float64, note string) {
		text := "-"
		if now > 0 {
			text = awscost.Amount(now)
		}
		t.Rows = append(t.Rows, []table.Cell{table.Text(name), table.Text(text), {Text: note, Style: table.Faint}})
	}
	held := "callers wait"
	switch {
	case s.APIRequests == 0:
		held = "no call came by the door"
	case s.APIRequests > 1.5: // between one that waits and two, of which none does
		held = "callers submit (202) and ask later"
	}
	row("requests to the door, a call", s.APIRequests, held)
	row("seconds of doors, a call", s.DoorSeconds, "")
	row("batch size: calls an invocation", s.Batch, "at most batch_size")
	unknown := ""
	if s.CallSeconds == 0 {
		unknown = "give --call-seconds"
	}
	row("calls at once in a worker", s.AtOnce, unknown)
	row("seconds of workers, a call", s.WorkerSeconds, "")
	return t
}

func leverTable(s statement) table.Table {
	t := table.Table{Title: "A million calls, if", Columns: []table.Column{{Head: "LEVER"}, {Head: "USD", Right: true}}}
	for _, l := range s.Levers {
		t.Rows = append(t.Rows, []table.Cell{table.Text(l.Name), table.Text(dollars(l.USD))})
	}
	return t
}

func dollars(usd float64) string { return strconv.FormatFloat(usd, 'f', 2, 64) }
