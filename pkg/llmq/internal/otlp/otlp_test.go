package otlp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector is a receiver of OTLP in protobuf over HTTP.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	calls int
	spans []*tracepb.ResourceSpans
	bad   []string
}

func newCollector(t *testing.T, answer func(http.ResponseWriter, *http.Request)) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var got tracepb.TracesData
		c.mu.Lock()
		if c.calls++; err != nil || proto.Unmarshal(body, &got) != nil || r.URL.Path != "/base/v1/traces" || r.Method != http.MethodPost ||
			r.Header.Get("Content-Type") != "application/x-protobuf" {
			c.bad = append(c.bad, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
		}
		c.spans = append(c.spans, got.GetResourceSpans()...)
		c.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

// heard is how often it was called, and the names of the spans that it got.
func (c *collector) heard() (calls int, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range c.spans {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				names = append(names, s.GetName())
			}
		}
	}
	return c.calls, names
}

func takes(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func newExporter(t *testing.T, endpoint string, change ...func(*Config)) (*Exporter, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	cfg := Config{Endpoint: endpoint, Ratio: 1, Resource: map[string]string{"service.name": "fn"}, Log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, c := range change {
		c(&cfg)
	}
	e, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, &log
}

func (e *Exporter) span(name string) {
	_, s := e.Tracer("test").Start(context.Background(), name)
	s.End()
}

func TestFlush_SendsWhatHasEnded(t *testing.T) {
	t.Parallel()
	c := newCollector(t, takes)
	e, log := newExporter(t, c.URL+"/base/")
	_, open := e.Tracer("test").Start(t.Context(), "open")
	e.span("a")
	e.span("b")
	e.Flush()
	if calls, names := c.heard(); calls != 1 || strings.Join(names, " ") != "a b" || len(c.bad) > 0 {
		t.Errorf("%d calls, spans %v, not understood %v", calls, names, c.bad)
	}
	e.Flush()
	if calls, _ := c.heard(); calls != 1 {
		t.Errorf("with nothing to send there were %d calls", calls)
	}
	open.End()
	e.Flush()
	if _, names := c.heard(); strings.Join(names, " ") != "a b open" {
		t.Errorf("spans %v", names)
	}
	if got := resourceText(c); !strings.Contains(got, "service.name=fn ") || !strings.Contains(got, "telemetry.sdk.language=go ") {
		t.Errorf("resource %s", got)
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", log)
	}
}

func resourceText(c *collector) string {
	var b strings.Builder
	for _, kv := range c.spans[0].GetResource().GetAttributes() {
		b.WriteString(kv.GetKey() + "=" + kv.GetValue().GetStringValue() + " ")
	}
	return b.String()
}

// E9: a collector that hangs, or that nobody can reach, costs an invocation 200 ms at most, and the next ones nothing.
func TestFlush_ACollectorThatFailsIsLeftAlone(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hangs := newCollector(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })
	refuses := newCollector(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	moves := newCollector(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + l.Addr().String()
	_ = l.Close()
	for _, tt := range []struct{ name, url, cause string }{
		{"hangs", hangs.URL, "timeout"}, {"refuses", refuses.URL, `"status 503"`}, {"sends elsewhere", moves.URL, `"status 307"`}, {"dead", dead, "unreachable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, log := newExporter(t, tt.url+"/base")
			e.span("first")
			began := time.Now()
			e.Flush()
			first := time.Since(began)
			began = time.Now()
			const later = 20
			for range later {
				e.span("later")
				e.Flush()
			}
			rest := time.Since(began) / later
			t.Logf("the first flush took %s, the later ones %s each", first, rest)
			if first > FlushWithin+300*time.Millisecond || rest > 20*time.Millisecond { // two cores, and other tests beside
				t.Errorf("the first flush took %s, the later ones %s each", first, rest)
			}
			if got := log.String(); strings.Count(got, "traces_not_exported") != 1 || !strings.Contains(got, "cause="+tt.cause) || strings.Contains(got, "127.0.0.1") {
				t.Errorf("the log: %s", got)
			}
		})
	}
}

// The collector is asked again once the pause is over, and what was lost is told.
func TestFlush_GoesOnAfterThePause(t *testing.T) {
	t.Parallel()
	var answers []int
	var mu sync.Mutex
	c := newCollector(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.WriteHeader(answers[0])
		answers = answers[1:]
	})
	answers = []int{503, 503, 200}
	e, log := newExporter(t, c.URL+"/base")
	over := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.closed = time.Now().Add(-time.Second)
	}
	for _, want := range []time.Duration{leastPause, 2 * leastPause} {
		e.span("lost")
		e.Flush()
		e.span("lost too")
		e.Flush()
		if e.pause != want {
			t.Errorf("the pause is %s, want %s", e.pause, want)
		}
		over()
	}
	e.span("sent")
	e.Flush()
	if calls, _ := c.heard(); calls != 3 || e.pause != 0 {
		t.Errorf("%d calls, and a pause of %s", calls, e.pause)
	}
	if got := log.String(); !strings.Contains(got, "traces_exported_again spans_lost=4") {
		t.Errorf("the log: %s", got)
	}
}

func TestKeep_IsBounded(t *testing.T) {
	t.Parallel()
	c := newCollector(t, takes)
	e, _ := newExporter(t, c.URL+"/base")
	for range MostKept + 7 {
		e.span("s")
	}
	if len(e.kept) != MostKept || e.lost != 7 {
		t.Errorf("%d are kept and %d lost", len(e.kept), e.lost)
	}
	e.Close() // which has the time that a flush may lack
	if _, names := c.heard(); len(names) != MostKept {
		t.Errorf("%d arrived", len(names))
	}
}

// A program that runs on exports by itself, and what is left when it ends.
func TestRun_ExportsWithoutBeingAsked(t *testing.T) {
	t.Parallel()
	c := newCollector(t, takes)
	e, _ := newExporter(t, c.URL+"/base", func(c *Config) { c.Every = time.Millisecond })
	e.span("a")
	deadline := time.After(10 * time.Second)
	for {
		if _, names := c.heard(); len(names) == 1 {
			break
		}
		select {
		case <-deadline:
			t.Fatal("nothing came")
		case <-time.After(time.Millisecond):
		}
	}
	late, _ := newExporter(t, c.URL+"/base", func(c *Config) { c.Every = time.Hour })
	late.span("b")
	late.Close()
	if _, names := c.heard(); strings.Join(names, " ") != "a b" {
		t.Errorf("spans %v", names)
	}
}

// Each process decides alike by the trace's id, whatever a stranger's flag says; whoever records has all recorded.
func TestSampling_FollowsTheRatioAndWhoeverRecords(t *testing.T) {
	t.Parallel()
	low, high := trace.TraceID{15: 1}, trace.TraceID{0: 1, 8: 0xff, 9: 0xff, 15: 1} // the last bytes decide
	for _, tt := range []struct {
		ratio   float64
		id      trace.TraceID
		sampled bool // by whoever called
		want    bool
	}{
		{1, high, false, true}, {0, low, false, false}, {0, low, true, true}, {0.5, low, false, true}, {0.5, high, false, false}, {0.5, high, true, true},
	} {
		e, _ := newExporter(t, "http://127.0.0.1:1", func(c *Config) { c.Ratio = tt.ratio })
		cfg := trace.SpanContextConfig{TraceID: tt.id, SpanID: trace.SpanID{1}, Remote: true}
		if tt.sampled {
			cfg.TraceFlags = trace.FlagsSampled
		}
		_, s := e.Tracer("test").Start(trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(cfg)), "s")
		if got := s.SpanContext().IsSampled(); got != tt.want || s.SpanContext().TraceID() != tt.id {
			t.Errorf("%+v: sampled %t", tt, got)
		}
	}
}
