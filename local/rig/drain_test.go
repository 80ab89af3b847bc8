package rig_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// E11: workers that get SIGTERM in mid-batch hand everything back within the half second that they have, what runs and what waits
// for a slot, and other processes take it up at once rather than when leases lapse: 55 s of a message, 45 s of a claim, 60 s
// of a slot. Nothing is lost, and nothing that was answered is asked for again.
func TestDrain_SIGTERMInMidBatchHandsEverythingOver(t *testing.T) {
	t.Parallel()
	const slots, calls = 3, 8
	r := ownRig(t, rig.Options{Change: func(c *config.Config) {
		for i := range c.Models {
			c.Models[i].Targets[0].MaxConcurrency = slots
		}
		c.Limiter.BackgroundShare = config.Share{Of: 1, Given: true}
	}})
	hang := slices.Repeat([]server.Reply{{Hang: true}}, slots)
	if err := r.Fake.Program(server.Match{}, hang...); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 2*time.Minute)
	ids := make([]string, calls)
	for i := range ids {
		ids[i] = fmt.Sprintf("drain-%d", i)
	}
	if err := r.Send(ctx, rig.ModelChat, llmq.LaneBG, time.Minute*5, ids); err != nil {
		t.Fatal(err)
	}
	if err := r.Fake.AwaitInFlight(ctx, "", slots); err != nil {
		t.Fatal(err)
	}
	name := r.Config.Queues.Names().Model(rig.ModelChat, llmq.LaneBG)
	if err := rig.Poll(ctx, "all messages to be received", func() bool {
		d, err := r.QueueDepth(ctx, name)
		return err == nil && d.InFlight == calls
	}); err != nil {
		t.Fatal(err)
	}
	function := cloud.FunctionWorker(llmq.LaneBG)
	if err := r.Lambda.Renew(function); err != nil { // those that get the signal get no further work
		t.Fatal(err)
	}
	var told []int
	for _, i := range r.Lambda.Instances(function) {
		if i.State == lambda.StateBusy {
			told = append(told, i.PID)
		}
	}
	stopped := time.Now()
	for _, pid := range told {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.AwaitDrained(ctx); err != nil {
		t.Fatal(err)
	}
	took := time.Since(stopped)
	replied, aborted := map[string]int{}, 0
	for _, c := range r.Fake.Calls() {
		if c.Outcome == server.Replied {
			replied[rig.Asked(c)]++
			continue
		}
		aborted++
		if after := c.At.Add(c.Duration).Sub(stopped); after > 500*time.Millisecond {
			t.Errorf("a call was cut %s after the signal, which Lambda's kill would not have waited for", after)
		}
	}
	for _, id := range ids {
		if replied[id] != 1 {
			t.Errorf("%s was answered %d times", id, replied[id])
		}
	}
	if _, dead, err := r.Depth(ctx); err != nil || dead != 0 || aborted != slots {
		t.Errorf("%d dead letters (%v), and %d calls were cut, want %d", dead, err, aborted, slots)
	}
	if took > 30*time.Second {
		t.Errorf("all was done %s after the signal: something waited for a lease", took)
	}
	t.Logf("%d processes got the signal; %d calls were done %.1f s later", len(told), calls, took.Seconds())
}
