package awscost

import (
	"maps"
	"slices"
)

// Counts are operations that AWS bills, of a span of time. The zero value is a span without any.
type Counts struct {
	Seconds float64 `json:"seconds"` // how long the span is
	Calls   float64 `json:"calls"`   // that ended in it
	// CallSeconds is how long providers took for these calls, together. 0 is not known: then nobody can tell how many calls ran
	// in a worker at once.
	CallSeconds float64 `json:"call_seconds,omitempty"`

	APIRequests   float64            `json:"api_requests"`  // of callers; a reply is one for each 10 MB
	APIBytesOut   float64            `json:"api_bytes_out"` // to callers
	AdminRequests float64            `json:"admin_requests"`
	Functions     []Function         `json:"functions"`
	SQS           map[string]float64 `json:"sqs_requests"`         // by operation, one for each 64 KB
	EmptyReceives float64            `json:"sqs_empty_receives"`   // of ReceiveMessage, those that brought nothing
	Grouped       float64            `json:"sqs_grouped_messages"` // sent with a message group, which costs on top
	S3Writes      float64            `json:"s3_writes"`            // PUT, POST, COPY, LIST; deletions are free
	S3Reads       float64            `json:"s3_reads"`
	ECPU          float64            `json:"ecpu"` // of the state store
	LogBytes      float64            `json:"log_bytes"`
	MetricSeries  float64            `json:"metric_series"` // of own metrics, that had a value in the span

	// Uncounted are what could not be counted, for people: it is missing in every sum.
	Uncounted []string `json:"uncounted,omitempty"`
}

// Function is what a function was billed for.
type Function struct {
	Name        string  `json:"name"`
	Role        Role    `json:"role"`
	MemoryMB    float64 `json:"memory_mb"`
	Invocations float64 `json:"invocations"`
	BilledMS    float64 `json:"billed_ms"` // init included, each invocation rounded up
}

func (f Function) gbSeconds() float64 { return f.BilledMS / 1000 * f.MemoryMB / 1024 }

// Role is what a function is there for.
type Role string

// The roles. What doors and workers take, calls take; the rest is taken by the hour.
const (
	RoleDoor     Role = "door"
	RoleWorker   Role = "worker"
	RoleGovernor Role = "governor"
	RoleAdmin    Role = "admin"
)

// roles are all of them, in the order of a bill.
func roles() []Role { return []Role{RoleDoor, RoleWorker, RoleGovernor, RoleAdmin} }

func (r Role) ofCalls() bool { return r == RoleDoor || r == RoleWorker }

// messageRequests are the operations that messages make; others only ask about queues.
func messageRequests() []string {
	return []string{
		"SendMessage", "SendMessageBatch", "ReceiveMessage", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "DeleteMessage", "DeleteMessageBatch",
	}
}

// messages are the requests that messages make, receives without one left out.
func (c Counts) messages() float64 {
	n := -c.EmptyReceives
	for _, op := range messageRequests() {
		n += c.SQS[op]
	}
	return n
}

// looks are all other requests to SQS.
func (c Counts) looks() float64 {
	n := 0.0
	for _, op := range slices.Sorted(maps.Keys(c.SQS)) { // in one order: sums of floats depend on it
		if !slices.Contains(messageRequests(), op) {
			n += c.SQS[op]
		}
	}
	return n
}

// of sums up the functions of a role.
func (c Counts) of(r Role) (invocations, gbSeconds float64) {
	for _, f := range c.Functions {
		if f.Role == r {
			invocations += f.Invocations
			gbSeconds += f.gbSeconds()
		}
	}
	return invocations, gbSeconds
}

// seconds are what the functions of a role were billed for, whatever their memory.
func (c Counts) seconds(r Role) float64 {
	ms := 0.0
	for _, f := range c.Functions {
		if f.Role == r {
			ms += f.BilledMS
		}
	}
	return ms / 1000
}

// with are the same counts, with the functions changed. The original stays as it is.
func (c Counts) with(change func(*Function)) Counts {
	functions := make([]Function, len(c.Functions))
	for i, f := range c.Functions {
		change(&f)
		functions[i] = f
	}
	c.Functions = functions
	return c
}

// times is the same span so many times over. Series are no more for it: they have a value all the while.
func (c Counts) times(n float64) Counts {
	c = c.with(func(f *Function) { f.Invocations, f.BilledMS = f.Invocations*n, f.BilledMS*n })
	requests := make(map[string]float64, len(c.SQS))
	for op, of := range c.SQS {
		requests[op] = of * n
	}
	c.SQS = requests
	for _, count := range []*float64{
		&c.Seconds, &c.Calls, &c.CallSeconds, &c.APIRequests, &c.APIBytesOut, &c.AdminRequests, &c.EmptyReceives, &c.Grouped,
		&c.S3Writes, &c.S3Reads, &c.ECPU, &c.LogBytes,
	} {
		*count *= n
	}
	return c
}

// Shape is what decides what a call costs: the levers, as they stand. A field is 0 where the counts don't tell.
type Shape struct {
	CallSeconds   float64 `json:"call_seconds"`   // that the provider takes
	APIRequests   float64 `json:"api_requests"`   // 1: the caller waits; 2: it submits, and asks for the result later
	DoorSeconds   float64 `json:"door_seconds"`   // billed of doors
	Batch         float64 `json:"calls_a_batch"`  // calls in an invocation of a worker
	AtOnce        float64 `json:"calls_at_once"`  // calls that run in a worker at the same time
	WorkerSeconds float64 `json:"worker_seconds"` // billed of workers
	SQSRequests   float64 `json:"sqs_requests"`   // receives without a message left out
	ECPU          float64 `json:"ecpu"`           // of the state store
	LogBytes      float64 `json:"log_bytes"`      // of functions and of the API
	Offloaded     float64 `json:"bodies_in_s3"`   // writes to S3
}

// Shape is what these counts are for a call.
func (c Counts) Shape() Shape {
	if c.Calls == 0 {
		return Shape{}
	}
	s := Shape{
		CallSeconds: c.CallSeconds / c.Calls, APIRequests: c.APIRequests / c.Calls, DoorSeconds: c.seconds(RoleDoor) / c.Calls,
		WorkerSeconds: c.seconds(RoleWorker) / c.Calls, SQSRequests: c.messages() / c.Calls, ECPU: c.ECPU / c.Calls,
		LogBytes: c.LogBytes / c.Calls, Offloaded: c.S3Writes / c.Calls,
	}
	if batches, _ := c.of(RoleWorker); batches > 0 {
		s.Batch = c.Calls / batches
	}
	if s.WorkerSeconds > 0 {
		s.AtOnce = s.CallSeconds / s.WorkerSeconds
	}
	return s
}
