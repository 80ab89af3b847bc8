package awscost

import "math"

// Traffic is how calls are, on the average: the formula's way to [Counts].
type Traffic struct {
	Seconds   float64 // that a provider takes
	Waits     bool    // the caller waits at the door; else it submits, and asks once later
	DoorMB    int
	WorkerMB  int
	Chunks    int     // of 64 KB in a message
	Batch     float64 // messages that an invocation of the worker gets
	Parallel  float64 // calls that run in a worker at once
	ECPU      float64 // of the state store
	Offloaded float64 // part whose body goes through the bucket, 0 to 1
	LogKB     float64
	ReplyKB   float64 // that go out to the internet
}

// Usual is a chat call of 10 s and a few KB as results/cost.md has it counted of callers that wait: calls that come one by one find a
// worker free each, so that none is shared.
func Usual() Traffic {
	return Traffic{Seconds: 10, Waits: true, DoorMB: 256, WorkerMB: 256, Chunks: 1, Batch: 1, Parallel: 1, ECPU: 80, LogKB: 2.5, ReplyKB: 4}
}

const (
	// renewEvery is how many seconds a message is held by one request.
	renewEvery = 10
	// submitMS is how long the door takes to put a call on its queue, or to look for a result.
	submitMS = 50
)

// Counts are what a million such calls make AWS count.
func (t Traffic) Counts() Counts {
	const n = million
	c := Counts{
		Calls: n, CallSeconds: n * t.Seconds,
		SQS: map[string]float64{
			"SendMessage": n * float64(t.Chunks), "ReceiveMessage": n * float64(t.Chunks), "DeleteMessage": n,
			"ChangeMessageVisibility": n * (1 + math.Floor(t.Seconds/renewEvery)),
		},
		Grouped: n, ECPU: n * t.ECPU, S3Writes: n * t.Offloaded, S3Reads: n * t.Offloaded, LogBytes: n * t.LogKB * 1000, APIBytesOut: n * t.ReplyKB * 1000,
		Functions: []Function{
			{Role: RoleDoor, MemoryMB: float64(t.DoorMB)},
			{Role: RoleWorker, MemoryMB: float64(t.WorkerMB), Invocations: n / t.Batch, BilledMS: n * t.Seconds * 1000 / t.Parallel},
		},
	}
	if t.Waits {
		return waiting(c)
	}
	return submitted(c)
}

// waiting are the same calls, with callers that wait at the door.
func waiting(c Counts) Counts {
	if c.submits() {
		c.S3Writes, c.S3Reads = max(0, c.S3Writes-c.Calls), max(0, c.S3Reads-c.Calls)
	}
	return c.door(1, c.CallSeconds*1000)
}

// submitted are the same calls, with callers that submit them and ask once later: their replies are kept in the bucket (DS54).
func submitted(c Counts) Counts {
	if !c.submits() {
		c.S3Writes, c.S3Reads = c.S3Writes+c.Calls, c.S3Reads+c.Calls
	}
	const requests = 2
	return c.door(requests, c.Calls*requests*submitMS)
}

// submits says that callers come twice, most of them.
func (c Counts) submits() bool { return c.APIRequests > 1.5*c.Calls }

// door sets how often a call comes to the door, and what that is billed for.
func (c Counts) door(requests, billedMS float64) Counts {
	c.APIRequests = c.Calls * requests
	return c.with(func(f *Function) {
		if f.Role == RoleDoor {
			f.Invocations, f.BilledMS = c.APIRequests, billedMS
		}
	})
}
