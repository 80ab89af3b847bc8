package awscost

import (
	"fmt"
	"math"
)

// Traffic is how calls are, on the average.
type Traffic struct {
	Seconds   float64 // that a provider takes
	Waits     bool    // the caller waits at the door; else it submits, and asks once later
	Direct    bool    // the door runs the call itself: no queue, no worker
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

// Usual is a chat call of 10 s and a few KB: what this repository's benches and prod's sizes give.
func Usual() Traffic {
	return Traffic{Seconds: 10, Waits: true, DoorMB: 256, WorkerMB: 256, Chunks: 1, Batch: 10, Parallel: 10, ECPU: 20, LogKB: 1, ReplyKB: 4}
}

// renewEvery is how many seconds a message is held by one request.
const renewEvery = 10

// Million is what a million such calls cost.
func (p Prices) Million(t Traffic) []Item {
	gbSeconds := 1e6 * p.usd("lambda_gb_second")
	doorGB, workerGB := float64(t.DoorMB)/1024, float64(t.WorkerMB)/1024
	requests, doorSeconds := 1.0, t.Seconds
	if !t.Waits {
		requests, doorSeconds = 2, 0.1 // 50 ms each
	}
	items := []Item{
		{"API Gateway", fmt.Sprintf("%g request(s)", requests), requests * p.usd("api_million")},
		{"door", fmt.Sprintf("%g invocation(s), %g s with %d MB", requests, doorSeconds, t.DoorMB), requests*p.usd("lambda_million") + gbSeconds*doorSeconds*doorGB},
	}
	if !t.Direct {
		renewals := math.Floor(t.Seconds / renewEvery)
		n := float64(2*t.Chunks) + 2 + renewals
		items = append(items,
			Item{"SQS", fmt.Sprintf("%g requests: send, receive, hold, delete", n), n*p.usd("sqs_million") + p.usd("sqs_fair_million")},
			Item{"worker", fmt.Sprintf("%g s with %d MB, %g calls at once", t.Seconds, t.WorkerMB, t.Parallel), p.usd("lambda_million")/t.Batch + gbSeconds*t.Seconds*workerGB/t.Parallel},
		)
	}
	return append(items,
		Item{"state store", fmt.Sprintf("%g ECPU", t.ECPU), t.ECPU * p.usd("cache_ecpu_million")},
		Item{"large bodies", fmt.Sprintf("%g %% through S3", 100*t.Offloaded), t.Offloaded * (p.usd("s3_put_million") + p.usd("s3_get_million"))},
		Item{"logs", fmt.Sprintf("%g KB", t.LogKB), t.LogKB * p.usd("logs_gb")},
		Item{"replies to the internet", fmt.Sprintf("%g KB", t.ReplyKB), t.ReplyKB * p.usd("data_out_gb")},
	)
}

// Lever is a way to pay less, or more.
type Lever struct {
	Name string
	USD  float64 // a million calls with it
}

// Levers shows what each change of t alone would do. Idle waiting is the bill: whoever waits is paid by the second.
func (p Prices) Levers(t Traffic) []Lever {
	change := func(name string, by func(*Traffic)) Lever {
		by(&t)
		return Lever{name, Total(p.Million(t))}
	}
	base := t
	var out []Lever
	for _, l := range []struct {
		name string
		by   func(*Traffic)
	}{
		{"one call in a worker at a time (few calls, batch_size 1)", func(t *Traffic) { t.Batch, t.Parallel = 1, 1 }},
		{"door and workers with 128 MB", func(t *Traffic) { t.DoorMB, t.WorkerMB = 128, 128 }},
		{"callers submit and ask later (bg, bulk: /llmq/v1/calls)", func(t *Traffic) { t.Waits = false }},
		{"the door runs the call itself (routing.rt: direct)", func(t *Traffic) { t.Direct = true }},
		{"calls of 2 s in the place of these", func(t *Traffic) { t.Seconds = 2 }},
		{"bodies of 300 KB through S3", func(t *Traffic) { t.Offloaded = 1 }},
	} {
		t = base
		out = append(out, change(l.name, l.by))
	}
	return out
}
