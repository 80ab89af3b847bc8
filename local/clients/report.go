package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/llm-queue/llmq/local/clients/suite"
)

type result = suite.Result

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

// script runs one of a language whose packages were installed, or not, as err says. One that ends otherwise than well is a result too.
func (r *report) script(ctx context.Context, w *world, name, dir string, err error, args ...string) error {
	switch {
	case errors.Is(err, suite.ErrMissing): // what is missing is told, and fails nothing
		r.skip(name + ": " + err.Error())
		return nil
	case err != nil:
		return err
	}
	if err := w.Run(ctx, w.Rig, suite.Script{Dir: dir, Args: args}, r.add, r.out); err != nil {
		r.add(result{Client: name, Check: "runs to its end", Note: err.Error()})
	}
	return nil
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
