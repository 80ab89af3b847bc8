package admin

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// E7: the governor tells of a queue of jobs what it tells of a model's: its depth, and its target's use.
func TestGauges_TellOfQueuesOfJobs(t *testing.T) {
	t.Parallel()
	r := foreseen(t)
	files := llmq.Target{Model: "files", Name: llmq.JobTarget, Wires: []llmq.Wire{llmq.WireJob}}
	r.Catalogue = llmq.NewCatalogue([]llmq.Model{{Alias: "files", Lanes: []llmq.Lane{llmq.LaneBulk}, Targets: []llmq.Target{files}}})
	r.deps.Metrics = telemetry.NewLasting()
	if _, err := client(r.server, "admin").CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("llm-files-bulk")}); err != nil {
		t.Fatal(err)
	}
	r.send(t, "llm-files-bulk", queue.Outgoing{Body: []byte("{}")})
	lim := limits{states: map[string]capacity.State{"files@jobs": {InUse: 2}}, chains: map[string][]llmq.Target{"files": {files}}}
	r.gauge(lim)
	if _, err := r.foresee(t.Context(), lim, nil); err != nil {
		t.Fatal(err)
	}
	got := map[telemetry.Labels]float64{}
	for _, s := range r.deps.Metrics.Samples(t.Context()) {
		if s.Metric == telemetry.QueueDepth || s.Metric == telemetry.Inflight {
			got[s.Labels] = s.Value
		}
	}
	for l, want := range map[telemetry.Labels]float64{
		{Queue: "llm-files-bulk", Kind: telemetry.KindWaiting}: 1, {Queue: "llm-files-bulk", Kind: telemetry.KindReceived}: 0,
		{Queue: "llm-files-bulk", Kind: telemetry.KindDelayed}: 0, {Model: "files", Target: llmq.JobTarget}: 2,
	} {
		if v, told := got[l]; !told || v != want {
			t.Errorf("%+v = %v, %t; want %v", l, v, told, want)
		}
	}
}
