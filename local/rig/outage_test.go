package rig_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
)

const (
	outageCalls = 240                    // over the three lanes
	outageEvery = 50 * time.Millisecond  // one is sent
	outageAfter = 3 * time.Second        // the store is lost
	outageFor   = 6 * time.Second        // by default
	outageCall  = 300 * time.Millisecond // a call's time at the provider
	outageAck   = 2 * time.Second        // from a call's end until its message is deleted, at most
)

// outage is a rig under a stream of messages that are sent straight to the queues, since the door has its
// own ways without a state store.
type outage struct {
	linked
	out *lines
}

func startOutage(t *testing.T) *outage {
	t.Helper()
	out := &lines{}
	r, err := rig.Start(within(t, time.Minute), rig.Options{Functions: functions, Linked: true, Engine: valkey.Real, Output: out})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(r); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(out.tail(60))
		}
	})
	if err := r.Fake.SetLatency(server.Latency{Mean: outageCall}); err != nil {
		t.Fatal(err)
	}
	return &outage{linked{r}, out}
}

// lines keeps what the functions print.
type lines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// tail is the last n lines but for metrics.
func (l *lines) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Split(strings.TrimSpace(l.buf.String()), "\n")
	all = slices.DeleteFunc(all, func(line string) bool { return strings.Contains(line, `{"_aws":`) })
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

func (l *lines) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), word)
}

// C9: Valkey is lost under load in each of the ways in which it can be, and comes back. No call is lost, none is paid
// twice but after a wipe, no provider is called meanwhile without a claim, and all goes on within seconds. A
// store that is slow is none that is lost. The parts mostly wait, so they run side by side.
func TestOutage_OfTheStateStoreLosesNoCall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a minute of outages")
	}
	if _, err := exec.LookPath("valkey-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI needs valkey-server: %v", err)
		}
		t.Skipf("needs valkey-server: %v", err)
	}
	refuse := func(o *outage) error { l := o.Links[cloud.PartValkey]; l.Refuse(); l.Cut(); return nil }
	var parts sync.WaitGroup
	for _, l := range []loss{ //nolint:paralleltest // see below
		{name: "refused", lose: refuse, within: 20 * time.Second},
		{name: "hanging", lose: func(o *outage) error { o.Links[cloud.PartValkey].Hang(); return nil }, within: 20 * time.Second},
		{
			name: "killed and started again", lose: refuse, wiped: true,
			back: func(o *outage) error {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				return o.Valkey.Restart(ctx)
			},
			within: 45 * time.Second, // nothing is admitted for the first 15 s
		},
		{name: "slow", lose: func(o *outage) error { o.Links[cloud.PartValkey].Delay(50 * time.Millisecond); return nil }, slow: true, within: 20 * time.Second},
	} {
		// t.Parallel would let only as many run as there are processors.
		parts.Go(func() { t.Run(l.name, l.run) })
	}
	parts.Wait()
}

// loss is a way in which the state store is lost.
type loss struct {
	name       string
	lose, back func(o *outage) error // back is what the recovery needs beside its link; nil is nothing
	slow       bool                  // it answers all the while, so that nobody may call it lost
	wiped      bool                  // it comes back empty: what ran when it was lost may repeat
	within     time.Duration         // from the recovery to the last call's end
}

func (l loss) run(t *testing.T) {
	o := startOutage(t)
	ctx := within(t, 3*time.Minute)
	sent := make(chan error, 1)
	go func() { sent <- o.send(ctx) }()
	pause(t, outageAfter)
	lost := time.Now()
	if err := l.lose(o); err != nil {
		t.Fatal(err)
	}
	pause(t, outageFor)
	if l.back != nil {
		if err := l.back(o); err != nil {
			t.Fatal(err)
		}
	}
	back := time.Now()
	o.Links[cloud.PartValkey].Resume()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	o.awaitEnd(ctx, t)
	o.judge(ctx, t, l, lost, back)
}

// pause lets real time pass: an outage has a length.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// send sends the stream, one message at a time.
func (o *outage) send(ctx context.Context) error {
	api := o.Client(cloud.Producer)
	tick := time.NewTicker(outageEvery)
	defer tick.Stop()
	for i := range outageCalls {
		lane := llmq.Lanes()[i%len(llmq.Lanes())]
		body := fmt.Sprintf(`{"v":1,"id":"o-%d","op":"chat","model":%q,"lane":%q,"deadline_ms":%d,"params":{"messages":[{"role":"user","content":"call %d"}]}}`,
			i, rig.ModelChat, lane, time.Now().Add(2*time.Minute).UnixMilli(), i)
		url := o.Config.Queues.URLBase + "/" + string(o.Config.Queues.Names().Model(rig.ModelChat, lane))
		if _, err := api.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(body)}); err != nil {
			return fmt.Errorf("send %d: %w", i, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// depth counts a queue's messages, hidden ones among them.
func (o *outage) depth(ctx context.Context, t *testing.T, name string) int {
	t.Helper()
	url, n := o.Config.Queues.URLBase+"/"+name, 0
	got, err := o.Client("test").GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		v, err := strconv.Atoi(got.Attributes[a])
		if err != nil {
			t.Fatalf("%s of %s: %v", a, name, err)
		}
		n += v
	}
	return n
}

// awaitEnd waits until every queue is empty.
func (o *outage) awaitEnd(ctx context.Context, t *testing.T) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		left := 0
		for _, lane := range llmq.Lanes() {
			left += o.depth(ctx, t, string(o.Config.Queues.Names().Model(rig.ModelChat, lane)))
		}
		if left == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d messages are left", left)
		}
	}
}

// judge counts what became of the calls, and prints it.
func (o *outage) judge(ctx context.Context, t *testing.T, l loss, lost, back time.Time) {
	t.Helper()
	const grace = 2 * time.Second // a call whose claim was just taken begins, on cores that are busy
	paid, begun := map[string][]time.Time{}, 0
	var first, last time.Duration
	for _, c := range o.Fake.Calls() {
		if c.Outcome != server.Replied {
			continue
		}
		ended := c.At.Add(c.Duration)
		paid[c.RequestSHA256] = append(paid[c.RequestSHA256], ended)
		if c.At.After(lost.Add(grace)) && c.At.Before(back) {
			begun++
		}
		if end := ended.Sub(back); c.At.After(back) {
			if first == 0 || end < first {
				first = end
			}
			last = max(last, end)
		}
	}
	twice, old := 0, 0
	for _, ends := range paid {
		if len(ends) > 1 {
			twice++
			if slices.MinFunc(ends, time.Time.Compare).Before(lost.Add(-outageAck)) {
				old++
			}
		}
	}
	dead := 0
	for _, lane := range llmq.Lanes() {
		dead += o.depth(ctx, t, string(o.Config.Queues.Names().Model(rig.ModelChat, lane).DLQ()))
	}
	results, saidLost, saidBack := o.results(ctx, t), o.out.count("state_store_lost"), o.out.count("state_store_back")
	t.Logf("%d calls: %d lost, %d paid twice, %d results stored, %d in the dead-letter queues, %d provider calls begun in the %.1f s; from the recovery: first end after %.1f s, last after %.1f s; functions said lost %d times, back %d times",
		outageCalls, outageCalls-len(paid), twice, results, dead, begun, back.Sub(lost).Seconds(), first.Seconds(), last.Seconds(), saidLost, saidBack)
	if len(paid) != outageCalls || dead != 0 || !l.wiped && results != outageCalls {
		t.Errorf("%d of %d were answered, %d results are stored, %d are dead", len(paid), outageCalls, results, dead)
	}
	if twice > 0 && !l.wiped || old > 0 {
		t.Errorf("%d were paid twice, %d of them had ended well before the loss", twice, old)
	}
	if begun > 0 && !l.slow {
		t.Errorf("%d provider calls without a claim", begun)
	}
	if last > l.within {
		t.Errorf("the last ended %s after the recovery, want %s", last, l.within)
	}
	if (saidLost == 0) != l.slow || saidBack == 0 && saidLost > 0 {
		t.Errorf("functions said lost %d times, back %d times", saidLost, saidBack)
	}
}

// results counts the results in the state store, not by way of its link.
func (o *outage) results(ctx context.Context, t *testing.T) int {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: o.Valkey.Addr(), Password: o.Valkey.Password(), PoolSize: 1})
	defer func() { _ = c.Close() }()
	n := 0
	for keys := c.Scan(ctx, 0, "llmq:*res:*", 1000).Iterator(); keys.Next(ctx); {
		n++
	}
	return n
}
