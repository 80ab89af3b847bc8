package rig_test

import (
	"bytes"
	"context"
	"fmt"
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

func (l *lines) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Split(strings.TrimSpace(l.buf.String()), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

func (l *lines) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), word)
}

// C9: Valkey is lost under load in each of the ways in which it can be, and comes back. No call is lost, none is paid
// twice but after a wipe, no provider is called meanwhile without a claim, and all goes on within seconds.
func TestOutage_OfTheStateStoreLosesNoCall(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of outages")
	}
	for _, tt := range []struct {
		name       string
		lose, back func(o *outage) error
		wiped      bool          // the store comes back empty: what ran may repeat
		within     time.Duration // all that was sent by then has ended, counted from the recovery
	}{
		{
			name:   "refused",
			lose:   func(o *outage) error { l := o.Links[cloud.PartValkey]; l.Refuse(); l.Cut(); return nil },
			within: 20 * time.Second,
		},
		{
			name:   "hanging",
			lose:   func(o *outage) error { o.Links[cloud.PartValkey].Hang(); return nil },
			within: 60 * time.Second, // what was asked for before is granted late, to nobody: it lapses
		},
		{
			name: "killed and started again", wiped: true,
			lose: func(o *outage) error { l := o.Links[cloud.PartValkey]; l.Refuse(); l.Cut(); return nil },
			back: func(o *outage) error {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				return o.Valkey.Restart(ctx)
			},
			within: 60 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := startOutage(t)
			if err := o.Fake.SetLatency(server.Latency{Mean: outageCall}); err != nil {
				t.Fatal(err)
			}
			ctx := within(t, 3*time.Minute)
			sent := make(chan error, 1)
			go func() { sent <- o.send(ctx) }()
			pause(t, outageAfter)
			if err := tt.lose(o); err != nil {
				t.Fatal(err)
			}
			lost := time.Now()
			pause(t, outageFor)
			if tt.back != nil {
				if err := tt.back(o); err != nil {
					t.Fatal(err)
				}
			}
			back := time.Now()
			o.Links[cloud.PartValkey].Resume()
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			o.awaitEnd(ctx, t)
			o.judge(ctx, t, lost, back, tt.wiped, tt.within)
		})
	}
}

// A store that is slow is none that is lost.
func TestOutage_SlowStateStoreIsNoOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute of calls")
	}
	o := startOutage(t)
	ctx := within(t, 2*time.Minute)
	o.Links[cloud.PartValkey].Delay(100 * time.Millisecond)
	began := time.Now()
	if err := o.send(ctx); err != nil {
		t.Fatal(err)
	}
	o.awaitEnd(ctx, t)
	o.judge(ctx, t, began, began, false, time.Minute)
	if n := o.out.count("state_store_lost"); n != 0 {
		t.Errorf("lost %d times", n)
	}
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
	api := o.Client("producer")
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
func (o *outage) judge(ctx context.Context, t *testing.T, lost, back time.Time, wiped bool, within time.Duration) {
	t.Helper()
	const grace = 500 * time.Millisecond // a call whose claim was just taken begins
	paid, unclaimed := map[string]int{}, 0
	var first, last time.Duration
	for _, c := range o.Fake.Calls() {
		if c.Outcome != server.Replied {
			continue
		}
		paid[c.RequestSHA256]++
		if c.At.After(lost.Add(grace)) && c.At.Before(back) {
			unclaimed++
		}
		if end := c.At.Add(c.Duration).Sub(back); c.At.After(back) {
			if first == 0 || end < first {
				first = end
			}
			last = max(last, end)
		}
	}
	twice := 0
	for _, n := range paid {
		if n > 1 {
			twice++
		}
	}
	dead := 0
	for _, lane := range llmq.Lanes() {
		dead += o.depth(ctx, t, string(o.Config.Queues.Names().Model(rig.ModelChat, lane).DLQ()))
	}
	results := o.results(ctx, t)
	t.Logf("%d calls: %d paid, %d paid twice, %d results, %d in the dead-letter queues, %d provider calls in %.1f s without a store; from the recovery: first end after %.1f s, last after %.1f s; functions said lost %d times, back %d times",
		outageCalls, len(paid), twice, results, dead, unclaimed, back.Sub(lost).Seconds(), first.Seconds(), last.Seconds(), o.out.count("state_store_lost"), o.out.count("state_store_back"))
	if len(paid) != outageCalls || dead != 0 || !wiped && results != outageCalls {
		t.Errorf("%d of %d were answered, %d results are stored, %d are dead", len(paid), outageCalls, results, dead)
	}
	if twice > 0 && !wiped {
		t.Errorf("%d were paid twice", twice)
	}
	if unclaimed > 0 {
		t.Errorf("%d provider calls without a claim", unclaimed)
	}
	if last > within {
		t.Errorf("the last ended %s after the recovery, want %s", last, within)
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
