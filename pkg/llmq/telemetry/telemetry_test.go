package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func rt(reason string) telemetry.Labels {
	return telemetry.Labels{Model: "chat-a", Lane: "rt", Reason: reason}
}

// E7: what CloudWatch reads, to the byte. In the bubble the time is that of 2000-01-01.
func TestFlushEMF_GoldenLines(t *testing.T) {
	t.Parallel()
	const golden = "testdata/flush.emf.jsonl"
	var got bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		r := telemetry.NewRecorder()
		r.Count(telemetry.Received, rt(""), 9)
		r.Count(telemetry.Received, rt(""), 1)
		r.Count(telemetry.Acked, rt(""), 7)
		r.Count(telemetry.Expired, rt(""), 1)
		r.Count(telemetry.Released, rt("store_unavailable"), 2)
		r.Count(telemetry.Released, rt("what nobody foresaw"), 1)
		r.Count(telemetry.Received, telemetry.Labels{Model: "a \"b\" <é>", Lane: "bulk"}, 1)
		r.Count(telemetry.StoreErrors, telemetry.Labels{Function: "llmq-worker-rt", Cause: "timeout"}, 3)
		r.Observe(telemetry.QueueWait, rt(""), 0.125)
		r.Observe(telemetry.QueueWait, rt(""), 30)
		r.Set(telemetry.QueueOldest, telemetry.Labels{Queue: "llm-chat-a-rt"}, 30.5)
		r.Set(telemetry.RateRemaining, telemetry.Labels{Model: "chat-a", Target: "main", Kind: telemetry.KindTokens}, 12000)
		r.Set(telemetry.StoreDown, telemetry.Labels{Function: "llmq-worker-rt"}, 1)
		r.Set(telemetry.StoreDown, telemetry.Labels{Function: "llmq-worker-rt"}, 0)
		if err := r.FlushEMF(&got, "llmq/prod"); err != nil {
			t.Fatal(err)
		}
	})
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// The rules of the format's specification: a time in ms; at most 100 metrics in a directive and 30
// labels in a set; every metric is a number and every label a text of 1 to 1,024 characters in the same
// document; a namespace; a unit that CloudWatch has.
func TestFlushEMF_IsWhatTheSpecificationAsksFor(t *testing.T) {
	t.Parallel()
	r := telemetry.NewRecorder()
	everything(r)
	var out bytes.Buffer
	if err := r.FlushEMF(&out, "llmq/prod"); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(out.Bytes()) {
		var doc map[string]any
		if err := json.Unmarshal(line, &doc); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var meta struct {
			Timestamp         float64
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
				Metrics    []struct{ Name, Unit string }
			}
		}
		raw, err := json.Marshal(doc["_aws"])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &meta); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if meta.Timestamp < 1e12 || len(meta.CloudWatchMetrics) != 1 {
			t.Fatalf("meta %s", raw)
		}
		d := meta.CloudWatchMetrics[0]
		if d.Namespace != "llmq/prod" || len(d.Dimensions) != 1 || len(d.Dimensions[0]) == 0 || len(d.Dimensions[0]) > 30 || len(d.Metrics) == 0 || len(d.Metrics) > 100 {
			t.Errorf("directive %+v", d)
		}
		for _, name := range d.Dimensions[0] {
			if v, ok := doc[name].(string); !ok || v == "" || len(v) > 1024 {
				t.Errorf("label %s = %v in %s", name, doc[name], line)
			}
		}
		for _, m := range d.Metrics {
			if !numbers(doc[m.Name]) || !slices.Contains([]string{"Count", "Seconds", "None"}, m.Unit) {
				t.Errorf("metric %+v = %v in %s", m, doc[m.Name], line)
			}
		}
		if want := 1 + len(d.Dimensions[0]) + len(d.Metrics); len(doc) != want {
			t.Errorf("%d members, want %d: %s", len(doc), want, line)
		}
	}
}

// numbers reports whether v is one, or a list of 1 to 100.
func numbers(v any) bool {
	each, ok := v.([]any)
	if !ok {
		each = []any{v}
	}
	for _, x := range each {
		if _, ok := x.(float64); !ok {
			return false
		}
	}
	return len(each) > 0 && len(each) <= 100
}

// everything records what can be told of a model's lane, and more reasons than there are.
func everything(r *telemetry.Recorder) {
	for _, m := range []telemetry.Metric{telemetry.Received, telemetry.Sent, telemetry.Acked, telemetry.Expired} {
		r.Count(m, rt(""), 1)
	}
	r.Observe(telemetry.QueueWait, rt(""), 0.25)
	r.Set(telemetry.QueueOldest, telemetry.Labels{Queue: "llm-chat-a-rt"}, 1)
	for _, kind := range []string{"waiting", "delayed", "received"} {
		r.Set(telemetry.QueueDepth, telemetry.Labels{Queue: "llm-chat-a-rt", Kind: kind}, 1)
	}
	for _, reason := range []string{
		"running_elsewhere", "deferred", "no_capacity", "store_unavailable", "model_not_configured", "out_of_time", "interrupted", "retry_later", "deadline_ahead",
	} {
		r.Count(telemetry.Released, rt(reason), 1)
	}
	for i := range 100 {
		r.Count(telemetry.Released, rt(fmt.Sprintf("reason %d", i)), 1)
	}
}

// E7: a model's lane has at most 12 series on AWS, and all there may be of it are recorded here.
func TestRecorder_AModelsLaneHasAtMostTwelveSeries(t *testing.T) {
	t.Parallel()
	r := telemetry.NewRecorder(telemetry.Native()...)
	everything(r)
	var out bytes.Buffer
	if err := r.FlushEMF(&out, "llmq/prod"); err != nil {
		t.Fatal(err)
	}
	series := 0
	for line := range bytes.Lines(out.Bytes()) {
		var doc map[string]any
		if err := json.Unmarshal(line, &doc); err != nil {
			t.Fatal(err)
		}
		for name := range doc {
			if len(name) > 5 && name[:5] == "llmq_" {
				series++
			}
		}
	}
	listed := 0
	for _, in := range telemetry.Metrics() {
		if slices.Contains(in.Labels, "lane") || slices.Contains(in.Labels, "queue") {
			listed += in.Series(telemetry.Deployed{Models: 1, Lanes: 1, Targets: 1})
		}
	}
	if series != telemetry.MostPerLane || listed != series {
		t.Errorf("%d series, %d by the list, want %d", series, listed, telemetry.MostPerLane)
	}
}

// A document holds 100 values of a metric at most; the rest goes into further ones, and none is lost.
func TestFlushEMF_ManyValuesTakeSeveralLines(t *testing.T) {
	t.Parallel()
	r, back := telemetry.NewRecorder(), telemetry.NewLasting()
	for range 250 {
		r.Observe(telemetry.QueueWait, rt(""), 0.5)
	}
	r.Count(telemetry.Acked, rt(""), 250)
	var out bytes.Buffer
	if err := r.FlushEMF(&out, "n"); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range bytes.Lines(out.Bytes()) {
		if lines++; !back.ReadEMF(line) {
			t.Errorf("not read: %s", line)
		}
	}
	got := map[telemetry.Metric]telemetry.Sample{}
	for _, s := range back.Samples(t.Context()) {
		got[s.Metric] = s
	}
	if w := got[telemetry.QueueWait].Buckets; lines != 3 || w == nil || w.Count != 250 || w.Sum != 125 || w.UpTo[0.5] != 250 || w.UpTo[0.25] != 0 || got[telemetry.Acked].Value != 250 {
		t.Errorf("%d lines, %+v, %+v", lines, w, got[telemetry.Acked])
	}
}

// What a function writes is what a lasting recorder reads; any other line it leaves alone.
func TestReadEMF_ReadsWhatIsWritten(t *testing.T) {
	t.Parallel()
	r, back := telemetry.NewRecorder(), telemetry.NewLasting()
	everything(r)
	r.Set(telemetry.StoreDown, telemetry.Labels{Function: "f"}, 1)
	r.Count(telemetry.Fallback, telemetry.Labels{Model: "a", Step: "b@main"}, 2)
	var out bytes.Buffer
	if err := r.FlushEMF(&out, "n"); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{
		"", "{", `{"msg":"call_done"}`, `{"_aws":1}`, `{"_aws":{"CloudWatchMetrics":[{"Dimensions":[["nobody"]],"Metrics":[]}]},"nobody":"x"}`,
		`{"_aws":{"CloudWatchMetrics":[{"Dimensions":[["lane"]],"Metrics":[{"Name":"made_up"}]}]},"lane":"rt","made_up":1}`,
		`{"_aws":{"CloudWatchMetrics":[{"Dimensions":[["lane"]],"Metrics":[{"Name":"llmq_sqs_acked_total"}]}]},"lane":"rt","llmq_sqs_acked_total":"many"}`,
	} {
		if back.ReadEMF([]byte(other)) {
			t.Errorf("read: %s", other)
		}
	}
	n := 0
	for line := range bytes.Lines(out.Bytes()) {
		for range 2 {
			if !back.ReadEMF(line) {
				t.Errorf("not read: %s", line)
			}
		}
	}
	for _, s := range back.Samples(t.Context()) {
		n++
		switch want := map[telemetry.Metric]float64{telemetry.Received: 2, telemetry.StoreDown: 1, telemetry.Fallback: 4}[s.Metric]; {
		case want != 0 && s.Value != want:
			t.Errorf("%+v, want %v", s, want)
		case s.Metric == telemetry.QueueWait && s.Buckets.Count != 2:
			t.Errorf("%+v", s.Buckets)
		}
	}
	if n != telemetry.MostPerLane+3+2 {
		t.Errorf("%d series", n)
	}
	out.Reset()
	if err := back.FlushEMF(&out, "n"); err != nil || out.Len() > 0 {
		t.Errorf("a lasting recorder has flushed %q, %v", &out, err)
	}
}

// Every metric has one entry, with its own name's unit; a counter's name ends in _total.
func TestMetrics_TheListIsWhole(t *testing.T) {
	t.Parallel()
	seen := map[telemetry.Metric]bool{}
	for _, in := range telemetry.Metrics() {
		isTotal := strings.HasSuffix(string(in.Name), "_total")
		if seen[in.Name] || in.Help == "" || in.From == "" || len(in.Labels) == 0 || isTotal != (in.Kind == telemetry.Counter) || in.Kind.String() == "" {
			t.Errorf("%+v", in)
		}
		seen[in.Name] = true
	}
	for _, seed := range []telemetry.Metric{
		"llmq_inflight", "llmq_breaker_open", "llmq_rate_used", "llmq_rate_remaining", "llmq_sqs_received_total", "llmq_sqs_sent_total", "llmq_sqs_acked_total",
		"llmq_sqs_released_total", "llmq_sqs_expired_total", "llmq_sqs_errors_total", "llmq_sqs_wait_seconds", "llmq_fallback_total", "llmq_queue_depth", "llmq_queue_oldest_seconds",
	} {
		if !seen[seed] {
			t.Errorf("no %s", seed)
		}
	}
}

func TestFlushEMF_TellsEachThingOnce(t *testing.T) {
	t.Parallel()
	r := telemetry.NewRecorder()
	var out bytes.Buffer
	for range 2 {
		if err := r.FlushEMF(&out, "n"); err != nil || out.Len() != 0 {
			t.Fatalf("nothing counted, written %q, %v", &out, err)
		}
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { r.Count(telemetry.Acked, rt(""), 1) })
	}
	all.Wait()
	if err := r.FlushEMF(&out, "n"); err != nil || !bytes.Contains(out.Bytes(), []byte(`"llmq_sqs_acked_total":50`)) {
		t.Errorf("written %q, %v", &out, err)
	}
	out.Reset()
	if err := r.FlushEMF(&out, "n"); err != nil || out.Len() != 0 {
		t.Errorf("again %q, %v", &out, err)
	}
}

type broken struct{}

var errBroken = errors.New("broken pipe")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestFlushEMF_SaysWhatCouldNotBeWritten(t *testing.T) {
	t.Parallel()
	r := telemetry.NewRecorder()
	r.Count(telemetry.Acked, rt(""), 1)
	if err := r.FlushEMF(broken{}, "n"); !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
}

func TestRecorder_NilRecordsNothing(t *testing.T) {
	t.Parallel()
	var r *telemetry.Recorder
	r.Count(telemetry.Acked, rt(""), 1)
	r.Set(telemetry.StoreDown, rt(""), 1)
	if err := r.FlushEMF(broken{}, "n"); err != nil {
		t.Errorf("error %v", err)
	}
}
