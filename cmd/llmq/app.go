package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// streams are what the program reads and writes, and what of it is a terminal.
type streams struct {
	in                                   io.Reader
	out, err                             io.Writer
	inTerminal, outTerminal, errTerminal bool
	size                                 func() (columns, rows int) // of out's terminal; 0 is not known
}

// app is one run of the program.
type app struct {
	streams
	env      map[string]string
	adminURL string // flags
	doorURL  string
	envName  string
	asJSON   bool
	local    bool           // the door that was opened is on this machine
	asked    *cobra.Command // that ran, or would have
	began    bool           // a command's own work has begun: what fails from then on is no fault of usage
	remotes  []*remote.Remote
}

// run is the program. It returns its exit code.
func run(ctx context.Context, args, env []string, s streams) int {
	a := &app{streams: s, env: map[string]string{}}
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			a.env[name] = value
		}
	}
	defer a.close()
	cmd := a.root()                          //nolint:contextcheck // cobra hands ctx on to what runs
	cmd.SetArgs(append([]string{}, args...)) // nil would be the process's own
	cmd.SetIn(s.in)
	cmd.SetOut(s.out)
	cmd.SetErr(s.err)
	ran, err := cmd.ExecuteContextC(ctx)
	a.asked = ran
	return a.end(ctx, err)
}

func (a *app) close() {
	for _, r := range a.remotes {
		r.Close()
	}
}

// Exit codes; docs/OPERATE.md lists them.
const (
	exitOK          = 0
	exitFailed      = 1 // the request was answered with an error
	exitUsage       = 2 // nothing was sent
	exitUnreachable = 3 // no deployment was found, or it does not answer
	exitForbidden   = 4 // it was asked without the right to
	exitInterrupted = 130
)

// notFound says that no deployment is known.
type notFound struct{ text string }

func (n notFound) Error() string { return n.text }

// usageError is a fault in what was asked, found only once the command ran.
type usageError struct{ text string }

func (u usageError) Error() string { return u.text }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// end tells what went wrong, with the next step, and returns the exit code.
func (a *app) end(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	code, next := exitFailed, ""
	var usage usageError
	var none notFound
	var lost *remote.Unreachable
	var refused *remote.Refused
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(a.err, "llmq: interrupted")
		return exitInterrupted
	case errors.As(err, &usage) || !a.began:
		err = plain(err, a.asked)
		code, next = exitUsage, "--help behind any command shows how it is used"
		if a.asked != nil {
			next = a.asked.CommandPath() + " --help shows how it is used"
		}
	case errors.As(err, &none):
		code = exitUnreachable
	case errors.As(err, &lost):
		code, next = exitUnreachable, "start the local cloud with make run, or set LLMQ_ADMIN_URL and OPENAI_BASE_URL to where llmq is"
	case errors.Is(err, remote.ErrNoCredentials):
		code, next = exitForbidden, "sign in to AWS (aws sso login), or set LLMQ_ADMIN_KEY for a local cloud"
	case errors.As(err, &refused) && refused.Code == string(llmq.CodeUnknownRoute):
		err = errors.New("the deployment does not have this yet: it is older than this program")
	case errors.As(err, &refused):
		code, next = a.refusal(refused)
	}
	fmt.Fprintln(a.err, a.note("llmq: ", table.Bad)+strings.TrimPrefix(err.Error(), "llmq: "))
	if next != "" {
		fmt.Fprintln(a.err, a.note("      "+next, table.Faint))
	}
	return code
}

// refusal is what to do about an answered error.
func (a *app) refusal(r *remote.Refused) (code int, next string) {
	switch {
	case r.Code == string(llmq.CodeWrongWire):
		return exitFailed, opsOf(r.Message)
	case r.Code == string(llmq.CodeForbidden) && strings.Contains(r.Message, "llmq keys create"):
		return exitForbidden, "" // it says what to do
	case r.Status == 401 || r.Status == 403:
		return exitForbidden, "the key, or the AWS identity, does not allow it: LLMQ_ADMIN_KEY is for the admin API, OPENAI_API_KEY for the door"
	case r.Status == 404 && r.Code == "":
		return exitFailed, "it has no such path: is it llmq's?"
	case r.RetryAfter > 0:
		return exitFailed, fmt.Sprintf("ask again after %v", r.RetryAfter)
	case r.Code == "call_not_found":
		return exitFailed, "a key sees the calls of its own tenant, for a day after their deadline"
	case r.Field == "queue":
		return exitFailed, "llmq queues lists them"
	case r.Field == "kid":
		return exitFailed, "llmq keys lists them"
	case r.Field != "" && !strings.Contains(r.Message, r.Field):
		return exitFailed, "it is about " + r.Field
	}
	return exitFailed, ""
}

// tables reports whether people read the output; programs get JSON.
func (a *app) tables() bool { return a.outTerminal && !a.asJSON }

// colour reports whether a stream takes colour.
func (a *app) colour(terminal bool) bool {
	return terminal && a.env["NO_COLOR"] == "" && a.env["TERM"] != "dumb"
}

// note is a text for stderr.
func (a *app) note(text string, s table.Style) string {
	if a.colour(a.errTerminal) {
		return table.Paint(text, s)
	}
	return text
}

// say writes a line for people to stderr.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.err, a.note(fmt.Sprintf(format, args...), table.Faint))
}

// show writes tables, with a blank line in between.
func (a *app) show(ts ...table.Table) {
	columns, _ := a.size()
	for i, t := range ts {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprint(a.out, t.Render(columns, a.colour(a.outTerminal)))
	}
}

// printJSON writes an API's answer as it is, indented.
func (a *app) printJSON(raw json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	b.WriteByte('\n')
	_, err := a.out.Write(b.Bytes())
	return err
}

// answer writes an API's answer: as it is, or as what view makes of it.
func answer[T any](a *app, raw json.RawMessage, view func(T) []table.Table) error {
	if !a.tables() {
		return a.printJSON(raw)
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	a.show(view(v)...)
	return nil
}

// does is a command's own work.
func (a *app) does(work func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.began = true
		return work(cmd.Context(), args)
	}
}
