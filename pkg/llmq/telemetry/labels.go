package telemetry

import (
	"cmp"
	"slices"
)

// Labels say what is counted. A label that is "" is left out. Each is a name out of the configuration or of a short list: never
// an id, a tenant or anything out of a request, for each set of labels is a series that is paid for.
type Labels struct {
	Function string // the process, by its function's name
	Model    string // alias
	Target   string // of the model
	Lane     string
	Queue    string
	Kind     string // of a budget: calls or tokens; of a queue's messages: waiting, delayed or received
	Step     string // of a chain: the target's full name, alias@target
	Reason   string // of a release; one that [Recorder] doesn't know counts as "other"
	Cause    string // of a failure
	Code     string // of an error; a caller gives one of a fixed list
}

const other = "other"

// reasons of a release that have a series of their own: six with "other". A model's lane has six more (received, sent, acked,
// expired, wait, oldest), and may have twelve in all (FEATURES E7).
var reasons = []string{"deferred", "no_capacity", "retry_later", "running_elsewhere", "store_unavailable"} //nolint:gochecknoglobals // never changed

// bounded keeps the number of series small, whatever a caller comes up with.
func (l Labels) bounded() Labels {
	if l.Reason != "" && !slices.Contains(reasons, l.Reason) {
		l.Reason = other
	}
	return l
}

// fields are all labels by name, in the order of names.
func (l *Labels) fields() [10]field {
	return [...]field{
		{"cause", &l.Cause},
		{"code", &l.Code},
		{"function", &l.Function},
		{"kind", &l.Kind},
		{"lane", &l.Lane},
		{"model", &l.Model},
		{"queue", &l.Queue},
		{"reason", &l.Reason},
		{"step", &l.Step},
		{"target", &l.Target},
	}
}

type field struct {
	name  string
	value *string
}

// Pairs are the labels that are given, by name.
func (l *Labels) Pairs() [][2]string {
	out := make([][2]string, 0, 4)
	for _, f := range l.fields() {
		if *f.value != "" {
			out = append(out, [2]string{f.name, *f.value})
		}
	}
	return out
}

// In are the values of the labels of those names, in that order.
func (l Labels) In(names []string) []string {
	out := make([]string, len(names))
	for _, f := range l.fields() {
		if i := slices.Index(names, f.name); i >= 0 {
			out[i] = *f.value
		}
	}
	return out
}

// set gives the label of that name its value. It reports false where there is none of that name.
func (l *Labels) set(name, value string) bool {
	for _, f := range l.fields() {
		if f.name == name {
			*f.value = value
			return true
		}
	}
	return false
}

func (l Labels) compare(m Labels) int {
	return cmp.Or(cmp.Compare(l.Function, m.Function), cmp.Compare(l.Model, m.Model), cmp.Compare(l.Target, m.Target), cmp.Compare(l.Lane, m.Lane),
		cmp.Compare(l.Queue, m.Queue), cmp.Compare(l.Kind, m.Kind), cmp.Compare(l.Step, m.Step), cmp.Compare(l.Reason, m.Reason), cmp.Compare(l.Cause, m.Cause),
		cmp.Compare(l.Code, m.Code))
}
