package cloud

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/awscost"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// F6: one request for each 10 MB of a reply, one that was cut too, and the bytes of header and body.
func TestGateway_BillsByTenMegabytes(t *testing.T) {
	t.Parallel()
	var g gateway
	serve := func(h http.HandlerFunc) {
		defer func() { _ = recover() }() // as net/http does for ErrAbortHandler
		g.meter(h).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/", nil))
	}
	for _, tt := range []struct {
		name            string
		handler         http.HandlerFunc
		requests, bytes int64
	}{
		{"no body", func(http.ResponseWriter, *http.Request) {}, 1, 0},
		{"header and body", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("A", "bc") // "A: bc\r\n"
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, "four")
		}, 1, 7 + 4},
		{"10 MB", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 10<<20)) }, 1, 10 << 20},
		{"a byte more", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 10<<20+1)) }, 2, 10<<20 + 1},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		}, 1, 4},
	} {
		requests, sent := g.requests.Load(), g.bytesOut.Load()
		serve(tt.handler)
		if n, b := g.requests.Load()-requests, g.bytesOut.Load()-sent; n != tt.requests || b != tt.bytes {
			t.Errorf("%s: %d requests and %d bytes, want %d and %d", tt.name, n, b, tt.requests, tt.bytes)
		}
	}
}

// A stream must pass through the meter as it comes.
func TestGateway_Flushes(t *testing.T) {
	t.Parallel()
	var g gateway
	w := httptest.NewRecorder()
	g.meter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	if !w.Flushed {
		t.Error("not flushed")
	}
}

func TestBucketMeter_ByClass(t *testing.T) {
	t.Parallel()
	var b bucketMeter
	h := b.meter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, r := range []string{"PUT /b/k", "POST /b/k?uploads", "GET /b?list-type=2", "GET /b/", "GET /b/k", "GET /b/k/l", "HEAD /b/k", "HEAD /b", "DELETE /b/k"} {
		method, path, _ := strings.Cut(r, " ")
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, nil))
	}
	if w, r := b.writes.Load(), b.reads.Load(); w != 4 || r != 4 {
		t.Errorf("%d writes and %d reads, want 4 each", w, r)
	}
}

// What functions print passes on whole; its bytes count without the instance's name, and each series once.
func TestPrinted_CountsBytesAndSeries(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newPrinted(&out)
	r := telemetry.NewRecorder()
	flush := func() string {
		r.Count(telemetry.Acked, telemetry.Labels{Model: "m", Lane: "rt"}, 2)
		r.Observe(telemetry.QueueWait, telemetry.Labels{Model: "m", Lane: "rt"}, 1)
		r.Count(telemetry.Acked, telemetry.Labels{Model: "m", Lane: "bg"}, 1)
		var b bytes.Buffer
		if err := r.FlushEMF(&b, "llmq/test"); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	size := 0
	for _, text := range []string{flush(), flush(), "{\"level\":\"INFO\"}\n", "text\n"} {
		for line := range strings.Lines(text) {
			size += len(line)
			if _, err := p.Write([]byte("[llmq-worker-rt 0a1b] " + line)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := p.bytes.Load(); got != int64(size) {
		t.Errorf("%d bytes, want %d", got, size)
	}
	if len(p.series) != 3 {
		t.Errorf("%d series, want 3: %v", len(p.series), p.series)
	}
	if got := strings.Count(out.String(), "[llmq-worker-rt 0a1b] "); got != 6 {
		t.Errorf("%d lines went on, want 6:\n%s", got, out.String())
	}
}

func TestTally_SinceIsTheDifference(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	was := func(metric telemetry.Metric, at time.Time) map[series]time.Time {
		return map[series]time.Time{{metric: metric}: at}
	}
	from := Tally{
		at: began, work: valkey.Work{Commands: 100, Bytes: 4096}, series: was(telemetry.Acked, began),
		counts: awscost.Counts{
			Calls: 1, APIRequests: 2, SQS: map[string]float64{"SendMessage": 3}, EmptyReceives: 4, LogBytes: 5,
			Functions: []awscost.Function{{Name: "f", Role: awscost.RoleDoor, MemoryMB: 256, Invocations: 6, BilledMS: 7}},
		},
	}
	later := began.Add(time.Minute)
	to := Tally{
		at: later, work: valkey.Work{Commands: 150, Bytes: 4096 + 2048},
		series: map[series]time.Time{{metric: telemetry.Acked}: began, {metric: telemetry.Sent}: later, {metric: telemetry.QueueDepth}: later},
		counts: awscost.Counts{
			Calls: 11, APIRequests: 22, SQS: map[string]float64{"SendMessage": 33, "DeleteMessage": 1}, EmptyReceives: 44, LogBytes: 55,
			Functions: []awscost.Function{{Name: "f", Role: awscost.RoleDoor, MemoryMB: 256, Invocations: 66, BilledMS: 77}},
		},
	}
	want := awscost.Counts{
		Seconds: 60, Calls: 10, APIRequests: 20, SQS: map[string]float64{"SendMessage": 30, "DeleteMessage": 1}, EmptyReceives: 40, LogBytes: 50,
		Functions:    []awscost.Function{{Name: "f", Role: awscost.RoleDoor, MemoryMB: 256, Invocations: 60, BilledMS: 70}},
		ECPU:         50 + 2,
		MetricSeries: 1, // Sent: the one had no value since, and the other is AWS's own
	}
	if diff := cmp.Diff(want, to.Since(from)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := to.counts.SQS["SendMessage"]; got != 33 {
		t.Errorf("the tally itself has changed: %g", got)
	}
	to.work = valkey.Work{Commands: 7, Bytes: 1024} // restarted
	if got := to.Since(from).ECPU; got != 8 {
		t.Errorf("after a restart %g ECPU, want 8", got)
	}
}
