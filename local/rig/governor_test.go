package rig_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/eventsource"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// C11 on the real function and the mapping API: 20 calls at once, a share of 0.8 and batches of 10 need two invocations, where
// the template gives ten. A deploy that puts the template's value back costs a minute; a second run in that minute
// finds nothing to do, and the requests are counted.
func TestGovernor_BoundsBackgroundSources(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{Change: func(c *config.Config) { c.Governor.Enabled = true }})
	ctx := within(t, 90*time.Second)
	type ran struct {
		Sources, Moved, Failed, Requests, Forecast int
		Error                                      string
	}
	govern := func() (out ran) {
		t.Helper()
		event := `{"version":"0","id":"1","detail-type":"Scheduled Event","source":"aws.scheduler","detail":"{}"}`
		res, err := r.Lambda.Invoke(ctx, cloud.FunctionGovernor, []byte(event), lambda.InvokeOptions{})
		if err != nil || res.FunctionError != "" {
			t.Fatalf("governor: %v %s", err, res.Payload)
		}
		if err := json.Unmarshal(res.Payload, &out); err != nil {
			t.Fatalf("%s: %v", res.Payload, err)
		}
		t.Logf("%+v", out)
		return out
	}
	bounds := func(lane llmq.Lane) (all []int) {
		for _, m := range []string{rig.ModelChat, rig.ModelEmbed, rig.ModelConverse} {
			q := queue.Names{Prefix: "llm"}.Model(m, lane)
			all = append(all, settled(ctx, t, r, lane, q).Mapping.MaximumConcurrency)
		}
		return all
	}
	// The schedule has fired at the start already; wherever it stands, the sources come to the rule's value.
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for bounds(llmq.LaneBulk)[0] != 2 || bounds(llmq.LaneBG)[0] != 2 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the schedule did not bound the sources")
		}
	}
	for lane, want := range map[llmq.Lane]int{llmq.LaneRT: 10, llmq.LaneBG: 2, llmq.LaneBulk: 2} {
		for i, got := range bounds(lane) {
			if got != want {
				t.Errorf("%s source %d has %d, want %d", lane, i, got, want)
			}
		}
	}
	if got := govern(); got != (ran{Sources: 6, Requests: 3, Forecast: 3}) {
		t.Errorf("a minute without news = %+v, want three requests", got)
	}

	// A deploy puts one back.
	bg := settled(ctx, t, r, llmq.LaneBG, "llm-"+rig.ModelChat)
	if _, err := r.Mappings.Update(ctx, bg.UUID, eventsource.Change{MaximumConcurrency: new(10)}); err != nil {
		t.Fatal(err)
	}
	if got := govern(); got.Moved != 0 || got.Failed != 0 { // it is still being changed, and is left alone
		t.Errorf("while the deploy changes it = %+v", got)
	}
	settled(ctx, t, r, llmq.LaneBG, "llm-"+rig.ModelChat)
	if got := govern(); got != (ran{Sources: 6, Moved: 1, Requests: 4, Forecast: 3}) {
		t.Errorf("the minute after a deploy = %+v", got)
	}

	var status struct {
		Sources []struct {
			Queue    queue.Name
			Ceiling  int
			Governor *struct {
				Want   int
				Reason string
			}
		}
	}
	if code := operate(t, r, "GET", "/status", nil, &status); code != 200 {
		t.Fatalf("status: %d", code)
	}
	for _, s := range status.Sources {
		if s.Queue == "llm-"+rig.ModelChat && (s.Governor == nil || s.Governor.Want != 2 || s.Ceiling != 10) {
			t.Errorf("status of %s = %+v", s.Queue, s)
		}
		if s.Queue == "llm-"+rig.ModelChat+"-rt" && s.Governor != nil {
			t.Errorf("rt is governed: %+v", s)
		}
	}

	// Without the state store the limits are unknown: nothing is asked of AWS.
	if err := r.Valkey.Close(); err != nil {
		t.Fatal(err)
	}
	if got := govern(); got.Requests != 0 || got.Error == "" {
		t.Errorf("without the state store = %+v", got)
	}
}
