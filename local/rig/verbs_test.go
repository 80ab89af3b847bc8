package rig_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/eventsource"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// operate asks the admin API, and reads its answer into out.
func operate(t *testing.T, r *rig.Rig, method, path string, body, out any) (status int) {
	t.Helper()
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(within(t, 40*time.Second), method, r.AdminURL+path, sent)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.AdminKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%s %s: %s: %v", method, path, text, err)
	}
	t.Logf("%s %s: %d %.400s", method, path, resp.StatusCode, text)
	return resp.StatusCode
}

// settled waits until the mapping of a queue has come to rest, and returns it.
func settled(ctx context.Context, t *testing.T, r *rig.Rig, lane llmq.Lane, q queue.Name) eventsource.Info {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, m := range r.Mappings.List(cloud.FunctionWorker(lane), "") {
			if m.Mapping.QueueARN == "arn:aws:sqs:us-east-1:000000000000:"+string(q) && (m.State == eventsource.StateEnabled || m.State == eventsource.StateDisabled) {
				return m
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the source of %s does not come to rest", q)
		}
	}
}

// B12, B14, S47: through the real admin function. A lane is paused, and what is sent meanwhile waits; a dead letter is
// redriven into it, and both run once it is resumed; a purge asks for the name and is refused within the minute.
func TestVerbs_PauseRedriveResumePurge(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	ctx := within(t, 90*time.Second)
	const q, dead = queue.Name("llm-" + rig.ModelChat), queue.Name("llm-" + rig.ModelChat + "-dlq")
	lane := map[string]any{"model": rig.ModelChat, "lane": "bg"}

	var flipped struct{ State string }
	if status := operate(t, r, "POST", "/queues/pause", lane, &flipped); status != 200 || flipped.State != "Disabling" {
		t.Fatalf("pause: %d %+v", status, flipped)
	}
	if m := settled(ctx, t, r, llmq.LaneBG, q); m.State != eventsource.StateDisabled {
		t.Fatalf("after the pause: %s", m.State)
	}
	body, err := llmq.Envelope{
		ID: "was-dead", Op: llmq.OpChat, Model: rig.ModelChat, Lane: llmq.LaneBG, Deadline: time.Now().Add(-time.Hour),
		Params: []byte(`{"model":"chat-a","messages":[{"role":"user","content":"again"}]}`),
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	text := func(s string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(s)}
	}
	api := r.Client(cloud.FunctionWorker(llmq.LaneBG))
	if _, err := api.SendMessage(ctx, &awssqs.SendMessageInput{
		QueueUrl: aws.String(r.Config.Queues.URLBase + "/" + string(dead)), MessageBody: aws.String(string(body)),
		MessageAttributes: map[string]types.MessageAttributeValue{queue.AttrReason: text("worker_crash"), queue.AttrTenant: text("acme")},
	}); err != nil {
		t.Fatal(err)
	}
	var redriven struct {
		Moved, Matching, Left int
		Done                  bool
		Reasons               map[string]int
	}
	ask := map[string]any{"model": rig.ModelChat, "lane": "bg", "reason": "worker_crash", "dry_run": true}
	if status := operate(t, r, "POST", "/queues/redrive", ask, &redriven); status != 200 || redriven.Matching != 1 || redriven.Moved != 0 {
		t.Fatalf("dry run: %d %+v", status, redriven)
	}
	delete(ask, "dry_run")
	if status := operate(t, r, "POST", "/queues/redrive", ask, &redriven); status != 200 || redriven.Moved != 1 || !redriven.Done {
		t.Fatalf("redrive: %d %+v", status, redriven)
	}
	var listed struct {
		Queues []struct {
			Queue                queue.Name
			Waiting, DeadLetters int
			Source               struct {
				State  string
				Paused bool
			}
		}
	}
	if status := operate(t, r, "GET", "/queues", nil, &listed); status != 200 {
		t.Fatalf("queues: %d", status)
	}
	for _, row := range listed.Queues {
		if row.Queue == q && (row.Waiting != 1 || !row.Source.Paused || row.Source.State != "Disabled") {
			t.Errorf("the paused queue = %+v", row)
		}
	}
	if n := len(r.Fake.Calls()); n != 0 {
		t.Errorf("%d calls reached the provider from a paused lane", n)
	}
	if status := operate(t, r, "POST", "/queues/resume", lane, &flipped); status != 200 || flipped.State != "Enabling" {
		t.Fatalf("resume: %d %+v", status, flipped)
	}
	settled(ctx, t, r, llmq.LaneBG, q)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(r.Fake.Calls()) == 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the redriven call did not run")
		}
	}

	var failure struct {
		Error struct{ Code, Message, Field string }
	}
	if status := operate(t, r, "POST", "/queues/purge", map[string]any{"queue": q, "confirm": "yes"}, &failure); status != 400 || failure.Error.Field != "confirm" {
		t.Errorf("purge without its name: %d %+v", status, failure)
	}
	var purged struct{ Queue queue.Name }
	sure := map[string]any{"queue": q, "confirm": q}
	if status := operate(t, r, "POST", "/queues/purge", sure, &purged); status != 200 || purged.Queue != q {
		t.Errorf("purge: %d %+v", status, purged)
	}
	if status := operate(t, r, "POST", "/queues/purge", sure, &failure); status != 429 || failure.Error.Code != "rate_limited" {
		t.Errorf("purge again: %d %+v", status, failure)
	}
}
