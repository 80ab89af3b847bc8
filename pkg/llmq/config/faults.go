package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Fault is one thing that is wrong with a configuration: where it stands, what is
// wrong and what would be right. It never holds a secret's value.
type Fault struct {
	File    string // as given to Load; "" when a variable or no place is at fault
	Line    int    // from 1; 0 is the whole file
	Column  int    // from 1, in characters
	Env     string // the variable that gave the value; "" when none did
	Path    string // the setting, e.g. models.chat-a.targets[0].provider; "" is the whole file
	Problem string // for people
	Err     error  // cause, e.g. of an unreadable file; usually nil
}

// String is the fault as one line: place, setting, problem.
func (f Fault) String() string {
	var b strings.Builder
	switch {
	case f.Env != "":
		b.WriteString(f.Env + ": ")
	case f.File != "" && f.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", f.File, f.Line, f.Column)
	case f.File != "":
		b.WriteString(f.File + ": ")
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	return b.String() + f.Problem
}

// Faults is every fault of a configuration, in the order of the file and then of
// the variables. errors.Is(err, llmq.CodeConfiguration) holds for it.
type Faults []Fault

// Error lists every fault, one a line.
func (fs Faults) Error() string {
	if len(fs) == 1 {
		return "configuration: " + fs[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d faults", len(fs))
	for _, f := range fs {
		b.WriteString("\n  " + f.String())
	}
	return b.String()
}

// Unwrap gives the code and the causes to errors.Is.
func (fs Faults) Unwrap() []error {
	errs := []error{llmq.CodeConfiguration}
	for _, f := range fs {
		if f.Err != nil {
			errs = append(errs, f.Err)
		}
	}
	return errs
}

// maxFaults bounds the work that a hopeless file makes. The rest shows once these
// are mended.
const maxFaults = 100

// origin is where a value came from.
type origin struct {
	line, column int
	env          string
}

// report gathers faults and knows where each setting was given.
type report struct {
	file   string
	given  map[string]origin // by path: settings, entries and sections
	faulty map[string]bool   // settings with a fault; a second one would only confuse
	broken map[string]bool   // what could not be read at all; what it lacks is no fault
	faults Faults
}

func newReport(file string) *report {
	return &report{file: file, given: map[string]origin{}, faulty: map[string]bool{}, broken: map[string]bool{}}
}

// fault records what is wrong with the setting at path, at the place where it or
// the nearest thing around it was given.
func (r *report) fault(path, format string, args ...any) {
	if r.faulty[path] || r.inBroken(path) {
		return
	}
	r.faultAt(r.origin(path), path, format, args...)
}

func (r *report) inBroken(path string) bool {
	for path != "" {
		if r.broken[path] {
			return true
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return false
}

// faultAt is fault for a place that is no setting's, such as an unknown key's.
func (r *report) faultAt(o origin, path, format string, args ...any) {
	r.faulty[path] = true
	if r.full() {
		return
	}
	f := Fault{Env: o.env, Path: path, Problem: fmt.Sprintf(format, args...)}
	if o.env == "" {
		f.File, f.Line, f.Column = r.file, o.line, o.column
	}
	r.faults = append(r.faults, f)
}

func (r *report) full() bool { return len(r.faults) >= maxFaults }

// ok reports whether all of the settings could be read and no fault was found in
// them, so that a rule over them means something.
func (r *report) ok(paths ...string) bool {
	return !slices.ContainsFunc(paths, func(p string) bool { return r.faulty[p] })
}

// origin finds the place of path, or of the nearest thing around it.
func (r *report) origin(path string) origin {
	for {
		if o, found := r.given[path]; found {
			return o
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return origin{}
		}
		path = path[:cut]
	}
}

// err is the faults in their order, or nil.
func (r *report) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.faults, func(a, b Fault) int {
		if (a.Env == "") != (b.Env == "") { // the file first
			return cmp.Compare(len(a.Env), len(b.Env))
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Env, b.Env))
	})
	return r.faults
}

// maxListed bounds how many known names a message lists.
const maxListed = 25

// didYouMean ends a message about an unknown name: with the nearest known one, or
// else with the known ones.
func didYouMean(got string, known []string, what string) string {
	if near := llmq.Nearest(got, known); near != "" {
		return "; did you mean " + segment(near) + "?"
	}
	if len(known) == 0 {
		return "; " + what + ": none"
	}
	var shown []string
	for _, name := range known[:min(len(known), maxListed)] {
		shown = append(shown, segment(name))
	}
	if len(known) > maxListed {
		shown = append(shown, "…")
	}
	return "; " + what + ": " + strings.Join(shown, ", ")
}
