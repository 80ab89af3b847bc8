package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

func TestProgram_FirstThatFitsInOrder(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{Model: "a"}, server.Reply{Status: 500}, server.Reply{Status: 503, Times: 2})
	program(t, s, server.Match{}, server.Reply{Status: 429})
	var got []int
	for _, model := range []string{"b", "a", "a", "a", "a", "b"} {
		got = append(got, chat(t, s, model).Code)
	}
	if diff := cmp.Diff([]int{429, 500, 503, 503, 200, 200}, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

func TestProgram_ByRegion(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{Model: "m", Region: "us-east-1"}, server.Reply{Status: 429, Times: 10})
	for region, want := range map[string]int{"us-east-1": 429, "us-west-2": 200} {
		r := request(t.Context(), http.MethodPost, conversePath("m"), converseBody)
		r.Header.Set("Authorization", sigV4Header(accessKey, region, "bedrock"))
		if got := do(s, r).Code; got != want {
			t.Errorf("%s: status %d, want %d", region, got, want)
		}
	}
	if got := post(t, s, conversePath("m"), converseBody).Code; got != http.StatusOK {
		t.Errorf("bearer token, so no region: status %d, want 200", got)
	}
}

func TestProgram_BodyAndHeader(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	body, header := []byte("<html>"), http.Header{"content-type": {"text/html"}, "X-More": {"1", "2"}}
	program(t, s, server.Match{}, server.Reply{Status: 502, Body: body, Header: header}, server.Reply{Body: []byte{}})
	body[0], header["X-More"] = '!', nil // the caller's own, from here on
	got := chat(t, s, "m")
	if got.Code != 502 || got.Body.String() != "<html>" || got.Header().Get("Content-Type") != "text/html" ||
		len(got.Header().Values("X-More")) != 2 {
		t.Errorf("%d %v %q", got.Code, got.Header(), got.Body)
	}
	if got := chat(t, s, "m"); got.Code != 200 || got.Body.Len() != 0 {
		t.Errorf("empty body: %d %q", got.Code, got.Body)
	}
}

func TestProgram_RefusedCallsTakeNone(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{Status: 503})
	for _, body := range []string{`{`, `{"model":"m"}`} {
		if got := post(t, s, "/v1/chat/completions", body).Code; got != http.StatusBadRequest {
			t.Errorf("status %d, want 400", got)
		}
	}
	if got := do(s, request(t.Context(), http.MethodGet, "/v1/models", "")).Code; got != http.StatusOK {
		t.Errorf("models: status %d, want 200", got)
	}
	if got := chat(t, s, "m").Code; got != http.StatusServiceUnavailable {
		t.Errorf("status %d, want the programmed 503", got)
	}
	if got := s.Stats().All.Calls; got != 1 {
		t.Errorf("%d calls counted, want 1", got)
	}
}

func TestProgram_RefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for name, r := range map[string]server.Reply{
		"informational status": {Status: 100},
		"status":               {Status: 600},
		"delay":                {Delay: -1},
		"long delay":           {Delay: 2 * time.Hour},
		"times":                {Times: -1},
		"code and body":        {Code: "x", Body: []byte("y")},
	} {
		if err := s.Program(server.Match{}, r); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
	if err := s.Program(server.Match{}, make([]server.Reply, 10_001)...); err == nil {
		t.Error("10,001 replies: want an error")
	}
}

func TestProgram_HangsUntilReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		program(t, s, server.Match{}, server.Reply{Hang: true, Times: 3, Status: 503, Delay: time.Second})
		type end struct {
			model  string
			status int
			after  time.Duration
		}
		start, ends := time.Now(), make(chan end, 3)
		for _, model := range []string{"a", "a", "b"} {
			go func() {
				got := chat(t, s, model)
				ends <- end{model, got.Code, time.Since(start)}
			}()
		}
		if err := s.AwaitInFlight(t.Context(), "", 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // bubble time
		if got := s.Release(server.Match{Model: "a"}); got != 2 {
			t.Errorf("released %d, want 2", got)
		}
		for range 2 {
			if diff := cmp.Diff(end{"a", 503, 61 * time.Second}, <-ends, cmp.AllowUnexported(end{})); diff != "" {
				t.Errorf("end (-want +got):\n%s", diff)
			}
		}
		if s.InFlight("b") != 1 || s.InFlight("a") != 0 {
			t.Errorf("in flight: a %d, b %d", s.InFlight("a"), s.InFlight("b"))
		}
		if got := s.Release(server.Match{}); got != 1 {
			t.Errorf("released %d, want 1", got)
		}
		<-ends
		if got := s.Release(server.Match{}); got != 0 {
			t.Errorf("released %d, want none", got)
		}
	})
}

func TestProgram_ResetDropsTheConnection(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{Reset: true})
	if got := chat(t, s, "m"); got != nil {
		t.Errorf("status %d, want no answer", got.Code)
	}
	if calls := s.Calls(); len(calls) != 1 || calls[0].Outcome != server.Reset {
		t.Errorf("log %+v", calls)
	}
}

func TestServer_CancelDuringDelayIsAborted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setLatency(t, s, server.Latency{Mean: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if got := do(s, request(ctx, http.MethodPost, "/v1/chat/completions", chatBody("m"))); got != nil {
			t.Errorf("status %d, want no answer", got.Code)
		}
		calls := s.Calls()
		if len(calls) != 1 || calls[0].Outcome != server.Aborted || calls[0].Duration != 10*time.Second {
			t.Errorf("log %+v, want a call aborted after 10s", calls)
		}
	})
}

func TestServer_AwaitInFlightEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.AwaitInFlight(ctx, "m", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
	})
}

func TestServer_Reset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setLatency(t, s, server.Latency{Mean: time.Hour})
		program(t, s, server.Match{Model: "hang"}, server.Reply{Hang: true, Delay: time.Second})
		program(t, s, server.Match{Model: "never"}, server.Reply{Status: 500})
		var wg sync.WaitGroup
		wg.Go(func() { chat(t, s, "hang") })
		if err := s.AwaitInFlight(t.Context(), "hang", 1); err != nil {
			t.Fatal(err)
		}
		s.Reset()
		one := server.Gauge{Calls: 1, Admitted: 1, InFlight: 1, Peak: 1}
		want := server.Stats{
			All: one, Models: map[string]server.Gauge{"hang": one}, Regions: map[string]server.Gauge{},
			Keys: map[string]server.Gauge{server.KeyHash(apiKey): one},
		}
		if diff := cmp.Diff(want, s.Stats(), cmpopts.IgnoreFields(server.Stats{}, "Since")); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
		wg.Wait() // released
		start := time.Now()
		if got := chat(t, s, "never"); got.Code != http.StatusOK || time.Since(start) != 0 {
			t.Errorf("status %d after %v, want 200 at once", got.Code, time.Since(start))
		}
		if calls := s.Calls(); len(calls) != 2 || calls[0].Model != "hang" {
			t.Errorf("log %+v, want what ended after the reset", calls)
		}
	})
}

// The peak is what limits are judged by, so it must be exact: n calls that overlap make n, and
// calls that follow each other, each begun when the one before was answered, make one.
func TestPeak_IsExact(t *testing.T) {
	t.Parallel()
	const n = 25
	s := newServer(t, nil)
	for range 4 * n {
		chat(t, s, "serial")
	}
	program(t, s, server.Match{Model: "wide"}, server.Reply{Hang: true, Times: n})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			r := request(t.Context(), http.MethodPost, conversePath("wide"), converseBody)
			r.Header.Set("Authorization", sigV4Header(accessKey, "us-east-1", "bedrock"))
			do(s, r)
		})
	}
	if err := s.AwaitInFlight(t.Context(), "wide", n); err != nil {
		t.Fatal(err)
	}
	s.Release(server.Match{})
	wg.Wait()
	gauge := func(calls, peak int, bodies int) server.Gauge {
		tokens := int64(calls)
		return server.Gauge{Calls: calls, Admitted: calls, Good: calls, Peak: peak, Repeats: calls - bodies, InputTokens: tokens, OutputTokens: 3 * tokens}
	}
	want := server.Stats{
		All:     gauge(5*n, n, 2),
		Models:  map[string]server.Gauge{"serial": gauge(4*n, 1, 1), "wide": gauge(n, n, 1)},
		Regions: map[string]server.Gauge{"us-east-1": gauge(n, n, 1)},
		Keys:    map[string]server.Gauge{server.KeyHash(apiKey): gauge(4*n, 1, 1), server.KeyHash(accessKey): gauge(n, n, 1)},
	}
	if diff := cmp.Diff(want, s.Stats(), cmpopts.IgnoreFields(server.Stats{}, "Since")); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if s.Peak("wide") != n || s.Peak("") != n || s.Peak("none") != 0 {
		t.Errorf("peaks %d, %d, %d", s.Peak("wide"), s.Peak(""), s.Peak("none"))
	}
}

// Callers that hold a limit among themselves never see it passed here, on real sockets too, where
// an answer reaches its caller before the handler has returned.
func TestPeak_NeverAboveWhatCallersAllow(t *testing.T) {
	t.Parallel()
	const limit, calls = 4, 200
	s := newServer(t, nil)
	ts := httptest.NewServer(s)
	t.Cleanup(ts.Close)
	slots := make(chan struct{}, limit)
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if status, err := send(t.Context(), ts, chatBody("m")); err != nil || status != http.StatusOK {
				t.Errorf("status %d, %v", status, err)
			}
		})
	}
	wg.Wait()
	if got := s.Peak("m"); got > limit || got < 1 {
		t.Errorf("peak %d, want 1 to %d", got, limit)
	}
}

func TestStats_NamesAreBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for i := range 1010 {
		chat(t, s, fmt.Sprintf("m%d", i))
	}
	models := s.Stats().Models
	if len(models) != 1001 || models["(others)"].Calls != 10 || models["(others)"].InFlight != 0 {
		t.Errorf("%d names, others %+v", len(models), models["(others)"])
	}
}
