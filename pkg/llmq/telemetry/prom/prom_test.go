package prom_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry/prom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// E7: the page has every metric by its name, kind and labels; a label that is not given is empty.
func TestHandler_ShowsEveryMetric(t *testing.T) {
	t.Parallel()
	r := telemetry.NewLasting()
	for _, in := range telemetry.Metrics() {
		l := telemetry.Labels{Function: "f", Model: "m", Target: "t", Lane: "rt", Queue: "q", Kind: "k", Step: "s@t", Reason: "deferred", Cause: "c", Code: "e"}
		switch in.Kind {
		case telemetry.Counter:
			r.Count(in.Name, l, 3)
		case telemetry.Gauge:
			r.Set(in.Name, l, 3)
		case telemetry.Histogram:
			r.Observe(in.Name, l, 3)
		}
	}
	r.Count(telemetry.Received, telemetry.Labels{Model: "unknown"}, 1)
	w := httptest.NewRecorder()
	prom.Handler(r).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	page := w.Body.String()
	for _, in := range telemetry.Metrics() {
		if !strings.Contains(page, "# TYPE "+string(in.Name)+" "+in.Kind.String()+"\n") {
			t.Errorf("no %s of the kind %s", in.Name, in.Kind)
		}
	}
	for _, want := range []string{
		`llmq_sqs_released_total{lane="rt",model="m",reason="deferred"} 3`, `llmq_sqs_received_total{lane="",model="unknown"} 1`, `llmq_fallback_total{model="m",step="s@t"} 3`,
		`llmq_queue_depth{kind="k",queue="q"} 3`, `llmq_sqs_wait_seconds_bucket{lane="rt",model="m",le="2.5"} 0`, `llmq_sqs_wait_seconds_bucket{lane="rt",model="m",le="5"} 1`,
		`llmq_sqs_wait_seconds_sum{lane="rt",model="m"} 3`, `llmq_sqs_wait_seconds_count{lane="rt",model="m"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() || w.Code != http.StatusOK {
		t.Errorf("%d\n%s", w.Code, page)
	}
}
