package rig_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

const nativeCalls = "/llmq/v1/calls"

// native asks one of our own routes, whose answer is read by the caller.
func native(ctx context.Context, r *rig.Rig, method, path, body string, h ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.URL+nativeCalls+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.Key)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(h); i += 2 {
		req.Header.Set(h[i], h[i+1])
	}
	return http.DefaultClient.Do(req)
}

// nativeCall is what our routes tell of a call.
type nativeCall struct {
	status int
	raw    []byte

	ID       string
	State    llmq.State
	Attempts int
	Error    struct{ Code string }
	Result   struct {
		Body json.RawMessage
		Raw  []byte `json:"body_base64"`
	}
}

// tell asks a route that tells of a call, and reads its answer.
func tell(t *testing.T, r *rig.Rig, method, path, body string, h ...string) nativeCall {
	t.Helper()
	c, err := told(within(t, time.Minute), r, method, path, body, h...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func told(ctx context.Context, r *rig.Rig, method, path, body string, h ...string) (c nativeCall, err error) {
	resp, err := native(ctx, r, method, path, body, h...)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close() // it was read to its end
	c.status = resp.StatusCode
	if c.raw, err = io.ReadAll(resp.Body); err != nil {
		return c, err
	}
	if err := json.Unmarshal(c.raw, &c); err != nil {
		return c, fmt.Errorf("%s %s: %d %s: %w", method, path, c.status, c.raw, err)
	}
	return c, nil
}

// submission is a chat call to leave.
func submission(id, lane, text string) string {
	return `{"id":"` + id + `","op":"chat","model":"chat-a","lane":"` + lane + `","body":{"messages":[{"role":"user","content":"` + text + `"}]}}`
}

// A9, DS54, DS55: a call is left, its door is killed with -9, and it is picked up by its id: where it stands, its end after a wait,
// the provider's bytes. A repeat runs nothing.
func TestNative_SubmitThenPickUpAfterTheDoorWasKilled(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	if err := r.Fake.Program(server.Match{}, server.Reply{Hang: true}); err != nil {
		t.Fatal(err)
	}
	left := tell(t, r, "POST", "", submission("left", "bg", "hello"))
	if left.status != http.StatusAccepted || left.ID != "left" || left.State != llmq.StateQueued {
		t.Fatalf("submitted: %d %s", left.status, left.raw)
	}
	killed := 0
	for _, i := range r.Lambda.Instances(cloud.FunctionEnqueue) {
		if err := syscall.Kill(i.PID, syscall.SIGKILL); err != nil {
			t.Errorf("kill %d: %v", i.PID, err)
		}
		killed++
	}
	if killed == 0 {
		t.Fatal("no door is there")
	}
	if err := r.Fake.AwaitInFlight(within(t, time.Minute), "", 1); err != nil {
		t.Fatal(err)
	}
	var now nativeCall
	eventually(t, "a door that tells of the call", func() bool { // the first call after the kill may be told that its door died
		now = tell(t, r, "GET", "/left", "")
		return now.status != http.StatusInternalServerError
	})
	if now.status != http.StatusAccepted || now.State != llmq.StateRunning {
		t.Errorf("while it runs: %d %s", now.status, now.raw)
	}
	if waited := tell(t, r, "GET", "/left?wait=1", ""); waited.status != http.StatusAccepted || waited.State != llmq.StateRunning {
		t.Errorf("after a wait in vain: %d %s", waited.status, waited.raw)
	}
	ended := make(chan error, 1)
	var done nativeCall
	go func() {
		var err error
		done, err = told(within(t, time.Minute), r, "GET", "/left?wait=30", "")
		ended <- err
	}()
	r.Fake.Release(server.Match{})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if done.status != http.StatusOK || done.State != llmq.StateDone || !strings.Contains(string(done.Result.Body), "[fake-chat-1] hello") {
		t.Fatalf("after the wait: %d %s", done.status, done.raw)
	}
	if result := tell(t, r, "GET", "/left/result", ""); result.status != http.StatusOK || !bytes.Equal(result.raw, done.Result.Body) {
		t.Errorf("its result: %d %s", result.status, result.raw)
	}
	if again := tell(t, r, "POST", "", submission("left", "bg", "hello"), "Prefer", "wait=10"); again.status != http.StatusOK || !bytes.Equal(again.Result.Body, done.Result.Body) {
		t.Errorf("a repeat: %d %s", again.status, again.raw)
	}
	if other := tell(t, r, "POST", "", submission("left", "bg", "another")); other.status != http.StatusUnprocessableEntity {
		t.Errorf("another body under the id: %d %s", other.status, other.raw)
	}
	if late := tell(t, r, "DELETE", "/left", ""); late.status != http.StatusOK || late.State != llmq.StateDone {
		t.Errorf("cancelled too late: %d %s", late.status, late.raw)
	}
	if kept := keptFor(t, r); kept < 23*time.Hour {
		t.Errorf("its end is kept for %s", kept)
	}
	if calls := r.Fake.Calls(); len(calls) != 1 {
		t.Errorf("%d provider calls", len(calls))
	}
}

// keptFor is for how long the one stored result will be there.
func keptFor(t *testing.T, r *rig.Rig) time.Duration {
	t.Helper()
	ctx := within(t, time.Minute)
	c := redis.NewClient(&redis.Options{Addr: r.Valkey.Addr(), Password: r.Valkey.Password(), PoolSize: 1})
	defer func() { _ = c.Close() }() // nothing is lost
	keys, _, err := c.Scan(ctx, 0, "llmq:*:res:*", 1000).Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("stored results %v, %v", keys, err)
	}
	left, err := c.PTTL(ctx, keys[0]).Result()
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// A15, KT4, DS55: through the real functions, a key does what its scopes say, and another tenant's calls are unknown to it.
func TestNative_ScopesAndTenants(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	if got := tell(t, r, "POST", "", submission("mine", "rt", "hello"), "Prefer", "wait=30"); got.State != llmq.StateDone {
		t.Fatalf("submitted: %s", got.raw)
	}
	statuses := func(tenant string, scopes ...string) (got []int) {
		t.Helper()
		key := issue(t, r, map[string]any{"tenant": tenant, "scopes": scopes, "models": []string{rig.ModelChat}, "lanes": []string{"rt"}}).Key
		for _, ask := range []struct{ method, path, body string }{
			{"POST", "", submission("mine", "rt", "hello")}, {"GET", "/mine", ""}, {"GET", "/mine/result", ""}, {"GET", "/mine/stream", ""}, {"DELETE", "/mine", ""},
		} {
			resp, err := native(within(t, time.Minute), r, ask.method, ask.path, ask.body, "Authorization", "Bearer "+key)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close() // only the status matters
			got = append(got, resp.StatusCode)
		}
		return got
	}
	for _, tc := range []struct {
		tenant string
		scopes []string
		want   []int
	}{
		{"default", []string{"submit"}, []int{200, 403, 403, 403, 403}},
		{"default", []string{"read"}, []int{403, 200, 200, 200, 403}},
		{"default", []string{"cancel"}, []int{403, 403, 403, 403, 200}},
		{"default", []string{"call"}, []int{403, 403, 403, 403, 403}},
		{"acme", []string{"read", "cancel"}, []int{403, 404, 404, 404, 404}},
	} {
		if diff := cmp.Diff(tc.want, statuses(tc.tenant, tc.scopes...)); diff != "" {
			t.Errorf("%s %v, of submit, call, result, stream, cancel (-want +got):\n%s", tc.tenant, tc.scopes, diff)
		}
	}
}

// A9, DS54: who waits for the end of what it leaves and then goes away loses nothing.
func TestNative_ResultOutlastsTheCallerWhoBrokeOff(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	if err := r.Fake.Program(server.Match{}, server.Reply{Hang: true}); err != nil {
		t.Fatal(err)
	}
	ctx, breakOff := context.WithCancel(within(t, time.Minute))
	gone := make(chan error, 1)
	go func() {
		resp, err := native(ctx, r, "POST", "", submission("broken-off", "rt", "hello"), "Prefer", "wait=60")
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	if err := r.Fake.AwaitInFlight(ctx, "", 1); err != nil {
		t.Fatal(err)
	}
	breakOff()
	if err := <-gone; err == nil {
		t.Fatal("it was answered before it broke off")
	}
	if now := tell(t, r, "GET", "/broken-off", ""); now.State != llmq.StateRunning {
		t.Errorf("after its caller went: %s", now.raw)
	}
	r.Fake.Release(server.Match{})
	if done := tell(t, r, "GET", "/broken-off?wait=30", ""); done.status != http.StatusOK || done.State != llmq.StateDone {
		t.Errorf("picked up: %d %s", done.status, done.raw)
	}
	if calls := r.Fake.Calls(); len(calls) != 1 || calls[0].Outcome != server.Replied {
		t.Errorf("provider calls: %+v", calls)
	}
}

// A9: a call that waits for a slot is cancelled and never runs; one that runs is stopped, the provider's socket is closed
// and its slot is free.
func TestNative_CancelOfQueuedAndOfRunning(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{Change: func(c *config.Config) { c.Models[0].Targets[0].MaxConcurrency = 1 }})
	if err := r.Fake.Program(server.Match{}, server.Reply{Hang: true}); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, time.Minute)
	tell(t, r, "POST", "", submission("running", "bg", "one"))
	if err := r.Fake.AwaitInFlight(ctx, "", 1); err != nil {
		t.Fatal(err)
	}
	tell(t, r, "POST", "", submission("queued", "bg", "two"))
	if got := tell(t, r, "DELETE", "/queued", ""); got.status != http.StatusOK || got.State != llmq.StateCancelled || got.Error.Code != string(llmq.CodeCancelled) {
		t.Errorf("cancel of a queued one: %d %s", got.status, got.raw)
	}
	began := time.Now()
	if got := tell(t, r, "DELETE", "/running", ""); got.Error.Code != "" && got.Error.Code != string(llmq.CodeCancelled) {
		t.Errorf("cancel of a running one: %d %s", got.status, got.raw)
	}
	if err := r.Fake.AwaitInFlight(ctx, "", 0); err != nil {
		t.Fatal(err)
	}
	t.Logf("the provider's socket was closed %.0f ms after DELETE was sent", ms(time.Since(began)))
	for _, id := range []string{"running", "queued"} {
		if got := tell(t, r, "GET", "/"+id+"?wait=10", ""); got.status != http.StatusOK || got.State != llmq.StateCancelled {
			t.Errorf("%s: %d %s", id, got.status, got.raw)
		}
		if got := tell(t, r, "GET", "/"+id+"/result", ""); got.status != llmq.CodeCancelled.Info().Status || got.Error.Code != string(llmq.CodeCancelled) {
			t.Errorf("result of %s: %d %s", id, got.status, got.raw)
		}
	}
	if got := tell(t, r, "POST", "", submission("next", "rt", "three"), "Prefer", "wait=30"); got.State != llmq.StateDone {
		t.Errorf("the next call: %s", got.raw)
	}
	calls := r.Fake.Calls()
	if len(calls) != 2 || calls[0].Outcome != server.Aborted || calls[1].Outcome != server.Replied {
		t.Errorf("provider calls: %+v", calls)
	}
	if got := tell(t, r, "DELETE", "/nobody", ""); got.status != http.StatusNotFound {
		t.Errorf("cancel of an unknown one: %d %s", got.status, got.raw)
	}
}
