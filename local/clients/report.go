package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// result is one check of a client.
type result struct {
	Client string `json:"client"` // its package, and version
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Note   string `json:"note"` // what was seen, or why it failed
}

// report prints a line for each result as it comes, and a table of them at the end.
type report struct {
	out     io.Writer
	results []result
	skipped []string
}

func (r *report) add(got result) {
	word := "ok  "
	if !got.OK {
		word = "FAIL"
	}
	got.Note = strings.Join(strings.Fields(got.Note), " ")
	fmt.Fprintf(r.out, "%s  %-44s %-28s %s\n", word, got.Client, got.Check, got.Note)
	r.results = append(r.results, got)
}

// skip says that clients could not be run.
func (r *report) skip(what string) {
	fmt.Fprintln(r.out, "SKIP  "+what)
	r.skipped = append(r.skipped, what)
}

// read takes the results that a script prints, one JSON line each; what else it prints goes on as it is.
func (r *report) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var got result
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil || got.Client == "" || got.Check == "" {
			fmt.Fprintln(r.out, lines.Text())
			continue
		}
		r.add(got)
	}
	return lines.Err()
}

// end prints how each client did, and reports whether all is well. A run without a check is not.
func (r *report) end() bool {
	type tally struct{ passed, failed int }
	var order []string
	by := map[string]*tally{}
	for _, got := range r.results {
		if by[got.Client] == nil {
			by[got.Client] = &tally{}
			order = append(order, got.Client)
		}
		if got.OK {
			by[got.Client].passed++
		} else {
			by[got.Client].failed++
		}
	}
	fmt.Fprintf(r.out, "\n%-44s %8s %8s\n", "client", "passed", "failed")
	failed := 0
	for _, name := range order {
		fmt.Fprintf(r.out, "%-44s %8d %8d\n", name, by[name].passed, by[name].failed)
		failed += by[name].failed
	}
	for _, what := range r.skipped {
		fmt.Fprintln(r.out, "skipped: "+what)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", len(r.results)-failed, failed, len(r.skipped))
	return failed == 0 && len(r.results) > 0
}
