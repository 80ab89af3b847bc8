package rig_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// DS4, DS9, DS10, C3, D1: a worker killed in mid-call loses nothing. Its message comes
// back within a minute, the caller gets one answer, and its slot lapses. The model has
// one slot only, so the second call also proves that the dead worker's slot came back.
func TestCrash_WorkerKilledInMidCall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for a real lease to lapse, about a minute")
	}
	r := ownRig(t, rig.Options{Change: func(c *config.Config) {
		for i := range c.Models {
			c.Models[i].Targets[0].MaxConcurrency = 1
		}
		rt := c.Lanes[llmq.LaneRT]
		rt.Timeout = 200 * time.Second
		c.Lanes[llmq.LaneRT] = rt
		c.Timing.RTCapacityWait = 90 * time.Second
	}})
	if err := r.Fake.Program(server.Match{}, server.Reply{Hang: true}); err != nil {
		t.Fatal(err)
	}
	type end struct {
		reply *openai.ChatCompletion
		resp  *http.Response
		err   error
	}
	ctx := within(t, 3*time.Minute)
	ended := make(chan end, 1)
	go func() {
		var e end
		e.reply, e.err = chat(ctx, openaiClient(r), rig.ModelChat, "survive", option.WithMaxRetries(0), option.WithResponseInto(&e.resp))
		ended <- e
	}()
	if err := r.Fake.AwaitInFlight(ctx, "", 1); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for _, i := range r.Lambda.Instances(cloud.FunctionWorker(llmq.LaneRT)) {
		if i.State == lambda.StateBusy {
			pid = i.PID
		}
	}
	if pid == 0 {
		t.Fatal("no worker is busy")
	}
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := <-ended
	took := time.Since(killed)
	if e.err != nil {
		t.Fatalf("the caller got an error after %s: %v", took, e.err)
	}
	if got := e.reply.Choices[0].Message.Content; got != "[fake-chat-1] survive" {
		t.Errorf("content = %q", got)
	}
	if got := e.resp.Header.Get("X-LLMQ-Request-Id"); got == "" {
		t.Error("no request id")
	}
	calls := r.Fake.Calls()
	if len(calls) != 2 || calls[0].Outcome != server.Aborted || calls[1].Outcome != server.Replied {
		t.Errorf("provider saw %d calls: %+v", len(calls), calls)
	}
	if took > 75*time.Second {
		t.Errorf("the message took %s to come back; its lease is 55 s and its slot's 60 s", took)
	}
	t.Logf("answered %.1f s after the kill", took.Seconds())
}
