package telemetry

import "slices"

// Metric is a metric's name.
type Metric string

// The metrics (FEATURES E7). [Metrics] says what each of them is.
const (
	Inflight      Metric = "llmq_inflight"
	BreakerOpen   Metric = "llmq_breaker_open"
	RateUsed      Metric = "llmq_rate_used"
	RateRemaining Metric = "llmq_rate_remaining"
	Received      Metric = "llmq_sqs_received_total"
	Sent          Metric = "llmq_sqs_sent_total"
	Acked         Metric = "llmq_sqs_acked_total"
	Released      Metric = "llmq_sqs_released_total"
	Expired       Metric = "llmq_sqs_expired_total"
	QueueErrors   Metric = "llmq_sqs_errors_total"
	QueueWait     Metric = "llmq_sqs_wait_seconds"
	QueueDepth    Metric = "llmq_queue_depth"
	QueueOldest   Metric = "llmq_queue_oldest_seconds"
	Fallback      Metric = "llmq_fallback_total"
	DeadLetters   Metric = "llmq_dead_letters_total"
	DirectCalls   Metric = "llmq_direct_total"
	QueueDirect   Metric = "llmq_queue_direct"
	StoreErrors   Metric = "llmq_store_errors_total"
	StoreDown     Metric = "llmq_store_down"
	Settings      Metric = "llmq_settings_kept_total"
)

// Kind says how a metric is to be read.
type Kind int

// The kinds of metrics.
const (
	Counter   Kind = iota + 1 // counts up; CloudWatch gets what was counted since the last flush
	Gauge                     // the last value holds
	Histogram                 // one value for each of many events
)

// String is the kind's name in Prometheus's words.
func (k Kind) String() string {
	switch k {
	case Counter:
		return "counter"
	case Gauge:
		return "gauge"
	case Histogram:
		return "histogram"
	}
	return ""
}

// Info says what a metric is.
type Info struct {
	Name   Metric
	Kind   Kind
	Labels []string // by which it is told apart, in their order; [Labels] says what they are
	From   string   // who tells it
	Help   string
	// Apart are the words that the last label may have, where the list is short and ours; nil otherwise.
	Apart []string
	// Rare says that only a fault makes its series.
	Rare bool
	// Native says that CloudWatch has it by itself: on AWS it is not sent there a second time.
	Native bool
}

// Where a metric comes from.
const (
	fromDoor     = "door, programs"
	fromWorker   = "worker"
	fromGovernor = "governor, programs"
	fromEngine   = "worker, door, programs"
	fromAll      = "all"
)

// Metrics lists them all.
func Metrics() []Info {
	return []Info{
		{Name: Inflight, Kind: Gauge, Labels: []string{"model", "target"}, From: fromGovernor, Help: "calls in flight at a target, of all processes"},
		{Name: BreakerOpen, Kind: Gauge, Labels: []string{"model", "target"}, From: fromGovernor, Help: "1 while a target's breaker lets nothing through, else 0"},
		{Name: RateUsed, Kind: Gauge, Labels: []string{"model", "target", "kind"}, Apart: budgets(), From: fromGovernor, Help: "calls or tokens drawn of a target's budget in this minute of the calendar; where it has one"},
		{Name: RateRemaining, Kind: Gauge, Labels: []string{"model", "target", "kind"}, Apart: budgets(), From: fromGovernor, Help: "calls or tokens that an rt call could draw of a target's budget now; where it has one"},
		{Name: Received, Kind: Counter, Labels: []string{"model", "lane"}, From: fromWorker, Help: "deliveries of messages, those that came back after a release among them"},
		{Name: Sent, Kind: Counter, Labels: []string{"model", "lane"}, From: fromDoor, Help: "messages that a queue took"},
		{Name: Acked, Kind: Counter, Labels: []string{"model", "lane"}, From: fromWorker, Help: "messages that may be deleted"},
		{Name: Released, Kind: Counter, Labels: []string{"model", "lane", "reason"}, Apart: append(slices.Clone(reasons), other), From: fromWorker, Help: "messages that were handed back"},
		{Name: Expired, Kind: Counter, Labels: []string{"model", "lane"}, From: fromWorker, Help: "of the acknowledged, those that no provider was asked for in time"},
		{Name: QueueErrors, Rare: true, Kind: Counter, Labels: []string{"model", "cause"}, Apart: []string{"refused", "timeout", "lease", "delete"}, From: fromEngine, Help: "requests to a queue that failed: sends it refused or left unanswered, leases not set, deletions"},
		{Name: QueueWait, Kind: Histogram, Labels: []string{"model", "lane"}, From: fromWorker, Help: "of each acknowledged message: from when it was first sent to when its last delivery came"},
		{Name: QueueDepth, Kind: Gauge, Labels: []string{"queue", "kind"}, Apart: []string{KindWaiting, KindDelayed, KindReceived}, Native: true, From: "governor", Help: "messages of a queue, about; on AWS as AWS/SQS ApproximateNumberOfMessagesVisible, Delayed and NotVisible"},
		{Name: QueueOldest, Kind: Gauge, Labels: []string{"queue"}, From: fromWorker, Help: "age of the oldest message of the last batch, counted from when it was first sent. SQS's own age leaves out what was received three times"},
		{Name: Fallback, Kind: Counter, Labels: []string{"model", "step"}, From: fromEngine, Help: "calls of a model that ended at another target than its first, by that one"},
		{Name: DeadLetters, Rare: true, Kind: Counter, Labels: []string{"code"}, From: fromWorker, Help: "messages that a worker put into a dead-letter queue, by error code"},
		{Name: DirectCalls, Kind: Counter, Labels: []string{"model", "cause"}, Apart: []string{"queue", "store", "routing"}, From: fromDoor, Help: "calls that were run where their callers wait: for want of the queue or the state store, or because routing says so"},
		{Name: QueueDirect, Rare: true, Kind: Gauge, Labels: []string{"model"}, From: fromDoor, Help: "1 while a model's calls are run where their callers wait, 0 once they are queued again"},
		{Name: StoreErrors, Rare: true, Kind: Counter, Labels: []string{"function", "cause"}, From: fromAll, Help: "calls of the state store that failed"},
		{Name: StoreDown, Rare: true, Kind: Gauge, Labels: []string{"function"}, From: fromAll, Help: "1 while the state store is lost, 0 once it is back"},
		{Name: Settings, Rare: true, Kind: Counter, Labels: []string{"cause"}, From: fromAll, Help: "looks at live settings after which the last good ones stay"},
	}
}

// The kinds of a target's budgets, and of a queue's messages.
const (
	KindCalls    = "calls"
	KindTokens   = "tokens"
	KindWaiting  = "waiting"  // a worker could get it now
	KindDelayed  = "delayed"  // sent with a delay that is not over
	KindReceived = "received" // handed to a worker and not deleted yet, or handed back for later
)

func budgets() []string { return []string{KindCalls, KindTokens} }

// Native are those that CloudWatch has by itself.
func Native() []Metric {
	var out []Metric
	for _, in := range Metrics() {
		if in.Native {
			out = append(out, in.Name)
		}
	}
	return out
}

// infoOf is a metric's.
func infoOf(m Metric) (Info, bool) {
	all := Metrics()
	if i := slices.IndexFunc(all, func(in Info) bool { return in.Name == m }); i >= 0 {
		return all[i], true
	}
	return Info{}, false
}
