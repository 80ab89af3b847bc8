package main

import (
	"fmt"
	"strings"

	"github.com/llm-queue/llmq/local/cloud/sqs/sqstest"
)

// document is the part of docs/EMULATORS.md that follows from expected.json: the table, and what each emulator does instead.
func (e expectations) document(rows []sqstest.Row) string {
	var b strings.Builder
	b.WriteString("| Behaviour | checks |")
	for _, em := range emulators() {
		fmt.Fprintf(&b, " %s %s | survey |", em.name, em.version)
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" --- | --- |", len(emulators())) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s | %d |", row.Name, len(row.Checks)+len(row.Slow))
		for _, em := range emulators() {
			x := e[em.name][row.Name]
			fmt.Fprintf(&b, " %s | %s |", word(len(x.Fails)+len(x.Varies), len(row.Checks)), x.Survey)
		}
		b.WriteByte('\n')
	}
	for _, em := range emulators() {
		fmt.Fprintf(&b, "\n### What %s does instead\n\n", em.name)
		for _, row := range rows {
			x := e[em.name][row.Name]
			if x.Why == "" {
				continue
			}
			fmt.Fprintf(&b, "- **%s.** %s Fails:", row.Name, x.Why)
			for i, check := range x.Fails {
				if i > 0 {
					b.WriteByte(';')
				}
				b.WriteString(" " + check)
			}
			for _, check := range x.Varies {
				fmt.Fprintf(&b, "; on some runs %s", check)
			}
			b.WriteString(".\n")
		}
	}
	return b.String()
}
