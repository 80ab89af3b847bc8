package rig_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// addClock configures a provider at url for the clock's model.
func addClock(url string) func(*config.Config) {
	return func(c *config.Config) {
		p := c.Providers[0]
		p.Name, p.BaseURL = "clock", url+"/v1"
		c.Providers = append(c.Providers, p)
		c.Models = append(c.Models, config.Model{Alias: clockModel, Lanes: llmq.Lanes(), Targets: []config.Target{
			{Name: "main", Provider: "clock", ModelID: "clock", Wires: p.Wires(), MaxConcurrency: 20},
		}})
	}
}

// newClock serves streams of n chunks, one every so often, each with the time at which it was sent.
func newClock(t *testing.T, n int, every time.Duration) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := range n {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%d:%d \"}}]}\n\n", i, time.Now().UnixNano())
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(srv.Close)
	return srv
}

// lags are the times from the provider's chunks to their coming; it fails where one is missing or out of order.
func lags(t *testing.T, body io.Reader, n int, pause func(i int)) []time.Duration {
	t.Helper()
	var out []time.Duration
	done := false
	for lines := bufio.NewScanner(body); lines.Scan(); {
		line := lines.Text()
		done = done || line == "data: [DONE]"
		_, rest, ok := strings.Cut(line, `"content":"`)
		if !ok {
			continue
		}
		number, stamp, _ := strings.Cut(strings.TrimSuffix(rest, ` "}}]}`), ":")
		sent, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil || number != strconv.Itoa(len(out)) {
			t.Fatalf("chunk %d is %q", len(out), line)
		}
		out = append(out, time.Since(time.Unix(0, sent)))
		pause(len(out))
	}
	if len(out) != n || !done {
		t.Errorf("%d of %d chunks came, and the mark: %t", len(out), n, done)
	}
	return out
}

func clockBody(i int) string {
	return fmt.Sprintf(`{"model":"clock","stream":true,"messages":[{"role":"user","content":"%d"}]}`, i)
}

// The time from a provider's chunk to its caller's byte, through SQS, worker, Valkey, door and gateway.
func TestStream_TimeFromTheProvidersChunkToTheCallersByte(t *testing.T) {
	t.Parallel()
	const streams, chunks = 8, 100
	r := ownRig(t, rig.Options{Change: addClock(newClock(t, chunks, 50*time.Millisecond).URL)})
	ctx := within(t, 2*time.Minute)
	warm := post(ctx, t, r, "warm", clockBody(-1))
	lags(t, warm.Body, chunks, func(int) {})
	warm.Body.Close()
	each := make(chan []time.Duration, streams)
	for i := range streams {
		go func() {
			resp := post(ctx, t, r, fmt.Sprintf("lag-%d", i), clockBody(i))
			defer resp.Body.Close()
			each <- lags(t, resp.Body, chunks, func(int) {})
		}()
	}
	var all []time.Duration
	for range streams {
		all = append(all, <-each...)
	}
	slices.Sort(all)
	p50, p99 := all[len(all)/2], all[len(all)*99/100]
	t.Logf("%d streams of %d chunks at 20 a second: p50 %.1f ms, p99 %.1f ms, most %.1f ms", streams, chunks, ms(p50), ms(p99), ms(all[len(all)-1]))
	if p50 > time.Second {
		t.Errorf("p50 is %v", p50)
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// resumer follows a call's stream by its last event, and is cut off every so often.
type resumer struct {
	chunks          []string // in the order in which they came
	readers, denied int      // connections that gave events; that gave none
	gap             time.Duration
}

func (f *resumer) run(ctx context.Context, r *rig.Rig, id string, every time.Duration) error {
	var last int64
	came := time.Now()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		n, over := 0, false
		reading, cut := context.WithTimeout(ctx, every)
		events, _, _ := follow(reading, r, id, last, func(e event) bool { // how it broke off doesn't matter: it goes on
			f.gap, came = max(f.gap, time.Since(came)), time.Now()
			n++
			over = e.name != ""
			return over
		})
		cut()
		for _, e := range events {
			last = e.id
			if _, rest, ok := strings.Cut(e.data, `"content":"`); ok {
				number, _, _ := strings.Cut(rest, ":")
				f.chunks = append(f.chunks, number)
			}
		}
		switch {
		case over && events[n-1].name == "llmq.done":
			f.readers++
			return nil
		case over:
			return fmt.Errorf("it ended with %s %s", events[n-1].name, events[n-1].data)
		case n > 0:
			f.readers++
			continue
		}
		f.denied++
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("at %d: %w", last, ctx.Err())
		}
	}
}

// A11, A22: a stream of 30 s outlasts a reader who is slow, a state store that is silent for 4 s and then refuses everybody for 5 s,
// one who comes back with the same request, and one who is cut off time and again and goes on after its last event: everybody
// gets every chunk once.
func TestStream_OutlastsASlowReaderALostStoreAndResumes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 30 s")
	}
	const chunks = 300
	r := ownRig(t, rig.Options{Linked: true, Change: addClock(newClock(t, chunks, 100*time.Millisecond).URL)})
	ctx := within(t, 3*time.Minute)
	tell(t, r, "POST", "", `{"id":"long","op":"chat","model":"clock","body":`+clockBody(0)+`}`)
	slow := make(chan int, 1)
	stalled, resumed := make(chan struct{}), make(chan struct{})
	go func() {
		resp := post(ctx, t, r, "long", clockBody(0))
		defer resp.Body.Close()
		slow <- len(lags(t, resp.Body, chunks, func(i int) {
			if i == 20 { // slow: it reads on when all the rest is there
				close(stalled)
				<-resumed
			}
		}))
	}()
	cut, resumer := make(chan error, 1), resumer{}
	go func() { cut <- resumer.run(ctx, r, "long", 2*time.Second) }()
	<-stalled
	link := r.Links[cloud.PartValkey]
	link.Hang()
	pause(t, 4*time.Second)
	link.Resume()
	pause(t, 3*time.Second)
	link.Refuse()
	link.Cut()
	pause(t, 5*time.Second)
	link.Resume()
	resp := post(ctx, t, r, "long", clockBody(0))
	var again bytes.Buffer
	_, err := io.Copy(&again, resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Error(err)
	}
	close(resumed)
	if n := len(lags(t, &again, chunks, func(int) {})); n != chunks {
		t.Errorf("who came back got %d chunks", n)
	}
	if n := <-slow; n != chunks {
		t.Errorf("who was slow got %d chunks", n)
	}
	if err := <-cut; err != nil {
		t.Errorf("who was cut off: %v", err)
	}
	want := make([]string, chunks)
	for i := range want {
		want[i] = strconv.Itoa(i)
	}
	if diff := cmp.Diff(want, resumer.chunks); diff != "" {
		t.Errorf("who was cut off (-want +got):\n%s", diff)
	}
	t.Logf("%d chunks in 30 s, store silent for 4 s and refusing for 5 s; who was cut off read %d of them by %d connections, %d others gave nothing, the longest gap was %.1f s",
		chunks, len(resumer.chunks), resumer.readers, resumer.denied, resumer.gap.Seconds())
}
