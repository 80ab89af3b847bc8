package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// G5: an id that is not known is refused before anything is built, and the list tells what there is.
func TestChoose_RefusesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	for _, ids := range [][]string{{"S53", "S999"}, {}} {
		_, err := choose(all(), ids)
		if err == nil || !strings.Contains(err.Error(), "\n  S53 ") || len(ids) > 0 && !strings.Contains(err.Error(), "no scenario S999;") {
			t.Errorf("%q: %v", ids, err)
		}
	}
	var progress bytes.Buffer
	if err := run(t.Context(), []string{"-scale", "medium", "S53"}, &progress, &progress); err == nil || !strings.Contains(err.Error(), "medium") {
		t.Errorf("scale medium: %v", err)
	}
}

func TestChoose_ByIDOrAll(t *testing.T) {
	t.Parallel()
	got, err := choose(all(), []string{"s54", "S53"})
	if err != nil || len(got) != 2 || got[0].ID != "S54" || got[1].ID != "S53" {
		t.Errorf("got %d, %v", len(got), err)
	}
	got, err = choose(all(), []string{"ALL"})
	if err != nil || len(got) != len(all())-1 || slices.ContainsFunc(got, func(sc scenario) bool { return sc.ID == "soak" }) {
		t.Errorf("all are %d, %v; the soak takes an hour and is to be named", len(got), err)
	}
	if got, err = choose(all(), []string{"soak"}); err != nil || len(got) != 1 {
		t.Errorf("soak: %d, %v", len(got), err)
	}
}

// What the Makefile lists for CI, make load and make chaos is there.
func TestMakefile_ListsScenariosThatThereAre(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	for line := range strings.Lines(string(text)) {
		name, ids, ok := strings.Cut(line, "_SCENARIOS := ")
		if !ok {
			continue
		}
		lists++
		if _, err := choose(all(), strings.Fields(ids)); err != nil {
			t.Errorf("%s_SCENARIOS: %v", name, err)
		}
	}
	if lists != 3 {
		t.Errorf("there are %d lists of scenarios, want CI, LOAD and CHAOS", lists)
	}
}

func TestAll_EachIsDefinedOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, sc := range all() {
		if sc.ID == "" || sc.What == "" || sc.Run == nil || seen[sc.ID] || strings.HasSuffix(sc.What, ".") {
			t.Errorf("%q is not defined, twice, or ends with a stop: %q", sc.ID, sc.What)
		}
		seen[sc.ID] = true
	}
}

// G5: every scenario of the definitions' table is there, but S33v, which is of the queue on Valkey Streams that is not built; and each that
// the seed has a figure of has ours beside it.
func TestAll_HasTheWholeTable(t *testing.T) {
	t.Parallel()
	table := strings.Fields("S01 S03 S04 S05 S07 S10 S11 S12 S16 S17 S18 S19 S20 S21 S22 S23 S24 S26 S27 S28 S29 S31 S33 S35 S35b S35c S37 S38 S39 S40 S41 S47 S48 S49 " +
		"S50 S53 S54 S55 S56 S57 R01 R02 R03 R04 R05 R06 R07 R08 R09 R10 R11 R12")
	compared := strings.Fields("S07 S20 S22 S27 S31 S33 S35 S35b S35c S50 S53 S54 S55 S56 S57 R01 R02 R03 R04 R05 R06 R07 R08 R09 R10 R11 R12")
	chosen, err := choose(all(), []string{"all"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range table {
		if !slices.ContainsFunc(chosen, func(sc scenario) bool { return sc.ID == id }) {
			t.Errorf("S=all has no %s", id)
		}
	}
	var ids []string
	for _, c := range beside() {
		ids = append(ids, c.ID)
	}
	if !slices.Equal(ids, compared) {
		t.Errorf("compared are %q, want %q", ids, compared)
	}
}

// S35c is judged by the run of S35 where both are asked, and has its own line.
func TestJudgeAll_WhoSharesARunHasItsVerdict(t *testing.T) {
	t.Parallel()
	chosen := []scenario{{ID: "S35"}, {ID: "S35b"}, {ID: "S35c", RunOf: "S35"}}
	var runs atomic.Int32
	got, err := judgeAll(t.Context(), chosen, 2, func(sc scenario) verdict {
		runs.Add(1)
		return verdict{Scenario: sc, Figures: []figure{{"of", sc.run()}}}
	}, func([]verdict) error { return nil })
	if err != nil || len(got) != 3 || runs.Load() != 2 {
		t.Fatalf("%d verdicts of %d runs, %v", len(got), runs.Load(), err)
	}
	for i, v := range got {
		if v.Scenario.ID != chosen[i].ID || v.Figures[0].Value != chosen[i].run() {
			t.Errorf("verdict %d is %s's, of the run of %v", i, v.Scenario.ID, v.Figures[0].Value)
		}
	}
}

// Those that hold milliseconds run when all others have ended, one at a time; the page has the order that was asked for.
func TestJudgeAll_WhoWantsQuietRunsAlone(t *testing.T) {
	t.Parallel()
	var chosen []scenario
	for i := range 9 {
		chosen = append(chosen, scenario{ID: strconv.Itoa(i), Quiet: i%3 == 0})
	}
	var running, loud atomic.Int32
	var pages [][]string
	got, err := judgeAll(t.Context(), chosen, 3, func(sc scenario) verdict {
		n := running.Add(1)
		defer running.Add(-1)
		switch {
		case !sc.Quiet:
			loud.Add(1)
		case n != 1 || loud.Load() != 6:
			t.Errorf("%s runs beside others or before them", sc.ID)
		}
		return verdict{Scenario: sc}
	}, func(done []verdict) error {
		var ids []string
		for _, v := range done {
			ids = append(ids, v.Scenario.ID)
		}
		pages = append(pages, ids)
		return nil
	})
	if err != nil || len(got) != 9 || len(pages) != 9 {
		t.Fatalf("%d verdicts, %d pages, %v", len(got), len(pages), err)
	}
	for _, page := range pages {
		if !slices.IsSorted(page) {
			t.Errorf("page %q is out of order", page)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := judgeAll(ctx, chosen, 3, func(scenario) verdict { t.Error("one ran"); return verdict{} }, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("told to stop: %v", err)
	}
}

// A line says whether it passed and all that was counted, in order; what does not hold stands in the page too.
func TestVerdict_LineAndPage(t *testing.T) {
	t.Parallel()
	tr := &trial{progress: &bytes.Buffer{}}
	v := tr.judge(t.Context(), scenario{ID: "S0", What: "nothing happens", Run: func(context.Context, *trial) error {
		tr.Note("peak", 4)
		tr.Note("peak", 6) // of another world
		tr.Note("start_p99_ms", 1.5)
		tr.Hold(true, "never told")
		tr.Hold(false, "%d lost", 3)
		return errors.New("cut short")
	}})
	v.Took = 1234 * time.Millisecond
	compared := verdict{Scenario: scenario{ID: "S55", What: "two models"}, Figures: []figure{{"peak", 8}, {"requests", 600}}}
	var line bytes.Buffer
	if err := lines(&line, []verdict{v}); err != nil {
		t.Fatal(err)
	}
	if want := `{"scenario":"S0","pass":false,"seconds":1.23,"peak":10,"start_p99_ms":1.5,"broken":["3 lost","cut short"]}` + "\n"; line.String() != want {
		t.Errorf("line = %s want %s", &line, want)
	}
	if !json.Valid(line.Bytes()) {
		t.Error("it is no JSON")
	}
	path := filepath.Join(t.TempDir(), "scenarios.md")
	if err := writeReport(path, "make scenarios S=S0", time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), []verdict{v, compared}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"`make scenarios S=S0`", "2026-11-30", "| S0 | FAIL | 1 s |", "## S0: FAIL", "nothing happens.", "| peak | 10 |", "Does not hold: 3 lost.", "| S55 | pass, peak 8 | peak exactly 8; 600 of 600 ok | none known |"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}

// What is paid for again is told apart: in flight, over a wipe, and after the result was stored, which never may be.
func TestTallied_TellsWhyACallWasPaidAgain(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Date(2026, 11, 30, 12, 0, s, 0, time.UTC) }
	good := func(s int) server.Call {
		return server.Call{At: at(s), Duration: time.Second, Status: 200, Outcome: server.Replied}
	}
	cut := func(s int) server.Call {
		return server.Call{At: at(s), Duration: time.Second, Outcome: server.Aborted}
	}
	throttled := func(s int) server.Call {
		return server.Call{At: at(s), Status: 429, Outcome: server.Replied}
	}
	calls := map[string][]server.Call{
		"once": {throttled(0), good(1)}, "lost": {cut(1)}, "throttled": {throttled(1)}, "in-flight": {cut(1), good(5)},
		"over-a-wipe": {good(9), good(25)}, "stored": {good(1), good(5)}, "stored-and-wiped": {good(1), good(25)},
	}
	stored := map[string]time.Time{"once": at(2), "in-flight": at(6), "stored": at(2), "stored-and-wiped": at(2)}
	ids := []string{"once", "lost", "throttled", "never", "in-flight", "over-a-wipe", "stored", "stored-and-wiped"}
	got := tallied(ids, calls, func(id string) time.Time { return stored[id] }, []time.Time{at(10)})
	if want := (account{Lost: 3, Again: 4, AfterWipe: 2, AfterStored: 1, Calls: 10}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// An honest error is one of our codes with its own status; what means that llmq failed is none.
func TestAnswer_Honest(t *testing.T) {
	t.Parallel()
	of := func(status int, code llmq.Code, retry string) answer {
		return answer{Status: status, Code: code, Header: map[string][]string{"X-Should-Retry": {retry}}}
	}
	for _, tt := range []struct {
		name string
		a    answer
		want bool
	}{
		{"queue unavailable", of(503, llmq.CodeQueueUnavailable, "true"), true},
		{"timeout", of(504, llmq.CodeTimeout, "false"), true},
		{"another status", of(500, llmq.CodeQueueUnavailable, "true"), false},
		{"ours to mend", of(500, llmq.CodeInternal, "false"), false},
		{"no code", of(503, "", "true"), false},
		{"no word on retries", of(503, llmq.CodeQueueUnavailable, ""), false},
		{"no answer", answer{Err: errors.New("cut")}, false},
	} {
		if got := tt.a.honest(); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if a := (answer{Status: 200, Body: rig.ChatBody("m", "mine")}); !a.ok("mine") || a.ok("other") {
		t.Error("an answer is not told from another's")
	}
}
