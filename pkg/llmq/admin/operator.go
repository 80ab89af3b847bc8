package admin

import (
	"slices"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/forecast"
	"github.com/llm-queue/llmq/pkg/llmq/governor"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// LaneRule is what the verbs know of a lane's deployment, or of a queue of jobs.
type LaneRule struct {
	Worker         string        // name of the lane's function
	BatchSize      int           // messages that an invocation gets at most
	MaxConcurrency int           // invocations at once per queue, as deployed: the governor's ceiling
	Timeout        time.Duration // a request's deadline when it names none
	Visibility     time.Duration // of its queues' messages, as deployed: the function's timeout
}

// OperatorDeps are what the verbs that change something work with; all are required but Jobs and Creator.
type OperatorDeps struct {
	Queue    queue.Operator
	Creator  queue.Creator // nil: infrastructure code makes queues
	Sources  queue.Sources
	Lanes    map[llmq.Lane]LaneRule
	Jobs     map[string]LaneRule // of queues of jobs, by their names; the governor leaves them alone
	Governed bool                // whether the governor is on
	Forecast *forecast.Store
	Senders  queue.Senders // whose messages workers take: a redrive sends no others again
	Trail    Trail
	Metrics  *telemetry.Recorder // nil: nothing is counted
}

// Operator serves the verbs that change something, and the governor. It is safe for concurrent
// use and keeps no state.
type Operator struct {
	*Admin
	deps OperatorDeps
}

// NewOperator makes the verbs beside those of a.
func NewOperator(a *Admin, d OperatorDeps) *Operator { return &Operator{Admin: a, deps: d} }

// place is a model's queue as an operator names it.
type place struct {
	model llmq.Model
	lane  llmq.Lane
	queue queue.Name
}

// rule is that of a queue's deployment.
func (o *Operator) rule(p place) LaneRule {
	if r, isOfJobs := o.deps.Jobs[p.model.Alias]; isOfJobs {
		return r
	}
	return o.deps.Lanes[p.lane]
}

// governs reports whether a queue's event source is the governor's: that of jobs is as wide as its slots.
func governs(p place) bool { return slices.Contains(governor.Lanes(), p.lane) && !p.model.Jobs() }

// places lists every queue, in configured order.
func (o *Operator) places() []place {
	var all []place
	for _, m := range o.Catalogue.Models() {
		for _, l := range m.Lanes {
			all = append(all, place{m, l, o.Names.Model(m.Alias, l)})
		}
	}
	return all
}

// pick is the queue that a verb names: by its model and lane, by its own name or its dead-letter queue's, or by both,
// which must then agree.
func (o *Operator) pick(q queue.Name, alias string, lane llmq.Lane) (place, error) {
	if q == "" {
		return o.find(alias, lane)
	}
	for _, p := range o.places() {
		if q != p.queue && q != p.queue.DLQ() {
			continue
		}
		if alias != "" && alias != p.model.Alias || lane != "" && lane != p.lane {
			return place{}, llmq.Errorf(llmq.CodeInvalidRequest, "%s is the queue of model %s, lane %s; name the queue, or model and lane",
				q, p.model.Alias, p.lane).At("queue")
		}
		return p, nil
	}
	return place{}, unknownQueue(q)
}

func unknownQueue(q queue.Name) error {
	return llmq.Errorf(llmq.CodeInvalidRequest, "no model of this deployment has a queue %q; GET /queues lists them", llmq.Clip(string(q), 80)).At("queue")
}

// find is the queue of a model's lane. A lane without a queue of its own is refused: what is done to the queue that
// its calls use would be done to another lane's too.
func (o *Operator) find(alias string, lane llmq.Lane) (place, error) {
	if alias == "" {
		return place{}, llmq.Errorf(llmq.CodeInvalidRequest, "model is missing; name a configured model by its alias and its lane, or a queue as GET /queues lists it").At("model")
	}
	if lane == "" {
		return place{}, llmq.Errorf(llmq.CodeInvalidRequest, "lane is missing; use rt, bg or bulk").At("lane")
	}
	if _, err := llmq.ParseLane(string(lane)); err != nil {
		return place{}, err
	}
	for _, m := range o.Catalogue.Models() {
		if m.Alias != alias {
			continue
		}
		if !slices.Contains(m.Lanes, lane) {
			return place{}, llmq.Errorf(llmq.CodeInvalidRequest, "%s has no %s queue: its %s calls use the %s queue, which is the one to name",
				alias, lane, lane, m.Queue(lane)).At("lane")
		}
		return place{m, lane, o.Names.Model(alias, lane)}, nil
	}
	return place{}, llmq.Errorf(llmq.CodeModelNotFound, "no model %q is configured", llmq.Clip(alias, 80)).At("model")
}
