package telemetry_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// The table of docs/OPERATE.md is made from the list.
func TestDocs_OperatePageHasTheTableOfMetrics(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../../../docs/OPERATE.md", "<!-- metrics: made by pkg/llmq/telemetry -->\n", "<!-- end of metrics -->"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(raw), begin)
	was, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the table", page)
	}
	want := table()
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		was = want
	}
	if diff := cmp.Diff(want, was); diff != "" {
		t.Errorf("stale; run with -update (-want +got):\n%s", diff)
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("| metric | kind | labels | by | tells |\n|---|---|---|---|---|\n")
	for _, in := range telemetry.Metrics() {
		labels := strings.Join(in.Labels, ", ")
		if in.Apart != nil {
			labels += ": `" + strings.Join(in.Apart, "`, `") + "`"
		}
		help := in.Help
		if in.Rare {
			help += ". Only a fault makes its series"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", in.Name, in.Kind, labels, in.From, help)
	}
	return b.String()
}
