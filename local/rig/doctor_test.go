package rig_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/eventsource"
	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
)

type diagnosed struct{ Findings []admin.Finding }

// of is what was found of a subject by a check.
func (d diagnosed) of(t *testing.T, check, subject string) admin.Finding {
	t.Helper()
	for _, f := range d.Findings {
		if f.Check == check && f.Subject == subject {
			return f
		}
	}
	t.Fatalf("nothing was found of %s %s: %+v", check, subject, d.Findings)
	return admin.Finding{}
}

// E5, G1: llmq doctor on a local cloud where all is well: every part is looked at, a message goes through each lane and back, and no
// provider is called.
func TestDoctor_AllIsWell(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	c := newCLI(t, r)
	var got diagnosed
	began := time.Now()
	c.run(0, &got, "doctor")
	lanes := 0
	for _, f := range got.Findings {
		slow := f.Check == "state store" && f.Verdict == admin.Warn // a busy machine is
		if f.Verdict != admin.OK && f.Check != "aws" && !slow {
			t.Errorf("found %+v", f)
		}
		if f.Check == "lane" {
			lanes++
			t.Log(f.Subject, f.Detail)
		}
	}
	if want := len(r.Config.QueueNames()); lanes != want {
		t.Errorf("%d lanes answered, want %d", lanes, want)
	}
	got.of(t, "state store", "round trip")
	got.of(t, "secret", "key_pepper")
	got.of(t, "keys", "state bucket")
	got.of(t, "capacity", rig.ModelChat+"@main")
	if n := len(r.Fake.Calls()); n != 0 {
		t.Errorf("%d calls of the provider", n)
	}
	t.Logf("%d findings in %.1f s", len(got.Findings), time.Since(began).Seconds())
}

// E5: what is wrong is told with the next step, and by the exit code.
func TestDoctor_TellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	c := newCLI(t, r)
	ctx := within(t, time.Minute)
	defer r.SQS.Inject(sqs.Fault{Kind: sqs.Refuse, Op: "SendMessage", Queue: "llm-emb-a-bulk", Code: "AccessDenied", Status: http.StatusForbidden})()
	c.run(0, nil, "queues", "pause", "llm-chat-a")
	if s := settled(ctx, t, r, llmq.LaneBG, "llm-chat-a"); s.State != eventsource.StateDisabled {
		t.Fatalf("the source is %s", s.State)
	}
	if err := r.Lambda.CrashNext(cloud.FunctionWorker(llmq.LaneRT), 1000); err != nil {
		t.Fatal(err)
	}
	var got diagnosed
	_, told := c.run(1, &got, "doctor")
	if !strings.Contains(told, "checks that failed: 4 of") { // the refused lane, and rt of three models
		t.Errorf("told %s", told)
	}
	if f := got.of(t, "lane", "llm-emb-a-bulk"); f.Verdict != admin.Fail || !strings.Contains(f.Next, "policy") {
		t.Errorf("of the queue that refuses: %+v", f)
	}
	if f := got.of(t, "queue", "llm-chat-a"); f.Verdict != admin.Warn || f.Next != "llmq queues resume llm-chat-a" {
		t.Errorf("of the paused queue: %+v", f)
	}
	if f := got.of(t, "lane", "llm-chat-a"); f.Verdict != admin.Skipped {
		t.Errorf("of the paused lane: %+v", f)
	}
	if f := got.of(t, "lane", "llm-chat-a-rt"); f.Verdict != admin.Fail || !strings.Contains(f.Next, "log of llmq-worker-rt") {
		t.Errorf("of the lane whose worker dies: %+v", f)
	}
	if f := got.of(t, "lane", "llm-emb-a"); f.Verdict != admin.OK {
		t.Errorf("of a lane that is well: %+v", f)
	}
}
