package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// row is one scenario, judged.
type row struct {
	scenario  *scenario
	law       score
	baselines map[string]score
	misses    []string
	decisions int
}

// judge plays a scenario with the law and, if wanted, the baselines, over seeds 1 to n.
func judge(sc *scenario, n int, mine func(*provider) limiter, baselines bool) row {
	r := row{scenario: sc, baselines: map[string]score{}}
	limiters := map[string]func(*provider) limiter{"": mine}
	if baselines {
		limiters["AIMD"], limiters["clustered"] = newAIMD, newClustered
	}
	scores := map[string][]score{}
	for seed := uint64(1); seed <= uint64(n); seed++ {
		ideal := play(sc, seed, newOracle, true)
		for name, make := range limiters {
			got := play(sc, seed, make, false)
			scores[name] = append(scores[name], rate(sc, got, ideal))
			if name == "" {
				r.decisions += got.decisions
			}
		}
	}
	r.law = mean(scores[""])
	for name := range limiters {
		if name != "" {
			r.baselines[name] = mean(scores[name])
		}
	}
	r.misses = misses(sc.name, r.law, r.baselines)
	return r
}

// heading says what the table is; every time in it is virtual, so that none depends on the
// machine.
const heading = `# The learned limit, judged

Made by ` + "`go run ./local/bench/limiter -seeds %d -out results/limiter.md`" + ` in simulated time: the same seeds give the
same table on every machine. The law is pkg/llmq/capacity/lua/law.lua, the very text that the admission scripts run.

Goodput is a share of an oracle's that knows the quota; throttled is a share of the attempts; both in per cent, after the first
five minutes, with a backlog of bg and bulk that never ends and some rt. AIMD is plain; clustered is the law of the queue that
this one follows, as its documents describe it; in brackets what the study reached that this law was chosen by. "to 90 %%" are
the seconds until 20 s carry nine tenths of the oracle's, from the start and from the step; rt p95 is the time from
arrival to start in ms: clustered → law (oracle). Skew is how far, in points, a lane's part of the calls lies from its part
with the oracle; gap the longest time in seconds without a bg or bulk start.

| scenario | goodput: AIMD | clustered | law | throttled: AIMD | clustered | law | to 90 %% | after the step | rt p95 | skew | gap |
|---|---|---|---|---|---|---|---|---|---|---|---|
`

func (r row) markdown() string {
	known, ok := studies()[r.scenario.name]
	study := func(v float64) string {
		if !ok {
			return ""
		}
		return fmt.Sprintf(" (%.1f)", v)
	}
	aimd, clustered := r.baselines["AIMD"], r.baselines["clustered"]
	after := "–"
	if r.scenario.stepAt > 0 {
		after = seconds(r.law.Back90)
	}
	return fmt.Sprintf("| %s | %.1f | %.1f | **%.1f**%s | %.1f | %.1f | **%.2f**%s | %s | %s | %.0f → %.0f (%.0f) | %.1f | %.0f |\n",
		r.scenario.name, 100*aimd.Goodput, 100*clustered.Goodput, 100*r.law.Goodput, study(known.goodput),
		100*aimd.Throttled, 100*clustered.Throttled, 100*r.law.Throttled, study(known.throttled),
		seconds(r.law.To90), after, clustered.RTWait, r.law.RTWait, r.law.OracleRT, 100*r.law.Skew, r.law.BulkGap)
}

func seconds(s float64) string {
	if math.IsInf(s, 1) {
		return "never"
	}
	return fmt.Sprintf("%.0f", s)
}

// writeReport writes the table and what misses its goal.
func writeReport(out io.Writer, rows []row, seeds int) error {
	var b strings.Builder
	fmt.Fprintf(&b, heading, seeds)
	var missed []string
	for _, r := range rows {
		b.WriteString(r.markdown())
		for _, m := range r.misses {
			missed = append(missed, "- "+r.scenario.name+": "+m+"\n")
		}
	}
	b.WriteString("\nThe goals: goodput not more than two points below the study's and throttled not more than a tenth above it; both baselines beaten,\n" +
		"or within six points of their goodput with fewer throttles; no row below 75 % but where endings never arrive.\n\n")
	if len(missed) == 0 {
		b.WriteString("Every row reaches them.\n")
	} else {
		b.WriteString("Not reached:\n\n" + strings.Join(missed, ""))
	}
	_, err := io.WriteString(out, b.String())
	return err
}
