// Package telemetry counts what a process does. A function says it in CloudWatch's embedded metric format, a process that
// runs on shows it to Prometheus (package prom), under the same names.
package telemetry

import (
	"context"
	"slices"
	"sync"
)

// Recorder holds what was counted: since the last flush, or for good in a process that never flushes. It is safe for concurrent
// use. A nil one records nothing.
type Recorder struct {
	lasting bool
	without []Metric

	mu    sync.Mutex // guards all below
	sets  map[Labels]*set
	order []*set // by their labels
}

// set is what has the same labels. It stays, with its values, since a flush comes after every invocation.
type set struct {
	labels Labels
	values []value // by metric
}

// value is what a series has come to. A histogram's of a recorder that flushes is the list of its values, for CloudWatch
// takes them as they are; a lasting one's is counted into buckets, for nobody ever takes them.
type value struct {
	metric  Metric
	told    bool // nothing has come since the last flush
	number  float64
	each    []float64
	buckets *Buckets
}

// NewRecorder is one whose values are told by flushes. It leaves out the metrics that are named.
func NewRecorder(without ...Metric) *Recorder {
	return &Recorder{without: without, sets: map[Labels]*set{}}
}

// NewLasting is one whose values are looked at by [Recorder.Samples], and never flushed.
func NewLasting() *Recorder {
	return &Recorder{lasting: true, sets: map[Labels]*set{}}
}

// Count adds n to a counter.
func (r *Recorder) Count(m Metric, l Labels, n int) { r.add(m, l, float64(n)) }

func (r *Recorder) add(m Metric, l Labels, n float64) {
	if v := r.at(m, l); v != nil {
		v.number += n
		r.mu.Unlock()
	}
}

// Set sets a gauge. Only its last value is told.
func (r *Recorder) Set(m Metric, l Labels, to float64) {
	if v := r.at(m, l); v != nil {
		v.number = to
		r.mu.Unlock()
	}
}

// Observe adds a value to a histogram.
func (r *Recorder) Observe(m Metric, l Labels, x float64) {
	v := r.at(m, l)
	switch {
	case v == nil:
		return
	case !r.lasting:
		v.each = append(v.each, x)
	case v.buckets == nil:
		v.buckets = newBuckets()
		fallthrough
	default:
		v.buckets.add(x)
	}
	r.mu.Unlock()
}

// at is a series' value, with the lock held; nil, and without, where nothing is recorded.
func (r *Recorder) at(m Metric, l Labels) *value {
	if r == nil || slices.Contains(r.without, m) {
		return nil
	}
	l = l.bounded()
	r.mu.Lock()
	s := r.sets[l]
	if s == nil {
		s = &set{labels: l}
		r.sets[l] = s
		i, _ := slices.BinarySearchFunc(r.order, l, func(s *set, l Labels) int { return s.labels.compare(l) })
		r.order = slices.Insert(r.order, i, s)
	}
	i := slices.IndexFunc(s.values, func(v value) bool { return v.metric >= m })
	if i < 0 || s.values[i].metric != m {
		if i < 0 {
			i = len(s.values)
		}
		s.values = slices.Insert(s.values, i, value{metric: m, told: true})
	}
	v := &s.values[i]
	if v.told {
		v.told, v.number, v.each = false, 0, v.each[:0]
	}
	return v
}

// Sample is what a series has come to.
type Sample struct {
	Metric  Metric
	Labels  Labels
	Value   float64
	Buckets *Buckets // of a histogram; Value then is 0
}

// Samples are what a lasting recorder holds.
func (r *Recorder) Samples(context.Context) []Sample {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Sample
	for _, s := range r.order {
		for _, v := range s.values {
			out = append(out, Sample{Metric: v.metric, Labels: s.labels, Value: v.number, Buckets: v.buckets.clone()})
		}
	}
	return out
}

// bounds of a histogram's buckets, in seconds: from a call that met an idle worker to one that waited for most of a day.
var bounds = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 14400} //nolint:gochecknoglobals // never changed

// Buckets count values by their size.
type Buckets struct {
	Count uint64
	Sum   float64
	UpTo  map[float64]uint64 // by bound: how many were at most that
}

func newBuckets() *Buckets {
	b := &Buckets{UpTo: make(map[float64]uint64, len(bounds))}
	for _, at := range bounds {
		b.UpTo[at] = 0
	}
	return b
}

func (b *Buckets) add(x float64) {
	b.Count++
	b.Sum += x
	for _, at := range bounds {
		if x <= at {
			b.UpTo[at]++
		}
	}
}

func (b *Buckets) clone() *Buckets {
	if b == nil {
		return nil
	}
	c := *b
	c.UpTo = make(map[float64]uint64, len(b.UpTo))
	for at, n := range b.UpTo {
		c.UpTo[at] = n
	}
	return &c
}
