package cloud

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/awscost"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// meters count what no part of the cloud counts by itself.
type meters struct {
	door, admin gateway
	bucket      bucketMeter
	printed     *printed
}

// Tally is what AWS would have billed for a cloud until a moment. What it is for is the difference of two: [Tally.Since].
type Tally struct {
	at     time.Time
	counts awscost.Counts // since the cloud began
	work   valkey.Work
	series map[series]time.Time // when each last had a value
}

// What the platform itself writes to CloudWatch Logs, in bytes: two lines of JSON for an invocation, one for a request of the API.
const (
	platformLines = 480
	accessLine    = 350
)

// ecpuBytes is how much data is an ECPU of ElastiCache Serverless, where the command takes no more of the processor.
const ecpuBytes = 1 << 10

// Tally reads all counters. What is running counts when it ends. It fails where the state store does not answer; one that counts
// nothing is told in [awscost.Counts.Uncounted].
func (c *Cloud) Tally(ctx context.Context) (Tally, error) {
	t := Tally{at: time.Now()}
	var err error
	if t.work, err = c.Valkey.Work(ctx); errors.Is(err, valkey.ErrNotCounted) {
		t.counts.Uncounted = []string{"ECPU of the state store: " + err.Error()}
	} else if err != nil {
		return Tally{}, err
	}
	s := c.SQS.Stats()
	t.counts.SQS = map[string]float64{}
	for op, n := range s.Billed {
		t.counts.SQS[op] = float64(n)
	}
	t.counts.EmptyReceives, t.counts.Grouped = float64(s.Empty), float64(s.Grouped)
	m := c.meters
	t.counts.APIRequests, t.counts.APIBytesOut = float64(m.door.requests.Load()), float64(m.door.bytesOut.Load())
	t.counts.AdminRequests = float64(m.admin.requests.Load())
	t.counts.S3Writes, t.counts.S3Reads = float64(m.bucket.writes.Load()), float64(m.bucket.reads.Load())
	t.counts.LogBytes = float64(m.printed.bytes.Load()) + accessLine*(t.counts.APIRequests+t.counts.AdminRequests)
	for _, f := range c.functions(Functions{}) {
		stats := c.Lambda.Stats(f.Name)
		t.counts.LogBytes += platformLines * float64(stats.Invocations)
		t.counts.Functions = append(t.counts.Functions, awscost.Function{
			Name: f.Name, Role: roleOf(f), MemoryMB: float64(f.MemoryMB), Invocations: float64(stats.Invocations), BilledMS: float64(stats.BilledMS),
		})
	}
	for _, sample := range m.printed.sum.Samples(ctx) {
		if sample.Metric == telemetry.Acked || sample.Metric == telemetry.DirectCalls {
			t.counts.Calls += sample.Value
		}
	}
	m.printed.mu.Lock()
	defer m.printed.mu.Unlock()
	t.series = maps.Clone(m.printed.series)
	return t, nil
}

func roleOf(f lambda.FunctionConfig) awscost.Role {
	switch f.Name {
	case FunctionEnqueue:
		return awscost.RoleDoor
	case FunctionGovernor:
		return awscost.RoleGovernor
	case FunctionAdmin:
		return awscost.RoleAdmin
	}
	return awscost.RoleWorker
}

// Since is what would be billed for the time between from and t.
//
// ECPU is an estimate, for only AWS knows how much of a processor a command takes there: one for each command, those that scripts run
// and the scripts themselves, and one for each KB that went over the store's connections. A store that was restarted in between has
// forgotten what it did before.
func (t Tally) Since(from Tally) awscost.Counts {
	counts := t.counts
	counts.Seconds = t.at.Sub(from.at).Seconds()
	for _, c := range []struct {
		to    *float64
		began float64
	}{
		{&counts.Calls, from.counts.Calls},
		{&counts.APIRequests, from.counts.APIRequests},
		{&counts.APIBytesOut, from.counts.APIBytesOut},
		{&counts.AdminRequests, from.counts.AdminRequests},
		{&counts.EmptyReceives, from.counts.EmptyReceives},
		{&counts.Grouped, from.counts.Grouped},
		{&counts.S3Writes, from.counts.S3Writes},
		{&counts.S3Reads, from.counts.S3Reads},
		{&counts.LogBytes, from.counts.LogBytes},
	} {
		*c.to -= c.began
	}
	counts.SQS = maps.Clone(t.counts.SQS)
	for op, n := range from.counts.SQS {
		counts.SQS[op] -= n
	}
	counts.Functions = slices.Clone(t.counts.Functions)
	for i, f := range from.counts.Functions { // the same ones: a cloud makes no others once it runs
		counts.Functions[i].Invocations -= f.Invocations
		counts.Functions[i].BilledMS -= f.BilledMS
	}
	work := t.work
	if work.Commands >= from.work.Commands {
		work.Commands, work.Bytes = work.Commands-from.work.Commands, work.Bytes-from.work.Bytes
	}
	counts.ECPU = float64(work.Commands) + float64(work.Bytes)/ecpuBytes
	for s, last := range t.series {
		if last.After(from.at) && !slices.Contains(telemetry.Native(), s.metric) { // AWS has those by itself
			counts.MetricSeries++
		}
	}
	return counts
}
