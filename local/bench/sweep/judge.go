package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"
)

// band is where queued ÷ service must lie at a limit: above from, and below to; 0 is no bound.
type band struct {
	limit    int
	name     string
	from, to float64
}

// bands are FEATURES F4's. With tasks that all come at once and slots that never idle the ratio would be (tasks ÷ limit − 1) ÷ 2: 63.5, 15.5, 3.5,
// 0.5 and 0. "About 1" is within a factor of two, where runs differ in which of the two is larger.
func bands() []band {
	return []band{
		{1, "> 50", 50, 0},
		{4, "10–50", 10, 50},
		{16, "2–10", 2, 10},
		{64, "about 1", 1 / crossover, crossover},
		{128, "< 1", 0, 1},
	}
}

// crossover is the factor within which queued and service are as good as equal.
const crossover = 2.0

func (b band) holds(ratio float64) bool { return ratio > b.from && (b.to == 0 || ratio < b.to) }

// bound says what most of a task's time goes to, and gives no verdict where neither takes more than twice the other.
func bound(ratio float64) string {
	switch {
	case ratio >= crossover:
		return "admission"
	case ratio <= 1/crossover:
		return "service"
	default:
		return "crossover"
	}
}

// steady is the least part of its maximum that the service time may have at any limit.
const steady = 0.75

// row is one limit's verdict.
type row struct {
	band
	ratio   float64 // queued ÷ service, the median of the rounds
	service float64 // as a part of the longest of all limits, medians
	bound   string
}

// judge makes the table, and says what does not hold.
func judge(all map[int][]sample) (rows []row, broken []string) {
	longest := 0.0
	for _, b := range bands() {
		longest = max(longest, served(all[b.limit]))
	}
	for _, b := range bands() {
		r := row{band: b, ratio: queued(all[b.limit]), service: served(all[b.limit]) / longest}
		r.bound = bound(r.ratio)
		rows = append(rows, r)
		if !b.holds(r.ratio) {
			broken = append(broken, fmt.Sprintf("limit %d: queued is %s times service, want %s", b.limit, times(r.ratio), b.name))
		}
		if r.service < steady {
			broken = append(broken, fmt.Sprintf("limit %d: service took %.2f of its maximum, want %.2f at least: something else than the work takes time", b.limit, r.service, steady))
		}
	}
	return rows, broken
}

func queued(s []sample) float64 {
	return median(s, func(x sample) float64 { return float64(x.queued) / float64(x.service) })
}

func served(s []sample) float64 {
	return median(s, func(x sample) float64 { return float64(x.service) })
}

func median(s []sample, of func(sample) float64) float64 {
	v := make([]float64, len(s))
	for i, x := range s {
		v[i] = of(x)
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// times is a ratio with no more digits than runs agree on.
func times(ratio float64) string {
	if ratio >= 10 {
		return fmt.Sprintf("%.0f", ratio)
	}
	return fmt.Sprintf("%.1f", math.Max(ratio, 0))
}

// page is the table, which holds ratios alone: absolute times are one machine's.
func page(out io.Writer, command string, rounds int, rows []row, now time.Time) {
	fmt.Fprintf(out, "# Where the time goes: waiting for a slot, or being served\n\nMade by `%s` on %d processors (%s/%s), %s.\n\n",
		command, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, now.UTC().Format(time.DateOnly))
	fmt.Fprintf(out, "%d tasks at once, each served in %s, under a limit that is swept. One worker, wired as the deployed one is, takes up as many of them at a time as\n"+
		"the limit has slots, as an event source lets it; each takes a claim and a slot in a real Valkey in cluster mode, where no more than the limit are given, and its result\n"+
		"is stored there. The provider is in the worker's process and sleeps: what is measured is the wait, not a model. Queued is from when all tasks are there until the\n"+
		"provider is called, service from there until it has answered; means over the tasks, medians of %d rounds, in turns. SQS is left out.\n\n", tasks, service, rounds)
	fmt.Fprint(out, "| limit | queued ÷ service | want | bound by | service, of its maximum |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(out, "| %d | %s | %s | %s | %.0f %% |\n", r.limit, times(r.ratio), r.name, r.bound, 100*r.service)
	}
	fmt.Fprintf(out, "\nService does not depend on the limit; all else is the wait for a slot. A latency alone can't tell which of the two it is, and they are mended by opposite\n"+
		"means: a higher limit or less load, or a faster model. A crossover is where neither takes twice the other: which one is larger changes from run to run, so it gets no\n"+
		"verdict. A worker that takes up more than there are slots has the surplus look for one every 50 ms to some seconds, which is much beside %s and little beside\n"+
		"a model's answer; that wait is not in this table.\n", service)
}
