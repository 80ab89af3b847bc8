// Package telemetry counts what a process does and says it in CloudWatch's embedded metric
// format. A label is a name out of the configuration or of a short list: never an id, a
// tenant or anything out of a request, for each set of labels is a series that is paid for.
package telemetry

import (
	"cmp"
	"slices"
	"sync"
)

// Metric is a metric's name.
type Metric string

// The metrics. A name that ends in _total counts, any other is a gauge.
const (
	Received    Metric = "llmq_sqs_received_total"  // by model and lane: deliveries, releases that came back among them
	Acked       Metric = "llmq_sqs_acked_total"     // by model and lane: messages that may be deleted
	Released    Metric = "llmq_sqs_released_total"  // by model, lane and reason: messages that were handed back
	Expired     Metric = "llmq_sqs_expired_total"   // by model and lane: of the acknowledged, those that no provider was asked for in time
	DeadLetters Metric = "llmq_dead_letters_total"  // by code: messages that a worker put into a dead-letter queue
	StoreErrors Metric = "llmq_store_errors_total"  // by function and cause: calls of the state store that failed
	StoreDown   Metric = "llmq_store_down"          // by function: 1 while the state store is lost, 0 once it is back
	QueueErrors Metric = "llmq_queue_errors_total"  // by model and cause, refused or timeout: sends that the queue is at fault for
	QueueDirect Metric = "llmq_queue_direct"        // by model: 1 while its calls are run where their callers wait, 0 once they are queued again
	Settings    Metric = "llmq_settings_kept_total" // by cause: looks at live settings after which the last good ones stay
	DirectCalls Metric = "llmq_direct_total"        // by model and cause, queue or store: calls that were run so, for want of which; routing: because its rule or the kill switch says so
)

// Labels say what is counted. A label that is "" is left out.
type Labels struct {
	Function string // the process, by its function's name
	Model    string // alias
	Lane     string
	Reason   string // of a release; one that [Recorder] doesn't know counts as "other"
	Cause    string // of a failure
	Code     string // of an error; a caller gives one of a fixed list
}

const other = "other"

// reasons of a release that have a series of their own: seven with "other", which leaves five of
// the twelve that a model's lane may have (FEATURES E7).
var reasons = []string{"deferred", "no_capacity", "out_of_time", "retry_later", "running_elsewhere", "store_unavailable"} //nolint:gochecknoglobals // never changed

// bounded keeps the number of series small, whatever a caller comes up with.
func (l Labels) bounded() Labels {
	if l.Reason != "" && !slices.Contains(reasons, l.Reason) {
		l.Reason = other
	}
	return l
}

// pairs are the labels that are given, by name.
func (l Labels) pairs() [][2]string {
	all := [][2]string{{"cause", l.Cause}, {"code", l.Code}, {"function", l.Function}, {"lane", l.Lane}, {"model", l.Model}, {"reason", l.Reason}}
	return slices.DeleteFunc(all, func(p [2]string) bool { return p[1] == "" })
}

func (l Labels) compare(m Labels) int {
	return cmp.Or(cmp.Compare(l.Function, m.Function), cmp.Compare(l.Model, m.Model), cmp.Compare(l.Lane, m.Lane),
		cmp.Compare(l.Reason, m.Reason), cmp.Compare(l.Cause, m.Cause), cmp.Compare(l.Code, m.Code))
}

// Recorder holds what was counted since the last flush. It is safe for concurrent use. A nil one
// records nothing.
type Recorder struct {
	mu     sync.Mutex // guards values
	values map[Labels]map[Metric]int64
}

// NewRecorder is an empty one.
func NewRecorder() *Recorder { return &Recorder{values: map[Labels]map[Metric]int64{}} }

// Count adds n to a counter.
func (r *Recorder) Count(m Metric, l Labels, n int) {
	r.change(m, l, func(v int64) int64 { return v + int64(n) })
}

// Set sets a gauge. Only its last value is told.
func (r *Recorder) Set(m Metric, l Labels, value int64) {
	r.change(m, l, func(int64) int64 { return value })
}

func (r *Recorder) change(m Metric, l Labels, to func(int64) int64) {
	if r == nil {
		return
	}
	l = l.bounded()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.values[l] == nil {
		r.values[l] = map[Metric]int64{}
	}
	r.values[l][m] = to(r.values[l][m])
}

// take hands out what was counted, and begins anew.
func (r *Recorder) take() map[Labels]map[Metric]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.values
	r.values = map[Labels]map[Metric]int64{}
	return taken
}
