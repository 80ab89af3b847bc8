package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// statusAnswer is what GET /status answers.
type statusAnswer struct {
	admin.Status
	Sources []admin.SourceStatus `json:"sources"`
	Routing admin.RoutingView    `json:"routing"`
}

func (a *app) status() *cobra.Command {
	var watch bool
	var every time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "What waits and runs, and what limits it",
		Long: `What waits and runs: every queue's messages and what feeds it to its worker, every target's limit and use.

IN USE is calls in flight of how many may be now. LIMITED BY says where that comes from: configured, learned (from
refusals that agree), suspected (refused at a different width each time), unproven (nothing was refused yet).
RPM LEFT and TPM LEFT are what an rt call could draw at this instant, SHARED those of the provider's budget. A wider terminal shows
more. A program that reads --watch gets a line of JSON each time.`,
		Example: "  llmq status --watch",
		Args:    noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if watch && every < time.Second {
				return usagef("--every is %v; it must be a second or more", every)
			}
			api, err := a.admin(ctx)
			if err != nil {
				return err
			}
			if watch {
				return a.watchStatus(ctx, api, every)
			}
			raw, err := api.Get(ctx, "/status", nil)
			if err != nil {
				return err
			}
			return answer(a, raw, statusTables)
		}),
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "look again and again, until Ctrl-C")
	c.Flags().DurationVar(&every, "every", 2*time.Second, "how often --watch looks")
	return c
}

// The terminal's other screen, on which a watch leaves no trace.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

// watchStatus shows the status until ctx ends, which is no error: it is how one stops watching. What can't be read is told
// in its place and tried again, unless that is so from the start.
func (a *app) watchStatus(ctx context.Context, api *remote.Remote, every time.Duration) error {
	raw, err := api.Get(ctx, "/status", nil)
	if err != nil {
		return err
	}
	if a.tables() {
		fmt.Fprint(a.out, enterScreen)
		defer fmt.Fprint(a.out, leaveScreen)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := a.drawStatus(api.Host(), every, raw, err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if raw, err = api.Get(ctx, "/status", nil); ctx.Err() != nil {
			return nil
		}
		var refused *remote.Refused
		if errors.As(err, &refused) && refused.Status/100 == 4 && refused.RetryAfter == 0 {
			return err // asking again does not help
		}
	}
}

func (a *app) drawStatus(host string, every time.Duration, raw json.RawMessage, failed error) error {
	if !a.tables() {
		if failed != nil {
			a.say("llmq: %v; trying again", failed)
			return nil
		}
		return json.NewEncoder(a.out).Encode(raw) // compact, on a line
	}
	columns, rows := a.size()
	var page strings.Builder
	fmt.Fprintf(&page, "%s  %s  every %v, Ctrl-C ends\n\n", host, time.Now().Format(time.TimeOnly), every)
	if failed != nil {
		page.WriteString(failed.Error() + "\n")
	} else {
		var st statusAnswer
		if err := json.Unmarshal(raw, &st); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		for _, t := range statusTables(st) {
			page.WriteString(t.Render(columns, a.colour(true)) + "\n")
		}
	}
	shown := strings.ReplaceAll(fitting(page.String(), rows), "\n", clearLine+"\n")
	_, err := io.WriteString(a.out, home+shown+clearRest) // over what is there, without flicker
	return err
}

// fitting is as much of a page as a terminal of so many rows shows without scrolling.
func fitting(page string, rows int) string {
	lines := strings.SplitAfter(strings.TrimRight(page, "\n"), "\n")
	if rows < 3 || len(lines) <= rows-1 { // the last row is the cursor's
		return strings.Join(lines, "") + "\n"
	}
	return strings.Join(lines[:rows-2], "") + fmt.Sprintf("… %d lines more; a taller terminal shows them\n", len(lines)-rows+2)
}

func statusTables(st statusAnswer) []table.Table {
	sources := map[queue.Name]admin.SourceStatus{}
	for _, s := range st.Sources {
		sources[s.Queue] = s
	}
	queues := table.Table{Title: "Queues", Columns: []table.Column{
		{Head: "MODEL"},
		{Head: "LANE"},
		{Head: "WAITING", Right: true},
		{Head: "DELAYED", Right: true},
		{Head: "RECEIVED", Right: true},
		{Head: "DEAD", Right: true},
		{Head: "SOURCE"},
		{Head: "WORKERS", Right: true},
		{Head: "GOVERNOR", Drop: 1},
		{Head: "ERROR"},
	}}
	for _, q := range st.Queues {
		s := sources[q.Queue]
		queues.Rows = append(queues.Rows, append([]table.Cell{table.Text(q.Model), table.Text(string(q.Lane))}, queueCells(q, s)...))
	}
	targets := table.Table{Title: "Targets", Columns: []table.Column{
		{Head: "TARGET"},
		{Head: "IN USE", Right: true},
		{Head: "LANES", Drop: 5},
		{Head: "LIMITED BY"},
		{Head: "RT WAITS", Right: true, Drop: 3},
		{Head: "RPM LEFT", Right: true},
		{Head: "TPM LEFT", Right: true},
		{Head: "SHARED RPM", Right: true, Drop: 4},
		{Head: "SHARED TPM", Right: true, Drop: 4},
		{Head: "BREAKER"},
		{Head: "OK", Right: true, Drop: 2},
		{Head: "THROTTLED", Right: true, Drop: 1},
		{Head: "FAILED", Right: true, Drop: 1},
		{Head: "NOTE"},
		{Head: "LEARNED", Drop: 6},
	}}
	for _, t := range st.Targets {
		targets.Rows = append(targets.Rows, targetCells(t))
	}
	tables := []table.Table{queues, targets}
	if routes := routeRows(st.Routing); len(routes) > 0 {
		tables = append(tables, table.Table{Title: "Not by the queue", Columns: []table.Column{{Head: "MODEL"}, {Head: "ROUTE"}}, Rows: routes})
	}
	return tables
}

// routeRows are the models whose live calls don't just queue.
func routeRows(v admin.RoutingView) [][]table.Cell {
	var rows [][]table.Cell
	row := func(model, says string) {
		rows = append(rows, []table.Cell{table.Text(model), {Text: says, Style: table.Warn}})
	}
	if v.Fault != "" {
		row("", "can't be told: "+v.Fault)
	}
	if v.Killed {
		row("all", "the kill switch is on: nothing is queued")
	}
	for _, m := range v.Models {
		if m.FailoverMS > 0 {
			row(m.Model, "its queue takes nothing: live calls run at the door for "+(time.Duration(m.FailoverMS)*time.Millisecond).Round(time.Second).String())
		}
		switch {
		case m.Mode == config.RoutingQueue:
		case m.QueuePercent > 0:
			row(m.Model, fmt.Sprintf("%s, but %g %% of sessions queue", m.Mode, m.QueuePercent))
		default:
			row(m.Model, string(m.Mode))
		}
	}
	return rows
}

// limitedBy says where a target's limit comes from, and of a configured one which layer where that is not the file or a default.
func limitedBy(t admin.TargetStatus) string {
	switch t.CapFrom {
	case config.FromLiveModel, config.FromLiveProvider:
		return t.LimitIs + ", cap set live"
	case config.FromEnv:
		return t.LimitIs + ", cap of a variable"
	default:
		return t.LimitIs
	}
}

// queueCells are a queue's counts and what feeds it.
func queueCells(q admin.QueueStatus, s admin.SourceStatus) []table.Cell {
	cells := make([]table.Cell, 0, 8)
	if q.Error == "" {
		cells = append(cells, count(q.Waiting, table.Plain), count(q.Delayed, table.Plain), count(q.Received, table.Plain), count(q.DeadLetters, table.Bad))
	} else {
		cells = append(cells, table.Cell{}, table.Cell{}, table.Cell{}, table.Cell{})
	}
	state := table.Cell{Text: strings.ToLower(string(s.State)), Style: table.Good}
	if s.State != queue.SourceEnabled {
		state.Style = table.Warn
	}
	workers := ""
	if s.Error == "" && s.State != "" {
		workers = fmt.Sprintf("%d/%d", s.MaxConcurrency, s.Ceiling)
	}
	cells = append(cells, state, table.Text(workers))
	governor := table.Cell{}
	if g := s.Governor; g != nil {
		governor = table.Text(fmt.Sprintf("wants %d: %s", g.Want, g.Reason))
		if g.Want == 0 {
			governor.Text = string(g.Reason)
		}
		if !g.Moves {
			governor.Style = table.Faint
		}
	}
	return append(cells, governor, table.Cell{Text: joined(q.Error, s.Error), Style: table.Bad})
}

func joined(parts ...string) string {
	var some []string
	for _, p := range parts {
		if p != "" {
			some = append(some, p)
		}
	}
	return strings.Join(some, "; ")
}

// count is a number; zero is of no interest.
func count(n int, s table.Style) table.Cell {
	if n == 0 {
		s = table.Faint
	}
	return table.Cell{Text: fmt.Sprint(n), Style: s}
}

func targetCells(t admin.TargetStatus) []table.Cell {
	cells := []table.Cell{table.Text(t.Target)}
	if t.TargetUse == nil {
		cells = append(cells, make([]table.Cell, 12)...)
		return append(cells, table.Cell{Text: t.Error, Style: table.Bad})
	}
	u := t.TargetUse
	note := table.Cell{}
	if u.QuarantineMS > 0 {
		note = table.Cell{Text: "nothing starts for " + (time.Duration(u.QuarantineMS) * time.Millisecond).Round(time.Second).String() + ": the state store is new", Style: table.Warn}
	}
	return append(cells,
		table.Text(fmt.Sprintf("%d/%d", u.InUse, u.Limit)), table.Text(lanesInUse(u.Lanes)), table.Text(limitedBy(t)), count(u.Waiting, table.Warn),
		left(u.Budgets.RPMLeft, t.Caps.RPM), left(u.Budgets.TPMLeft, t.Caps.TPM),
		left(u.Budgets.SharedRPMLeft, t.Caps.ProviderRPM), left(u.Budgets.SharedTPMLeft, t.Caps.ProviderTPM), breakerCell(u.Breaker, u.OpenForMS),
		count(u.Ended[capacity.OK], table.Plain), count(u.Ended[capacity.Throttled], table.Warn), count(u.Ended[capacity.Failed], table.Bad), note,
		table.Cell{Text: u.Learned, Style: table.Faint})
}

// lanesInUse says whose the slots in use are: "rt 2, bg 1".
func lanesInUse(lanes map[llmq.Lane]int) string {
	var parts []string
	for _, l := range llmq.Lanes() {
		if n := lanes[l]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", l, n))
		}
	}
	return strings.Join(parts, ", ")
}

// left is what is left of a budget: "6 of 60".
func left(n *int, of int) table.Cell {
	if n == nil {
		return table.Cell{}
	}
	c := table.Text(fmt.Sprintf("%d of %d", *n, of))
	if *n == 0 {
		c.Style = table.Warn
	}
	return c
}
