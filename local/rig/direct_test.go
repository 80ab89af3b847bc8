package rig_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// answered is one call's answer at the door.
type answered struct {
	status     int
	direct     bool
	retryAfter int // seconds; 0 is none
	code       string
	took       time.Duration
}

// post makes one call at the door, without an SDK that repeats it.
func (l linked) post(ctx context.Context, text string, headers map[string]string) (answered, error) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, rig.ModelChat, text)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL+"/v1/chat/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return answered{}, err
	}
	r.Header.Set("Authorization", "Bearer "+l.Key)
	r.Header.Set("Content-Type", "application/json")
	for name, v := range headers {
		r.Header.Set(name, v)
	}
	began := time.Now()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answered{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return answered{}, err
	}
	a := answered{status: resp.StatusCode, direct: resp.Header.Get("X-LLMQ-Direct") == "true", code: resp.Header.Get("X-LLMQ-Error-Code"), took: time.Since(began)}
	a.retryAfter, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	return a, nil
}

// call is post for one that must get an answer.
func (l linked) call(t *testing.T, text string, headers map[string]string) answered {
	t.Helper()
	a, err := l.post(within(t, time.Minute), text, headers)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// D10, E12, S20: SQS is down. The first call is served within 6 s, the later ones as fast as their provider; what nobody waits
// for is told to come back. A send that arrived after all runs once.
func TestDirect_QueueIsDown(t *testing.T) {
	t.Parallel()
	const atProvider, overhead = 100 * time.Millisecond, 900 * time.Millisecond // two cores, and other tests beside
	for _, tc := range []struct {
		name  string
		fault sqs.Fault
		first int // calls that try the queue
	}{
		{"refused", sqs.Fault{Kind: sqs.Refuse}, 1},
		{"no answer", sqs.Fault{Kind: sqs.Hang}, 3},
		{"arrived, but its answer was lost", sqs.Fault{Kind: sqs.LoseAnswer}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := startLinked(t)
			if err := l.Fake.SetLatency(server.Latency{Mean: atProvider}); err != nil {
				t.Fatal(err)
			}
			l.ask(t, "warm")
			tc.fault.Op = "SendMessage"
			remove := l.SQS.Inject(tc.fault)
			defer remove()
			var slowest time.Duration
			for i := range tc.first {
				a := l.call(t, fmt.Sprint("first ", i), nil)
				if a.status != http.StatusOK || a.took > 6*time.Second || !a.direct && tc.fault.Kind != sqs.LoseAnswer {
					t.Errorf("call %d, the queue tried: %+v", i, a)
				}
				slowest = max(slowest, a.took)
			}
			later := time.Duration(0)
			for i := range 10 {
				a := l.call(t, fmt.Sprint("later ", i), nil)
				if a.status != http.StatusOK || !a.direct {
					t.Errorf("later call %d: %+v", i, a)
				}
				later += a.took / 10
			}
			t.Logf("first calls within %s, later ones in %s on average with %s at the provider", slowest, later, atProvider)
			if later > atProvider+overhead {
				t.Errorf("later calls took %s on average, want the provider's time", later)
			}
			if bg := l.call(t, "bg", map[string]string{"X-LLMQ-Lane": "bg"}); tc.fault.Kind != sqs.LoseAnswer && (bg.code != string(llmq.CodeQueueUnavailable) || bg.retryAfter == 0) {
				t.Errorf("a bg call: %+v, want queue_unavailable with a Retry-After", bg)
			}
			remove()
			l.settled(t, cloud.FunctionWorker(llmq.LaneRT)) // what arrived has been looked at
			paid := map[string]int{}
			for _, c := range l.Fake.Calls() {
				paid[c.RequestSHA256]++
			}
			for body, n := range paid {
				if n > 1 {
					t.Errorf("request %.8s was paid for %d times", body, n)
				}
			}
		})
	}
}

// D14, DS20: the state store is away for ten seconds after 40 calls were sent. None is run where its caller waits, and none is lost.
func TestDirect_StoreBlinks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("ten seconds of outage, and the way back")
	}
	const calls = 40
	l := startLinked(t)
	if err := l.Fake.SetLatency(server.Latency{Mean: 3 * time.Second}); err != nil {
		t.Fatal(err)
	}
	l.ask(t, "warm")
	got := make([]answered, calls)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			a, err := l.post(within(t, 2*time.Minute), fmt.Sprint("call ", i), nil)
			if err != nil {
				t.Error(err)
			}
			got[i] = a
		})
	}
	l.sent(t, calls+1)
	link := l.Links[cloud.PartValkey]
	link.Refuse()
	link.Cut()
	pause(t, 10*time.Second)
	link.Resume()
	wg.Wait()
	good, slowest := 0, time.Duration(0)
	for i, a := range got {
		if a.status == http.StatusOK && !a.direct {
			good++
		} else {
			t.Errorf("call %d: %+v", i, a)
		}
		slowest = max(slowest, a.took)
	}
	t.Logf("%d of %d ok through 10 s without a state store, the slowest in %s", good, calls, slowest)
}

// sent waits until the door has sent n messages.
func (l linked) sent(t *testing.T, n int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(time.Minute)
	for {
		if got := l.SQS.Stats().Requests["SendMessage"]; got >= int64(n) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not all calls were sent")
		}
	}
}

// D11, S21: the state store is lost before a call is sent. One that waits and that nobody can send again is run without it, where
// no cap is a promise; all else is told to come back.
func TestDirect_StoreIsLost(t *testing.T) {
	t.Parallel()
	l := linked{ownRig(t, rig.Options{Linked: true, Change: func(c *config.Config) {
		c.Models[0].Targets[0].MaxConcurrency, c.Door.MaxConcurrency = 0, 1
	}})}
	l.ask(t, "warm")
	link := l.Links[cloud.PartValkey]
	link.Refuse()
	link.Cut()
	defer link.Resume()
	for i := range 3 {
		if a := l.call(t, fmt.Sprint("alone ", i), nil); a.status != http.StatusOK || !a.direct || a.took > 10*time.Second {
			t.Errorf("without a store: %+v", a)
		} else {
			t.Logf("served without a state store after %s", a.took)
		}
	}
	for name, headers := range map[string]map[string]string{
		"an id of its own": {"Idempotency-Key": "k-1"}, "bg": {"X-LLMQ-Lane": "bg"},
	} {
		if a := l.call(t, name, headers); a.status != http.StatusServiceUnavailable || a.code != string(llmq.CodeQueueUnavailable) || a.retryAfter == 0 {
			t.Errorf("%s: %+v, want queue_unavailable with a Retry-After", name, a)
		}
	}
	link.Resume()
	// The library dials a store that was gone once a second; until then the process can't know better.
	var last answered
	if err := rig.Poll(within(t, 10*time.Second), "calls to be queued again", func() bool {
		last = l.call(t, "back", nil)
		return last.status == http.StatusOK && !last.direct
	}); err != nil {
		t.Errorf("with the store back: %v; the last: %+v", err, last)
	}
}
