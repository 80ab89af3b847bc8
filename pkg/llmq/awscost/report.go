package awscost

import (
	"fmt"
	"io"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Report writes an environment's estimate as text.
func (p Prices) Report(w io.Writer, cfg *config.Config) error {
	t := Usual()
	t.WorkerMB = cfg.Lanes[llmq.LaneBG].MemoryMB
	var b strings.Builder
	fmt.Fprintf(&b, "llmq-%s: prices of %s, %s, without what providers charge for models\n", cfg.Env, p.Region, p.Date)
	table(&b, "a month without a call", p.Month(Of(cfg)))
	table(&b, fmt.Sprintf("a million calls of %g s, for which their callers wait", t.Seconds), p.Million(t))
	b.WriteString("  a million calls, if\n")
	for _, l := range p.Levers(t) {
		fmt.Fprintf(&b, "    %-69s %10.2f\n", l.Name, l.USD)
	}
	b.WriteString("  " + p.Note + "\n  Not in it: series of own metrics ($0.30 a month each while they are written), storage, traffic of a VPC.\n\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func table(b *strings.Builder, title string, items []Item) {
	fmt.Fprintf(b, "  %-71s %10s\n", title, "USD")
	for _, i := range items {
		fmt.Fprintf(b, "    %-24s %-44s %10.2f\n", i.Name, i.How, i.USD)
	}
	fmt.Fprintf(b, "    %-69s %10.2f\n", "together", Total(items))
}
