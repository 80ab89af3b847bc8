package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llm-queue/llmq/cmd/llmq/internal/remote"
	"github.com/llm-queue/llmq/cmd/llmq/internal/table"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

func (a *app) doctor() *cobra.Command {
	var ask admin.DoctorRequest
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look at everything once; say what is wrong, and what to do",
		Long: `Look at everything once: the door, the state store's rights and latency, secrets, keys, queues and what feeds them, and a message through
each lane, whose deadline has passed: a worker takes it and answers, and no provider is called. On AWS also, by your own identity: model access,
Bedrock's applied quotas, secrets, the policies of producers, and the concurrency quota.

What a provider itself answers is for llmq call to show. Exit code 1 where a check failed.`,
		Example: "  llmq doctor\n  llmq doctor --env prod --json | jq '.findings[] | select(.verdict != \"ok\")'",
		Args:    noArgs,
		RunE:    a.does(func(ctx context.Context, _ []string) error { return a.runDoctor(ctx, ask) }),
	}
	c.Flags().BoolVar(&ask.NewStore, "new-store", false, "the state store is new, and no call was in flight when it came: calls may start at once")
	return c
}

// findings is what llmq doctor tells a program.
type findings struct {
	Findings []admin.Finding `json:"findings"`
}

func (a *app) runDoctor(ctx context.Context, ask admin.DoctorRequest) error {
	api, err := a.admin(ctx)
	if err != nil {
		return err
	}
	raw, err := api.Post(ctx, "/doctor", ask)
	if err != nil {
		return err
	}
	var told admin.Diagnosis
	if err := json.Unmarshal(raw, &told); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	all := findings{append([]admin.Finding{a.lookAtDoor(ctx)}, told.Findings...)}
	if told.Deployment.Kind == config.KindAWS {
		all.Findings = append(all.Findings, a.lookAtAWS(ctx, told.Deployment)...)
	} else {
		all.Findings = append(all.Findings, admin.Finding{
			Check: "aws", Verdict: admin.Skipped, Detail: "model access, quotas, secrets and policies are those of a deployment; this one is on a machine",
		})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("write the findings: %w", err)
	}
	if err := answer(a, text, doctorTables); err != nil {
		return err
	}
	if a.tables() {
		a.explain(all.Findings)
	}
	if n := counted(all.Findings, admin.Fail); n > 0 {
		return fmt.Errorf("checks that failed: %d of %d", n, len(all.Findings))
	}
	return nil
}

// counted is how many findings are of a verdict.
func counted(all []admin.Finding, v admin.Verdict) int {
	n := 0
	for _, f := range all {
		if f.Verdict == v {
			n++
		}
	}
	return n
}

// lookAtDoor asks the door for its health, which takes no key.
func (a *app) lookAtDoor(ctx context.Context) admin.Finding {
	f := admin.Finding{Check: "door", Verdict: admin.OK}
	door, err := a.keylessDoor(ctx)
	if err != nil {
		f.Verdict, f.Detail, f.Next = admin.Skipped, err.Error(), "set OPENAI_BASE_URL, or use --url or --env"
		return f
	}
	f.Subject = door.Host()
	if _, err := door.Get(ctx, "/health", nil); err != nil {
		f.Verdict, f.Detail, f.Next = admin.Fail, err.Error(), "look at the log of the function enqueue: it can't start, or its API does not lead there"
		return f
	}
	f.Detail = "answers"
	return f
}

// doctorTables shows what is not well row by row, and what is well in a row for each check.
func doctorTables(all findings) []table.Table {
	t := table.Table{Columns: []table.Column{{Head: "CHECK"}, {Head: "SUBJECT"}, {Head: "RESULT"}, {Head: "FOUND"}}}
	style := map[admin.Verdict]table.Style{admin.OK: table.Good, admin.Warn: table.Warn, admin.Fail: table.Bad, admin.Skipped: table.Faint}
	well := map[string]int{}
	for _, f := range all.Findings {
		if f.Verdict == admin.OK {
			well[f.Check]++
		}
	}
	for _, f := range all.Findings {
		n := well[f.Check]
		switch {
		case f.Verdict == admin.OK && n == 0:
			continue // was told with the first
		case f.Verdict == admin.OK && n > 1:
			well[f.Check] = 0
			f.Subject, f.Detail = fmt.Sprintf("%d of them", n), detailOf(f, all.Findings)
		}
		if f.Verdict != admin.OK {
			f.Detail = "" // told below, whole
		}
		t.Rows = append(t.Rows, []table.Cell{table.Text(f.Check), table.Text(f.Subject), {Text: string(f.Verdict), Style: style[f.Verdict]}, table.Text(f.Detail)})
	}
	return []table.Table{t}
}

// explain tells what is not well, with what to do: a line each, which no width cuts.
func (a *app) explain(all []admin.Finding) {
	for _, f := range all {
		if f.Verdict == admin.OK {
			continue
		}
		fmt.Fprintf(a.out, "\n%s: %s\n", strings.TrimSpace(f.Check+" "+f.Subject), f.Detail)
		if f.Next != "" {
			fmt.Fprintf(a.out, "  → %s\n", f.Next)
		}
	}
}

// detailOf is what the findings of a check that is well say, where that is the same, or the first of them.
func detailOf(first admin.Finding, all []admin.Finding) string {
	for _, f := range all {
		if f.Check == first.Check && f.Verdict == admin.OK && f.Detail != first.Detail {
			return first.Subject + ": " + first.Detail + ", …"
		}
	}
	return first.Detail
}

// keylessDoor is the door for what takes no key.
func (a *app) keylessDoor(ctx context.Context) (*remote.Remote, error) {
	at, err := a.doorBase(ctx)
	if err != nil {
		return nil, err
	}
	return a.open(strings.TrimSuffix(strings.TrimSuffix(at.url, "/"), "/v1"), remote.Anonymous())
}
