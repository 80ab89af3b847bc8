package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Figures are what benchmarks report, by benchmark and unit. Absolute times are not among them.
type Figures map[string]map[string]float64

// kind says how a figure is compared.
type kind int

const (
	none  kind = iota // a time of this machine, which says nothing of another
	count             // the same wherever it is counted
	ratio             // of a time to that of a baseline in the same run
	size              // of what is deployed
)

// kindOf goes by the unit, which is all that Go's benchmarks say of a figure: "x-…" are times of a baseline, "…/call" and
// "%-…" are counts.
func kindOf(unit string) kind {
	switch {
	case strings.HasPrefix(unit, "x-"):
		return ratio
	case strings.HasSuffix(unit, "/call"), strings.HasPrefix(unit, "%-"):
		return count
	case strings.HasSuffix(unit, "MiB"):
		return size
	default:
		return none
	}
}

const (
	ratioWithin = 0.40
	sizeWithin  = 0.05
)

// parse reads what go test -bench prints. Of a count the least of the runs is taken, for whatever disturbs one only adds to it, of
// all else the median.
func parse(pkg, text string) (Figures, error) {
	all := map[string]map[string][]float64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(pkg, "./") + " " + strings.TrimPrefix(withoutProcs(fields[0]), "Benchmark")
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if unit := fields[i+1]; kindOf(unit) != none {
				if all[name] == nil {
					all[name] = map[string][]float64{}
				}
				all[name][unit] = append(all[name][unit], v)
			}
		}
	}
	out := Figures{}
	for name, units := range all {
		out[name] = map[string]float64{}
		for unit, values := range units {
			slices.Sort(values)
			at := len(values) / 2
			if kindOf(unit) == count {
				at = 0
			}
			out[name][unit] = values[at]
		}
	}
	return out, nil
}

// withoutProcs leaves out the number of processors that ends a benchmark's name.
func withoutProcs(name string) string {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return name
	}
	if _, err := strconv.Atoi(name[i+1:]); err != nil {
		return name
	}
	return name[:i]
}

func (f Figures) add(more Figures) { maps.Copy(f, more) }

// of are the figures of the packages that other has some of.
func (f Figures) of(other Figures) Figures {
	out := Figures{}
	for name, units := range f {
		if other.knows(name) {
			out[name] = units
		}
	}
	return out
}

// without are all others.
func (f Figures) without(other Figures) Figures {
	out := Figures{}
	for name, units := range f {
		if !other.knows(name) {
			out[name] = units
		}
	}
	return out
}

func (f Figures) knows(name string) bool {
	pkg, _, _ := strings.Cut(name, " ")
	for n := range f {
		if strings.HasPrefix(n, pkg+" ") {
			return true
		}
	}
	return false
}

// verdict is how a figure compares.
type verdict string

const (
	same    verdict = "ok"
	differs verdict = "DIFFERS"
	missing verdict = "NOT MEASURED"
	unknown verdict = "NOT COMMITTED"
)

// row is one figure's comparison.
type row struct {
	name, unit string
	was, is    float64
	verdict    verdict
}

// compare holds what is measured against what is committed, in order.
func compare(committed, now Figures) []row {
	var rows []row
	for name, units := range committed {
		for unit, was := range units {
			r := row{name: name, unit: unit, was: was, is: math.NaN(), verdict: missing}
			if is, ok := now[name][unit]; ok {
				r.is, r.verdict = is, same
				if !close(unit, was, is) {
					r.verdict = differs
				}
			}
			rows = append(rows, r)
		}
	}
	for name, units := range now {
		for unit, is := range units {
			if _, ok := committed[name][unit]; !ok {
				rows = append(rows, row{name: name, unit: unit, was: math.NaN(), is: is, verdict: unknown})
			}
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.unit, b.unit)) })
	return rows
}

// close says whether a figure is what it was. What became less is another figure too: it is to be committed, or is a fault of the
// measurement.
func close(unit string, was, is float64) bool {
	within := 0.0
	switch kindOf(unit) {
	case ratio:
		within = ratioWithin
	case size:
		within = sizeWithin
	case count, none:
	}
	return math.Abs(is-was) <= within*was
}

func table(out io.Writer, rows []row) {
	for i, r := range rows {
		if i == 0 || rows[i-1].name != r.name {
			fmt.Fprintf(out, "%s\n", r.name)
		}
		fmt.Fprintf(out, "  %-28s %10s %10s  %s\n", r.unit, number(r.was), number(r.is), r.verdict)
	}
}

func number(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
