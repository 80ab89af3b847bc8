package main

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud/sqs/sqstest"
)

var update = flag.Bool("update", false, "rewrite the table in docs/EMULATORS.md")

func expected(t *testing.T) expectations {
	t.Helper()
	e, err := readExpected()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Every difference is explained, and what the survey marked N fails somewhere.
func TestExpected_IsWhole(t *testing.T) {
	t.Parallel()
	e := expected(t)
	rows := map[string]sqstest.Row{}
	for _, row := range sqstest.Rows() {
		rows[row.Name] = row
	}
	for _, em := range emulators() {
		if len(e[em.name]) == 0 {
			t.Errorf("%s is not in %s", em.name, expectedFile)
		}
		surveyed := 0
		for name, x := range e[em.name] {
			row, known := rows[name]
			if !known {
				t.Errorf("%s: the suite has no row %q", em.name, name)
			}
			for _, check := range slices.Concat(x.Fails, x.Varies) {
				if !slices.Contains(row.Checks, check) {
					t.Errorf("%s: the suite has no check %q in %q that runs there", em.name, check, name)
				}
			}
			if differs := len(x.Fails)+len(x.Varies) > 0; differs != (x.Why != "") {
				t.Errorf("%s: %q: differs %v, but why it does is %q", em.name, name, differs, x.Why)
			}
			if x.Survey == "N" && len(x.Fails) == 0 {
				t.Errorf("%s: %q was marked N, and nothing fails", em.name, name)
			}
			if x.Survey != "" {
				surveyed++
			}
		}
		if surveyed != 32 {
			t.Errorf("%s: %d rows of the survey, want its 32", em.name, surveyed)
		}
	}
}

func TestDocument_IsInTheDocs(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../docs/EMULATORS.md", "<!-- begin: make golden writes this -->\n", "<!-- end -->"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, hasBegin := strings.Cut(string(raw), begin)
	have, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s lacks the marks %q and %q", file, begin, end)
	}
	want := expected(t).document(sqstest.Rows())
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("make golden would change %s:\n%s", file, diff)
	}
}

func TestParse_ReadsWhatGoTestWrites(t *testing.T) {
	t.Parallel()
	got := parse([]byte(strings.Join([]string{
		"=== RUN   TestConformanceOfEndpoint",
		"=== NAME  TestConformanceOfEndpoint/Row_one/a_check,_that's_long_(H06)",
		"    limits.go:31: error <nil>, want one",
		"--- FAIL: TestConformanceOfEndpoint (0.00s)",
		"    --- FAIL: TestConformanceOfEndpoint/Row_one (0.00s)",
		"        --- FAIL: TestConformanceOfEndpoint/Row_one/a_check,_that's_long_(H06) (1.05s)",
		"        --- PASS: TestConformanceOfEndpoint/Row_one/another (0.00s)",
		"        --- SKIP: TestConformanceOfEndpoint/Row_one/slow (0.00s)",
		"FAIL",
	}, "\n")))
	want := outcome{"Row one": {"a check, that's long (H06)": false, "another": true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestCompare_TellsEveryDifference(t *testing.T) {
	t.Parallel()
	const row = "MessageNotInflight"
	for name, c := range map[string]struct {
		expect expectation
		got    map[string]bool
		want   string // part of the only difference; "" for none
	}{
		"as expected":       {expectation{Fails: []string{"a"}}, map[string]bool{"a": false, "b": true}, ""},
		"fails more":        {expectation{}, map[string]bool{"a": false}, "x fails \"a\""},
		"passes":            {expectation{Fails: []string{"a"}}, map[string]bool{"a": true}, "x passes \"a\""},
		"did not run":       {expectation{Fails: []string{"a"}}, map[string]bool{"b": true}, "has no check \"a\""},
		"varies and fails":  {expectation{Varies: []string{"a"}}, map[string]bool{"a": false}, ""},
		"varies and passes": {expectation{Varies: []string{"a"}}, map[string]bool{"a": true}, ""},
		"N that passes":     {expectation{Survey: "N"}, map[string]bool{"a": true}, "marked N"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := expectations{"x": {row: c.expect}}.compare(sqstest.Rows(), map[string]outcome{"x": {row: c.got}})
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Fatalf("differences %q, want %q", got, c.want)
			}
		})
	}
}

func TestWord_TellsAsAWSFromNotRun(t *testing.T) {
	t.Parallel()
	got := []string{word(0, 0), word(0, 3), word(1, 3), word(3, 3)}
	if diff := cmp.Diff([]string{"not run", "as AWS", "2 of 3", "not"}, got); diff != "" {
		t.Fatal(diff)
	}
}
