package rig_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/eventsource"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

// The packages of workers that run jobs, by their artifacts.
var jobPackages = map[string]string{
	"test-jobs":    "github.com/llm-queue/llmq/local/rig/jobs",
	"example-jobs": "github.com/llm-queue/llmq/examples/jobs",
}

// jobQueue is a queue of the test worker's jobs.
const jobQueue = "files"

// ranOnce is a run, as the test worker reports it.
type ranOnce struct {
	ID, What string
	Attempt  int
	PID      int
	at       time.Time
}

// jobs is a local cloud with queues of jobs, and what its workers report.
type jobs struct {
	*rig.Rig
	*wiring.Program
	url string

	mu   sync.Mutex // guards runs
	runs []ranOnce
	news chan struct{} // capacity 1
}

// withJobs starts one, whose queue of jobs is as said.
func withJobs(t *testing.T, files config.JobQueue, change func(*config.Config)) *jobs {
	t.Helper()
	j := &jobs{news: make(chan struct{}, 1)}
	files.Name, files.Artifact, files.MemoryMB = jobQueue, "test-jobs", 256
	j.Rig = ownRig(t, rig.Options{Change: func(c *config.Config) {
		c.Jobs = []config.JobQueue{files, {Name: "text", Artifact: "example-jobs", Timeout: 60 * time.Second, Slots: 2, MemoryMB: 256}}
		if change != nil {
			change(c)
		}
	}})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run := ranOnce{at: time.Now()}
		if err := json.NewDecoder(r.Body).Decode(&run); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		j.mu.Lock()
		j.runs = append(j.runs, run)
		j.mu.Unlock()
		select {
		case j.news <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(srv.Close)
	j.url = srv.URL
	p, err := wiring.Open(t.Context(), j.Environ(), "default", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	j.Program = p
	return j
}

func (j *jobs) payload(filler string) []byte {
	b, _ := json.Marshal(map[string]string{"report": j.url, "filler": filler}) // texts always marshal
	return b
}

// seen are the reports so far of that kind.
func (j *jobs) seen(what string) []ranOnce {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []ranOnce
	for _, r := range j.runs {
		if r.What == what {
			all = append(all, r)
		}
	}
	return all
}

// await waits for the nth report of a kind.
func (j *jobs) await(ctx context.Context, t *testing.T, what string, n int) ranOnce {
	t.Helper()
	for {
		if all := j.seen(what); len(all) >= n {
			return all[n-1]
		}
		select {
		case <-j.news:
		case <-ctx.Done():
			t.Fatalf("%d runs of %s were reported, want %d", len(j.seen(what)), what, n)
		}
	}
}

// ends waits for a job's end.
func (j *jobs) ends(ctx context.Context, t *testing.T, id string) llmq.Call {
	t.Helper()
	call, err := j.Wait(ctx, "default", id)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return call
}

func (j *jobs) send(ctx context.Context, t *testing.T, function, id string) {
	t.Helper()
	if _, err := j.SendJob(ctx, jobQueue, function, j.payload(""), client.Options{ID: id}); err != nil {
		t.Fatal(err)
	}
}

// A6, S24, S28: a job sent by name runs, its result comes back, and its payload may be larger than a message holds.
func TestJobs_RunByName(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	j := withJobs(t, config.JobQueue{Timeout: 30 * time.Second, Slots: 4}, nil)
	for name, filler := range map[string]string{"small": "", "offloaded": strings.Repeat("é<&>", 300_000)} {
		payload := j.payload(filler)
		reply, err := j.RunJob(ctx, jobQueue, "digest", payload, client.Options{ID: name})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got struct {
			Bytes   int
			SHA256  string
			Attempt int
			ID      string
		}
		if err := json.Unmarshal(reply.Body, &got); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(payload)
		if got.Bytes != len(payload) || got.SHA256 != hex.EncodeToString(sum[:]) || got.Attempt != 1 || got.ID != name {
			t.Errorf("%s: the function got %+v, sent were %d bytes", name, got, len(payload))
		}
		if m := reply.Meta; m.Model != jobQueue || m.ModelID != "digest" || m.Lane != llmq.LaneBulk || m.Attempts != 1 {
			t.Errorf("%s: meta %+v", name, m)
		}
	}
	if n := len(j.seen("digest")); n != 2 {
		t.Errorf("%d runs", n)
	}
}

// A6, B17, DS57: a queue that three artifacts read, of which one knows the function: each job runs once, there. The others hand it on
// without a claim.
func TestJobs_AFleetOfWhichOneKnowsTheFunction(t *testing.T) {
	t.Parallel()
	ctx := within(t, 110*time.Second)
	j := withJobs(t, config.JobQueue{Timeout: 840 * time.Second, Slots: 4}, nil)
	arn := "arn:aws:sqs:us-east-1:000000000000:" + string(j.Config.JobQueue(j.Config.Jobs[0]))
	for _, function := range []string{j.Config.JobFunction("text"), cloud.FunctionWorker(llmq.LaneBulk)} {
		if _, err := j.Mappings.Add(ctx, eventsource.Mapping{Function: function, QueueARN: arn, BatchSize: 1, MaximumConcurrency: 4, ReportBatchItemFailures: true}); err != nil {
			t.Fatal(err)
		}
	}
	ids := rig.Numbered("job", 12)
	began := time.Now()
	for _, id := range ids {
		j.send(ctx, t, "digest", id)
	}
	for _, id := range ids {
		if call := j.ends(ctx, t, id); call.State != llmq.StateDone || call.Attempts != 1 {
			t.Errorf("%s ended as %s after %d attempts: %v", id, call.State, call.Attempts, call.Err)
		}
	}
	runs := map[string]int{}
	for _, r := range j.seen("digest") {
		runs[r.ID]++
	}
	for _, id := range ids {
		if runs[id] != 1 {
			t.Errorf("%s ran %d times", id, runs[id])
		}
	}
	t.Logf("%d jobs, a third of whose receivers know them, all done after %s", len(ids), time.Since(began).Round(time.Millisecond))
}

// A6: a job's function calls a model as any client does, over HTTP with a key, under an id that follows from its own.
func TestJobs_AFunctionCallsAModel(t *testing.T) {
	t.Parallel()
	ctx := within(t, 90*time.Second)
	j := withJobs(t, config.JobQueue{Timeout: 30 * time.Second, Slots: 2}, nil)
	payload, err := json.Marshal(map[string]string{"url": j.URL, "key": j.Key, "model": rig.ModelChat})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := j.RunJob(ctx, jobQueue, "ask", payload, client.Options{ID: "curious"})
	if err != nil || !strings.Contains(string(reply.Body), "asked by a job") {
		t.Fatalf("reply = %+v, %v", reply, err)
	}
	if call, err := j.Find(ctx, "default", "curious-ask"); err != nil || call.State != llmq.StateDone || call.Attempts != 1 {
		t.Errorf("its call = %+v, %v", call, err)
	}
}

// B17, DS57: a job that nobody knows says so near its deadline, and is kept.
func TestJobs_NobodyKnowsIt(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	j := withJobs(t, config.JobQueue{Timeout: 5 * time.Second, Slots: 2}, nil)
	if _, err := j.SendJob(ctx, jobQueue, "digset", j.payload(""), client.Options{ID: "typo", Timeout: 35 * time.Second}); err != nil {
		t.Fatal(err)
	}
	call := j.ends(ctx, t, "typo")
	if call.State != llmq.StateDead || !errors.Is(call.Err, llmq.CodeUnknownJob) || call.Attempts != 0 {
		t.Errorf("ended as %s, %v", call.State, call.Err)
	}
	j.wantDead(ctx, t, llmq.CodeUnknownJob)
}

// wantDead holds that the queue's dead-letter queue has one message of that reason.
func (j *jobs) wantDead(ctx context.Context, t *testing.T, code llmq.Code) {
	t.Helper()
	var listed struct {
		Matching int
		Reasons  map[string]int
	}
	ask := map[string]any{"model": jobQueue, "lane": "bulk", "dry_run": true}
	if status := operate(t, j.Rig, "POST", "/queues/redrive", ask, &listed); status != 200 || listed.Reasons[string(code)] != 1 || len(listed.Reasons) != 1 {
		t.Errorf("dead letters: %d %+v", status, listed)
	}
}

// DS59: a job fails for good after timing.max_receives real failures, and is dead-lettered with its reason; a function may end it at once.
func TestJobs_Failures(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	j := withJobs(t, config.JobQueue{Timeout: 30 * time.Second, Slots: 2}, func(c *config.Config) {
		c.Timing.MaxReceives, c.Timing.RetryBase, c.Timing.RetryMax = 3, 10*time.Millisecond, time.Second
	})
	j.send(ctx, t, "fail", "unlucky")
	j.send(ctx, t, "refuse", "refused")
	if call := j.ends(ctx, t, "refused"); call.State != llmq.StateFailed || call.Err == nil || call.Err.Message != "files@refuse: never" {
		t.Errorf("refused: %s %v", call.State, call.Err)
	}
	if n := len(j.seen("refuse")); n != 1 {
		t.Errorf("a function that refused ran %d times", n)
	}
	if call := j.ends(ctx, t, "unlucky"); call.State != llmq.StateDead || !errors.Is(call.Err, llmq.CodeJobFailed) || call.Attempts != 3 {
		t.Errorf("unlucky: %s after %d attempts, %v", call.State, call.Attempts, call.Err)
	}
	for i, r := range j.seen("fail") {
		if r.Attempt != i+1 {
			t.Errorf("run %d is told that it is attempt %d", i+1, r.Attempt)
		}
	}
	j.wantDead(ctx, t, llmq.CodeJobFailed)
}

// A5, DS58: a running function is stopped by a cancel, and by its queue's timeout.
func TestJobs_AreStopped(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	j := withJobs(t, config.JobQueue{Timeout: 2 * time.Second, Slots: 2}, func(c *config.Config) { c.Timing.MaxReceives = 1 })
	j.send(ctx, t, "hang", "cancelled")
	j.await(ctx, t, "hang", 1)
	began := time.Now()
	if _, err := j.Cancel(ctx, "default", "cancelled"); err != nil {
		t.Fatal(err)
	}
	stopped := j.await(ctx, t, "stopped", 1)
	if call := j.ends(ctx, t, "cancelled"); call.State != llmq.StateCancelled {
		t.Errorf("cancelled: %s %v", call.State, call.Err)
	}
	t.Logf("from the cancel to the end of the function's context: %s", stopped.at.Sub(began).Round(100*time.Microsecond))
	j.send(ctx, t, "hang", "slow")
	first := j.await(ctx, t, "hang", 2)
	if after := j.await(ctx, t, "stopped", 2).at.Sub(first.at); after < time.Second || after > 5*time.Second {
		t.Errorf("a function of a queue of 2 s was stopped after %s", after)
	}
	if call := j.ends(ctx, t, "slow"); call.State != llmq.StateDead || !errors.Is(call.Err, llmq.CodeTimeout) {
		t.Errorf("slow: %s %v", call.State, call.Err)
	}
}

// A6, DS58: a job whose worker is killed runs again within its lease.
func TestJobs_OutliveTheirWorker(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for a lease of 55 s to lapse")
	}
	ctx := within(t, 110*time.Second)
	j := withJobs(t, config.JobQueue{Timeout: 120 * time.Second, Slots: 2}, nil)
	j.send(ctx, t, "hang", "orphan")
	first := j.await(ctx, t, "hang", 1)
	if err := j.Lambda.Kill(j.Config.JobFunction(jobQueue), "busy"); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	again := j.await(ctx, t, "hang", 2)
	if again.PID == first.PID {
		t.Errorf("process %d was not killed", first.PID)
	}
	t.Logf("it ran again %s after its worker was killed", again.at.Sub(killed).Round(100*time.Millisecond))
	if _, err := j.Cancel(ctx, "default", "orphan"); err != nil {
		t.Fatal(err)
	}
	j.ends(ctx, t, "orphan")
}

// B1: status and the queue verbs know a queue of jobs: it is listed, paused and resumed.
func TestJobs_QueueIsOperated(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	j := withJobs(t, config.JobQueue{Timeout: 30 * time.Second, Slots: 4}, nil)
	lane := map[string]any{"model": jobQueue, "lane": "bulk"}
	var flipped struct{ State string }
	if status := operate(t, j.Rig, "POST", "/queues/pause", lane, &flipped); status != 200 || flipped.State != "Disabling" {
		t.Fatalf("pause: %d %+v", status, flipped)
	}
	if status := operate(t, j.Rig, "POST", "/queues/resume", lane, &flipped); status != 200 {
		t.Fatalf("resume: %d %+v", status, flipped)
	}
	var st struct {
		Targets []struct {
			Target string
			Limit  int
			Caps   struct{ Target int }
		}
		Sources []struct {
			Queue          string
			MaxConcurrency int `json:"max_concurrency"`
		}
	}
	if status := operate(t, j.Rig, "GET", "/status", nil, &st); status != 200 {
		t.Fatalf("status: %d", status)
	}
	found := false
	for _, row := range st.Targets {
		if row.Target == jobQueue+"@jobs" {
			found = row.Caps.Target == 4
		}
	}
	if !found {
		t.Errorf("the slots of the queue are not among %+v", st.Targets)
	}
	j.send(ctx, t, "digest", "after")
	if call := j.ends(ctx, t, "after"); call.State != llmq.StateDone {
		t.Errorf("after the pause: %s %v", call.State, call.Err)
	}
}
