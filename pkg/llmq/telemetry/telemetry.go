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

	mu     sync.Mutex // guards values
	values map[Labels]map[Metric]value
}

// value is what a series has come to. A histogram's of a recorder that flushes is the list of its values, for CloudWatch
// takes them as they are; a lasting one's is counted into buckets, for nobody ever takes them.
type value struct {
	number  float64 // of a counter or gauge
	each    []float64
	buckets *Buckets
}

// NewRecorder is one whose values are told by flushes. It leaves out the metrics that are named.
func NewRecorder(without ...Metric) *Recorder {
	return &Recorder{without: without, values: map[Labels]map[Metric]value{}}
}

// NewLasting is one whose values are looked at by [Recorder.Samples], and never flushed.
func NewLasting() *Recorder {
	return &Recorder{lasting: true, values: map[Labels]map[Metric]value{}}
}

// Count adds n to a counter.
func (r *Recorder) Count(m Metric, l Labels, n int) { r.add(m, l, float64(n)) }

func (r *Recorder) add(m Metric, l Labels, n float64) {
	r.change(m, l, func(v value) value { v.number += n; return v })
}

// Set sets a gauge. Only its last value is told.
func (r *Recorder) Set(m Metric, l Labels, to float64) {
	r.change(m, l, func(v value) value { v.number = to; return v })
}

// Observe adds a value to a histogram.
func (r *Recorder) Observe(m Metric, l Labels, x float64) {
	r.change(m, l, func(v value) value {
		if !r.lasting {
			v.each = append(v.each, x)
			return v
		}
		if v.buckets == nil {
			v.buckets = newBuckets()
		}
		v.buckets.add(x)
		return v
	})
}

func (r *Recorder) change(m Metric, l Labels, to func(value) value) {
	if r == nil || slices.Contains(r.without, m) {
		return
	}
	l = l.bounded()
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.values[l]
	if of == nil {
		of = map[Metric]value{}
		r.values[l] = of
	}
	of[m] = to(of[m])
}

// take hands out what was counted, and begins anew.
func (r *Recorder) take() map[Labels]map[Metric]value {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.values
	if len(taken) > 0 {
		r.values = map[Labels]map[Metric]value{}
	}
	return taken
}

// Sample is what a series has come to.
type Sample struct {
	Metric  Metric
	Labels  Labels
	Value   float64
	Buckets *Buckets // of a histogram; Value then is 0
}

// Samples are what a lasting recorder holds, in no order.
func (r *Recorder) Samples(context.Context) []Sample {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Sample
	for l, of := range r.values {
		for m, v := range of {
			out = append(out, Sample{Metric: m, Labels: l, Value: v.number, Buckets: v.buckets.clone()})
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
