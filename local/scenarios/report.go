package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/percentile"
)

// verdict is how a scenario ended.
type verdict struct {
	Scenario scenario
	Took     time.Duration
	Figures  []figure
	Broken   []string // what does not hold
}

func (v verdict) pass() bool { return len(v.Broken) == 0 }

func (v verdict) word() string {
	if v.pass() {
		return "pass"
	}
	return "FAIL"
}

// MarshalJSON is a flat object, its figures in the order in which they were noted.
func (v verdict) MarshalJSON() ([]byte, error) {
	all := append([]figure{{"scenario", v.Scenario.ID}, {"pass", v.pass()}, {"seconds", round(v.Took.Seconds())}}, v.Figures...)
	if !v.pass() {
		all = append(all, figure{"broken", v.Broken})
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.Value)
		if err != nil {
			return nil, fmt.Errorf("figure %s: %w", f.Name, err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// lines writes one line of JSON for each verdict.
func lines(out io.Writer, verdicts []verdict) error {
	for _, v := range verdicts {
		if err := json.NewEncoder(out).Encode(v); err != nil {
			return fmt.Errorf("%s: %w", v.Scenario.ID, err)
		}
	}
	return nil
}

// table is for people.
func table(out io.Writer, verdicts []verdict) {
	for _, v := range verdicts {
		fmt.Fprintf(out, "%-14s %s  %.0f s\n", v.Scenario.ID, v.word(), v.Took.Seconds())
		for _, f := range v.Figures {
			fmt.Fprintf(out, "    %-48s %v\n", f.Name, f.Value)
		}
		for _, b := range v.Broken {
			fmt.Fprintf(out, "    does not hold: %s\n", b)
		}
	}
}

// writeReport writes the figures as a page.
func writeReport(path, command string, now time.Time, verdicts []verdict) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Scenarios\n\nMade by `%s` on %d processors (%s/%s), %s. Each runs the real functions in the local cloud, on a real\n"+
		"Valkey and the fake provider. Times are that machine's; counts are what they are anywhere.\n",
		command, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, now.UTC().Format(time.DateOnly))
	b.WriteString("\n| scenario | | took |\n|---|---|---|\n")
	for _, v := range verdicts {
		fmt.Fprintf(&b, "| %s | %s | %.0f s |\n", v.Scenario.ID, v.word(), v.Took.Seconds())
	}
	writeBeside(&b, verdicts)
	for _, v := range verdicts {
		fmt.Fprintf(&b, "\n## %s: %s\n\n%s.\n\n", v.Scenario.ID, v.word(), v.Scenario.What)
		if len(v.Figures) > 0 {
			b.WriteString("| figure | |\n|---|---|\n")
		}
		for _, f := range v.Figures {
			fmt.Fprintf(&b, "| %s | %v |\n", f.Name, f.Value)
		}
		for _, broken := range v.Broken {
			fmt.Fprintf(&b, "\nDoes not hold: %s.\n", strings.ReplaceAll(broken, "\n", "; "))
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil { // a document
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// rank is a percentile; of none it is 0, and the counts beside it tell.
func rank(all []time.Duration, p int) time.Duration {
	v, _ := percentile.Of(all, p)
	return v
}

// ms is a figure in milliseconds.
func ms(d time.Duration) float64 { return round(float64(d.Microseconds()) / 1000) }

// round keeps two decimals.
func round(x float64) float64 { return float64(int64(x*100+0.5)) / 100 }
