package main

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llm-queue/llmq/local/cloud/sqs/sqstest"
)

// outcome is what became of each check that ran, by row and check: whether it passed.
type outcome map[string]map[string]bool

// parse reads the output of go test -v, of which a check's line is
//
//	--- FAIL: TestConformanceOfEndpoint/<row>/<check> (0.01s)
//
// with underscores for spaces. Checks that were skipped are left out.
func parse(out []byte) outcome {
	got := outcome{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 8<<20) // a failed check may print a whole message
	for lines.Scan() {
		verdict, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "--- "), ": ")
		name, _, hasTime := strings.Cut(rest, " (")
		parts := strings.Split(strings.ReplaceAll(name, "_", " "), "/")
		if !ok || !hasTime || len(parts) != 3 || verdict != "PASS" && verdict != "FAIL" {
			continue
		}
		row, check := parts[1], parts[2]
		if got[row] == nil {
			got[row] = map[string]bool{}
		}
		got[row][check] = verdict == "PASS"
	}
	return got
}

// failed returns the checks of a row that failed, in order.
func (o outcome) failed(row string) []string {
	var names []string
	for _, check := range slices.Sorted(maps.Keys(o[row])) {
		if !o[row][check] {
			names = append(names, check)
		}
	}
	return names
}

// word is the table's cell for a row.
func word(failed, all int) string {
	switch {
	case all == 0:
		return "not run"
	case failed == 0:
		return "as AWS"
	case failed == all:
		return "not"
	default:
		return fmt.Sprintf("%d of %d", all-failed, all)
	}
}

// table is the outcome in text: a row of the suite a line, with how many of its checks passed on each emulator.
func table(rows []sqstest.Row, got map[string]outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-62s", "checks that pass, by row")
	for _, e := range emulators() {
		fmt.Fprintf(&b, " %-14s", e.name)
	}
	b.WriteByte('\n')
	for _, r := range rows {
		row := r.Name
		fmt.Fprintf(&b, "%-62s", row)
		for _, e := range emulators() {
			o := got[e.name]
			fmt.Fprintf(&b, " %-14s", word(len(o.failed(row)), len(o[row])))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%-62s", "checks in all")
	for _, e := range emulators() {
		passed, all := 0, 0
		for row, checks := range got[e.name] {
			all += len(checks)
			passed += len(checks) - len(got[e.name].failed(row))
		}
		fmt.Fprintf(&b, " %-14s", fmt.Sprintf("%d of %d", passed, all))
	}
	b.WriteByte('\n')
	return b.String()
}
