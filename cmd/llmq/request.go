package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// callsPath is where the door has calls that are left and picked up later.
const callsPath = "/llmq/v1/calls"

func (a *app) request() *cobra.Command {
	c := &cobra.Command{
		Use:     "request",
		Short:   "Show and cancel calls by their ids",
		Long:    "Show, fetch and cancel calls by their ids: of those that the key's tenant has made. llmq call --submit leaves one.",
		Example: "  llmq request show req_q52xeo5rdvgxaauezhfkunutf4 --wait 60",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(a.showRequest(), a.requestResult("request show"), a.cancelRequest())
	return c
}

// mostWait is how many seconds a door can be set to wait (door.wait_secs).
const mostWait = 290

// waitFlag is how long an answer may take until the call has ended.
func waitFlag(c *cobra.Command) *int {
	return c.Flags().Int("wait", 0, "seconds to wait for its end; 0 looks once")
}

func (a *app) showRequest() *cobra.Command {
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Where a call stands",
		Long: `Where a call stands: its state, its attempts, its next try, what served it or went wrong, and the worker that ran it. Its logs
are in the log group of its lane's worker, in the stream that is named as the worker: the filter pattern that is shown finds each line of
the call, in the door's group (llmq-ENV-enqueue) too. LLMQ_LOG_LEVEL=debug has functions log every step. Locally they are what make run
RUNFLAGS=-v prints.`,
		Example: "  llmq request show req_q52xeo5rdvgxaauezhfkunutf4 --wait 60",
		Args:    oneID,
	}
	wait := waitFlag(c)
	c.RunE = a.does(func(ctx context.Context, args []string) error {
		raw, err := a.askCall(ctx, http.MethodGet, args[0], *wait)
		if err != nil {
			return err
		}
		return answer(a, raw, a.callTables)
	})
	return c
}

func (a *app) cancelRequest() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a call for everybody who waits for it",
		Long: `Cancel a call for everybody who waits for it: one that is queued is not run, one that runs is stopped. One that has ended stays
as it is, which is no error.`,
		Example: "  llmq request cancel req_q52xeo5rdvgxaauezhfkunutf4",
		Args:    oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			raw, err := a.askCall(ctx, http.MethodDelete, args[0], 0)
			if err != nil {
				return err
			}
			return answer(a, raw, a.callTables)
		}),
	}
}

// requestResult fetches a reply; show is the verb that tells where the call stands.
func (a *app) requestResult(show string) *cobra.Command {
	c := &cobra.Command{
		Use:     "result ID",
		Short:   "The reply of a call that is done",
		Long:    "The reply of a call that is done, as its provider gave it. A call that has ended otherwise fails here as it did.",
		Example: "  llmq request result req_q52xeo5rdvgxaauezhfkunutf4 --wait 60",
		Args:    oneID,
	}
	wait := waitFlag(c)
	c.RunE = a.does(func(ctx context.Context, args []string) error {
		door, err := a.door(ctx)
		if err != nil {
			return err
		}
		resp, err := door.Do(ctx, http.MethodGet, callPath(args[0], "/result", *wait), nil, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close() // it was read to its end, or the read's error is returned
		if resp.StatusCode == http.StatusAccepted {
			return fmt.Errorf("it has not ended; --wait waits for it, llmq %s %s tells where it stands", show, args[0])
		}
		reply, err := io.ReadAll(resp.Body)
		if err != nil {
			return &remote.Unreachable{Host: door.Host(), Err: err}
		}
		a.meta(resp.Header)
		if json.Valid(reply) {
			return a.printJSON(reply)
		}
		if a.outTerminal { // a stream's frames may be binary
			reply = []byte(printable(string(reply)))
		}
		_, err = a.out.Write(reply)
		return err
	})
	return c
}

// oneID takes an id: a variable that is empty names no call, and asks for none.
func oneID(c *cobra.Command, args []string) error {
	if err := cobra.ExactArgs(1)(c, args); err != nil {
		return err
	}
	if args[0] == "" {
		return usagef("which call? the id is empty")
	}
	return nil
}

func callPath(id, part string, wait int) string {
	path := callsPath + "/" + url.PathEscape(id) + part
	if wait > 0 {
		path += fmt.Sprintf("?wait=%d", wait)
	}
	return path
}

func (a *app) askCall(ctx context.Context, method, id string, wait int) (json.RawMessage, error) {
	door, err := a.door(ctx)
	if err != nil {
		return nil, err
	}
	return door.Ask(ctx, method, callPath(id, "", wait), nil)
}

// submit leaves a call, and tells its id.
func (a *app) submit(ctx context.Context, door *remote.Remote, c calling, body json.RawMessage) error {
	raw, err := door.Post(ctx, callsPath, c.submission(body))
	if err != nil {
		return err
	}
	var left callAnswer
	if err := json.Unmarshal(raw, &left); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if c.quiet {
		_, err := fmt.Fprintln(a.out, left.ID)
		return err
	}
	if err := answer(a, raw, a.callTables); err != nil {
		return err
	}
	a.say("llmq request result %s --wait 60 fetches the reply; llmq request show %s tells where it stands", left.ID, left.ID)
	return nil
}

// submission is a call as the native route has it.
type submission struct {
	ID          string          `json:"id,omitempty"`
	Op          llmq.Op         `json:"op"`
	Model       string          `json:"model"`
	Lane        string          `json:"lane,omitempty"`
	Fallback    string          `json:"fallback,omitempty"`
	TimeoutSecs int             `json:"timeout_secs,omitempty"`
	Body        json.RawMessage `json:"body"`
}

func (c calling) submission(body json.RawMessage) submission {
	op := map[string]llmq.Op{opChat: llmq.OpChat, opResponses: llmq.OpResponses, opConverse: llmq.OpConverse, opInvoke: llmq.OpInvoke, opEmbed: llmq.OpEmbeddings}[c.op]
	return submission{c.id, op, c.model, c.lane, c.fallback, c.timeoutSecs, body}
}

// callAnswer is a call as the door tells of it.
type callAnswer struct {
	ID        string     `json:"id"`
	State     string     `json:"state"`
	CreatedAt *time.Time `json:"created_at"`
	Deadline  *time.Time `json:"deadline"`
	Attempts  int        `json:"attempts"`
	NotBefore *time.Time `json:"not_before"`
	Meta      *llmq.Meta `json:"meta"`
	Error     *struct{ Code, Message string }
}

func (a *app) callTables(c callAnswer) []table.Table {
	t := table.Table{Columns: []table.Column{{Head: "REQUEST"}, {Head: c.ID}}}
	row := func(name, value string, s table.Style) {
		if value != "" {
			t.Rows = append(t.Rows, []table.Cell{{Text: name, Style: table.Faint}, {Text: value, Style: s}})
		}
	}
	at := func(name string, when *time.Time) {
		if when != nil {
			row(name, when.UTC().Format(time.DateTime), table.Plain)
		}
	}
	row("state", c.State, stateStyle(c.State))
	at("created", c.CreatedAt)
	at("deadline", c.Deadline)
	row("attempts", fmt.Sprint(c.Attempts), table.Plain)
	at("next try", c.NotBefore)
	if c.Error != nil {
		row("error", c.Error.Code+": "+c.Error.Message, table.Bad)
	}
	if m := c.Meta; m != nil {
		if m.Target != "" {
			row("target", m.Model+"@"+m.Target, table.Plain)
		}
		row("lane", string(m.Lane), table.Plain)
		if c.State == "done" {
			row("queued", m.QueueWait.Round(time.Millisecond).String(), table.Plain)
			row("provider", m.Provided.Round(time.Millisecond).String(), table.Plain)
		}
		row("worker", m.Worker, table.Faint)
		if m.Lane != "" {
			part := "worker-" + string(m.Lane)
			if m.Provider == llmq.JobProvider { // of a queue of its own
				part = "job-" + m.Model
			}
			row("logs", a.logs(c.ID, part), table.Faint)
		}
	}
	return []table.Table{t}
}

// logs is where the lines of a call are, by its worker's part of the name.
func (a *app) logs(id, part string) string {
	if a.local {
		return "those of llmq-" + part + " in what make run RUNFLAGS=-v prints"
	}
	return fmt.Sprintf("{ $.request_id = %q } in /aws/lambda/llmq-%s-%s", id, cmp.Or(a.envName, "ENV"), part)
}

func stateStyle(state string) table.Style {
	switch state {
	case "done":
		return table.Good
	case "failed", "dead", "expired":
		return table.Bad
	case "cancelled":
		return table.Warn
	}
	return table.Plain
}
