package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

var update = flag.Bool("update", false, "write golden files") //nolint:gochecknoglobals // a flag

// One scenario of each kind, on one seed; the whole table is results/limiter.md.
func TestLaw_ReachesItsGoals(t *testing.T) {
	t.Parallel()
	p := law(t)
	for _, name := range []string{
		"a concurrency 8", "b RPM bucket, 10 % burst", "c calendar minute", "d TPM by minute", "f 2 % random, concurrency",
		"g concurrency halves and returns", "h foreign consumer, concurrency", "i outage by 429, slow recovery",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := judge(find(t, name), 1, 1, p.limiter(capacity.DefaultLaw()), true)
			for _, m := range r.misses {
				t.Error(m)
			}
		})
	}
}

// AIMD seems to carry more than the quota from a bucket of a minute's burst, because it spends
// in the measured part what it left there in the first five minutes. Over the whole run, the
// law carries more.
func TestAIMD_SpendsLaterWhatItSavedInABucketOfAMinute(t *testing.T) {
	t.Parallel()
	sc := find(t, "b RPM bucket, a minute's burst")
	ideal := play(sc, 1, newOracle, true)
	aimd, ours := play(sc, 1, newAIMD, false), play(sc, 1, law(t).limiter(capacity.DefaultLaw()), false)
	carried := func(o *outcome, from, to int) float64 { return sum(o.accepted[from:to]) / sum(ideal.accepted[from:to]) }
	if early, late := carried(aimd, 0, 300), carried(aimd, 300, 900); early > 0.9 || late <= 1 {
		t.Errorf("AIMD carries %.3f of the oracle's in the first five minutes and %.3f then, want less than 0.9 and more than all", early, late)
	}
	if theirs, mine := carried(aimd, 0, 900), carried(ours, 0, 900); theirs > 0.96 || mine < 0.99 {
		t.Errorf("over the whole run AIMD carries %.3f and the law %.3f of the oracle's, want the law ahead", theirs, mine)
	}
}

// Two runs agree in every decision, and with those of the machine that wrote the golden.
func TestPlay_SameSeedSameDecisions(t *testing.T) {
	t.Parallel()
	p := law(t)
	var got strings.Builder
	for _, name := range []string{"a concurrency 50", "b 60 RPM"} {
		sc := find(t, name)
		sc.length = 300 * second
		var digests [2]uint64
		for i := range digests {
			o := play(sc, 7, p.limiter(capacity.DefaultLaw()), false)
			digests[i] = o.digest
			if i == 0 {
				fmt.Fprintf(&got, "%s: %d decisions, %x\n", name, o.decisions, o.digest)
			}
		}
		if digests[0] != digests[1] {
			t.Errorf("%s: two runs of a seed differ", name)
		}
	}
	if runtime.GOARCH != "amd64" {
		return // calls are drawn with floating point, whose last bit is another one elsewhere
	}
	path := filepath.Join("testdata", "decisions.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatalf("write golden: %v", err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read golden: %v", err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("decisions (-want +got); after a change of the law, -update:\n%s", diff)
	}
}

func TestMisses_NamesEachGoal(t *testing.T) {
	t.Parallel()
	const studied = "a concurrency 50" // 99.8, 0.5
	for _, tc := range []struct {
		name, scenario string
		ours           score
		theirs         score
		want           string
	}{
		{"good", studied, score{Goodput: 0.98, Throttled: 0.0055}, score{Goodput: 0.7}, ""},
		{"goodput", studied, score{Goodput: 0.97, Throttled: 0.001}, score{}, "two points"},
		{"throttles", studied, score{Goodput: 1, Throttled: 0.0062}, score{}, "a tenth above"},
		{"far behind a baseline", "new", score{Goodput: 0.9, Throttled: 0.01}, score{Goodput: 0.97, Throttled: 0.5}, "not beaten"},
		{"close to a baseline with as many throttles", "new", score{Goodput: 0.9, Throttled: 0.01}, score{Goodput: 0.91, Throttled: 0.01}, "not beaten"},
		{"close to a baseline with fewer", "new", score{Goodput: 0.9, Throttled: 0.01}, score{Goodput: 0.95, Throttled: 0.02}, ""},
		{"little", "new", score{Goodput: 0.74}, score{}, "below 75"},
		{"little where endings are lost", "l new", score{Goodput: 0.74}, score{}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(misses(tc.scenario, tc.ours, map[string]score{"AIMD": tc.theirs}), "; ")
			if !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("misses = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestStudies_AreOfScenariosThatExist(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, sc := range scenarios() {
		if names[sc.name] {
			t.Errorf("two scenarios are named %q", sc.name)
		}
		names[sc.name] = true
	}
	for name := range studies() {
		if !names[name] {
			t.Errorf("no scenario for the study's %q", name)
		}
	}
}

func TestRun_PrintsTheTable(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	if err := run([]string{"-seeds", "1", "-only", "b 60 RPM", "-bare"}, &out, &progress); err != nil {
		t.Fatalf("run: %v", err)
	}
	if n := strings.Count(out.String(), "\n| b 60 RPM | "); n != 1 {
		t.Errorf("the table has %d rows for the scenario, want 1:\n%s", n, out.String())
	}
	for _, args := range [][]string{{"-seeds", "0"}, {"-seeds", "101"}, {"-law", "no such file"}, {"-nope"}} {
		if err := run(args, &out, &progress); err == nil {
			t.Errorf("run %v gave no error", args)
		}
	}
}
