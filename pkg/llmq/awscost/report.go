package awscost

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Report writes an environment's estimate as text.
func (p Prices) Report(w io.Writer, cfg *config.Config) error {
	t, s := Usual(), Of(cfg)
	t.WorkerMB = cfg.Lanes[llmq.LaneBG].MemoryMB
	c := t.Counts()
	var b strings.Builder
	fmt.Fprintf(&b, "llmq-%s: prices of %s, %s, without what providers charge for models\n", cfg.Env, p.Region, p.Date)
	table(&b, "a month without a call", p.Month(s, s.Idle()), 1)
	table(&b, fmt.Sprintf("a million calls of %g s that come one by one, whose callers wait", t.Seconds), p.Million(c), million)
	b.WriteString("  a million calls, if\n")
	for _, l := range p.Levers(c) {
		fmt.Fprintf(&b, "    %-69s %10.2f\n", l.Name, l.USD)
	}
	b.WriteString("  " + p.Note + "\n  Not in it: series of own metrics ($0.30 a month each while they are written), storage, traffic of a VPC.\n\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes items with what there is of them for each of n calls.
func table(b *strings.Builder, title string, items []Item, n float64) {
	fmt.Fprintf(b, "  %-71s %10s\n", title, "USD")
	for _, i := range items {
		fmt.Fprintf(b, "    %-24s %-44s %10.2f\n", i.Name, Amount(i.Count/n)+" "+i.Unit, i.USD)
	}
	fmt.Fprintf(b, "    %-69s %10.2f\n", "together", Total(items))
}

// Amount writes a count for people: four digits, or all of those before the point, and no exponent.
func Amount(x float64) string {
	digits := 4
	if x != 0 {
		digits -= 1 + int(math.Floor(math.Log10(math.Abs(x))))
	}
	text := strconv.FormatFloat(x, 'f', max(0, digits), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
