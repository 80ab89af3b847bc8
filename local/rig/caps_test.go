package rig_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// A storm is a rig with so many calls on its queues that only a cap keeps them from the
// provider, and so many worker processes that they could break it. It watches all the while:
// what the provider saw, which results are stored, which processes live.
type storm struct {
	*rig.Rig
	logs  *tally
	store *redis.Client

	mu        sync.Mutex
	calls     []server.Call        // what the provider's log has told so far
	stored    map[string]time.Time // by request: its result is there, and was at this time
	processes map[int]bool         // every worker process that was ever seen
	most      int                  // worker processes alive together
	lastSeq   uint64
}

const (
	stormWorkers = 10 // invocations at once: as many processes, since a process runs one batch at a time
	stormBatch   = 4  // messages of a batch: four times as many calls want a slot as there are workers
	leastAlive   = 8  // worker processes that a storm must have
	stormTakes   = 100 * time.Millisecond
	slotLease    = 60 * time.Second
	messageLease = 55 * time.Second
)

// newStorm starts a rig with caps for bulk: enough workers for them, all slots open to
// that lane. It needs a real Valkey, as the deployed one is.
func newStorm(t *testing.T, change func(*config.Config)) *storm {
	t.Helper()
	if _, err := exec.LookPath("valkey-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI needs valkey-server: %v", err)
		}
		t.Skipf("needs valkey-server: %v", err)
	}
	s := &storm{logs: &tally{seen: map[string]int{}}, stored: map[string]time.Time{}, processes: map[int]bool{}}
	starting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var err error
	s.Rig, err = rig.Start(starting, rig.Options{
		Functions: functions, Output: s.logs, Engine: valkey.Real,
		Change: func(c *config.Config) {
			for lane, l := range c.Lanes {
				l.MaxConcurrency, l.BatchSize = stormWorkers, stormBatch
				c.Lanes[lane] = l
			}
			c.Limiter.BackgroundShare = config.Share{Of: 1, Given: true}
			change(c)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.store = redis.NewClient(&redis.Options{
		Addr: s.Valkey.Addr(), Password: s.Valkey.Password(), PoolSize: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	watching, stopWatching := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watch(watching)
	}()
	t.Cleanup(func() {
		stopWatching()
		<-watched
		_ = s.store.Close() // nothing waits in it
		if err := stop(s.Rig); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("what the functions said: %s", s.logs)
		}
	})
	if err := s.Fake.SetLatency(server.Latency{Mean: stormTakes}); err != nil {
		t.Fatal(err)
	}
	return s
}

// capped gives the chat model's target a cap.
func capped(n int) func(*config.Config) {
	return func(c *config.Config) { c.Models[0].Targets[0].MaxConcurrency = n }
}

// send puts n calls on a lane's queue, ids first-0, first-1 ..., as a service does that knows
// the envelope only.
func (s *storm) send(t *testing.T, model string, lane llmq.Lane, first string, n int) {
	t.Helper()
	ctx := within(t, time.Minute)
	api := s.Client("a-service")
	url := aws.String(s.Config.Queues.URLBase + "/" + string(s.Config.Queues.Names().Model(model, lane)))
	const most = 10 // entries of a batch
	for from := 0; from < n; from += most {
		var entries []types.SendMessageBatchRequestEntry
		for i := from; i < min(n, from+most); i++ {
			id := fmt.Sprintf("%s-%d", first, i)
			body, err := llmq.Envelope{
				ID: id, Op: llmq.OpChat, Model: model, Deadline: time.Now().Add(10 * time.Minute),
				Params: fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, id),
			}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(string(body))})
		}
		out, err := api.SendMessageBatch(ctx, &awssqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})
		if err != nil || len(out.Failed) > 0 {
			t.Fatalf("send: %v, %d failed", err, len(out.Failed))
		}
	}
}

// asked is the id of the request that a provider call was made for.
func asked(c server.Call) string {
	var body struct {
		Messages []struct{ Content string } `json:"messages"`
	}
	if json.Unmarshal(c.Body, &body) != nil || len(body.Messages) == 0 {
		return ""
	}
	return body.Messages[0].Content
}

// watch looks at everything a few times a second, until ctx ends.
func (s *storm) watch(ctx context.Context) {
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		s.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *storm) look(ctx context.Context) {
	fresh := s.Fake.Calls()
	there := s.results(ctx)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range fresh {
		if c.Seq > s.lastSeq {
			s.calls, s.lastSeq = append(s.calls, c), c.Seq
		}
	}
	for _, key := range there {
		if s.stored[key].IsZero() {
			s.stored[key] = now
		}
	}
	alive := 0
	for _, lane := range llmq.Lanes() {
		for _, w := range s.Workers(lane) {
			s.processes[w.PID] = true
			alive++
		}
	}
	s.most = max(s.most, alive)
}

// results lists the keys of the stored results. A store that is down has none to tell.
func (s *storm) results(ctx context.Context) []string {
	var found []string
	var cursor uint64
	for {
		keys, next, err := s.store.Scan(ctx, cursor, "llmq:*:res:*", 2000).Result()
		if err != nil {
			return found
		}
		found = append(found, keys...)
		if cursor = next; cursor == 0 {
			return found
		}
	}
}

// resultKey is the stored result of a request that came without a tenant.
func resultKey(id string) string {
	const tenant = "default"
	return "llmq:local:res:" + llmq.TenantHash(tenant) + ":{" + string(llmq.NewRID(tenant, id)) + "}"
}

// metas reads the meta of every stored result, by request.
func (s *storm) metas(t *testing.T, ids []string) map[string]llmq.Meta {
	t.Helper()
	out := map[string]llmq.Meta{}
	for some := range slices.Chunk(ids, 500) {
		var replies []*redis.StringCmd
		_, err := s.store.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for _, id := range some {
				replies = append(replies, p.Get(t.Context(), resultKey(id)))
			}
			return nil
		})
		if err != nil && err != redis.Nil { //nolint:errorlint // a pipeline gives its first command's error as it is
			t.Fatal(err)
		}
		for i, r := range replies {
			b, err := r.Bytes()
			if err != nil {
				continue // not stored, or wiped
			}
			var res struct {
				Meta  llmq.Meta       `json:"meta"`
				Error json.RawMessage `json:"error"`
			}
			if err := json.Unmarshal(b, &res); err != nil {
				t.Fatal(err)
			}
			if res.Error != nil {
				t.Errorf("%s ended with an error: %s", some[i], res.Error)
			}
			out[some[i]] = res.Meta
		}
	}
	return out
}

// until polls a condition.
func until(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, context.Cause(ctx))
		}
	}
}

// depth counts what is on the queues of all models and lanes, received or not, and on the
// dead-letter queues.
func (s *storm) depth(t *testing.T) (waiting, dead int) {
	t.Helper()
	api := s.Client("an-operator")
	count := func(name string) int {
		out, err := api.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
			QueueUrl: aws.String(s.Config.Queues.URLBase + "/" + name), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
		})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, a := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
			var v int
			if _, err := fmt.Sscan(out.Attributes[a], &v); err != nil {
				t.Fatalf("%s of %s: %v", a, name, err)
			}
			n += v
		}
		return n
	}
	for _, q := range s.Config.QueueNames() {
		waiting += count(string(q))
		dead += count(string(q.DLQ()))
	}
	return waiting, dead
}

// drained waits until every message has been deleted, and the provider answers nobody.
func (s *storm) drained(ctx context.Context, t *testing.T) {
	t.Helper()
	until(ctx, t, "waiting for empty queues", func() bool {
		if s.Fake.InFlight("") > 0 {
			return false
		}
		waiting, _ := s.depth(t)
		return waiting == 0
	})
	s.look(ctx)
}
