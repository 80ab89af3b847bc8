package eventsource

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// A real process reads the event: the test function of package lambda returns what it gets, and an event has no
// batchItemFailures, which is success.
func TestRun_RealFunction(t *testing.T) {
	t.Parallel()
	bootstrap := filepath.Join(t.TempDir(), "bootstrap")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "lambda.norpc", "-o", bootstrap, "../lambda/internal/testfn")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the test function: %v: %s", err, out)
	}
	h, err := lambda.New(lambda.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(context.Background()) })
	err = h.Create(lambda.FunctionConfig{Name: "worker", Bootstrap: bootstrap, Timeout: 20 * time.Second, MemoryMB: 128, Concurrency: 2})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench()
	b.mapping.MaximumConcurrency = 2
	deleted := make(chan int, 1)
	b.queue.remove = func(in *sqs.DeleteMessageBatchInput) (*sqs.DeleteMessageBatchOutput, error) {
		deleted <- len(in.Entries)
		return b.remove(in)
	}
	s, err := New(b.mapping, b.tuning, Deps{Queue: b.queue, Invoker: h})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	b.arrive <- many("m", 3)
	select {
	case n := <-deleted:
		if n != 3 {
			t.Errorf("%d deleted, want 3", n)
		}
	case <-ctx.Done():
		t.Error("nothing was deleted")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if st := h.Stats("worker"); st.Invocations != 1 || st.Errors != 0 {
		t.Errorf("stats %+v", st)
	}
}
