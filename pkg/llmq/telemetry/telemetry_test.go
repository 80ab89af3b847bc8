package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
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
			if _, ok := doc[m.Name].(float64); !ok || m.Unit != "Count" && m.Unit != "None" {
				t.Errorf("metric %+v = %v in %s", m, doc[m.Name], line)
			}
		}
		if want := 1 + len(d.Dimensions[0]) + len(d.Metrics); len(doc) != want {
			t.Errorf("%d members, want %d: %s", len(doc), want, line)
		}
	}
}

// everything records what a worker can, and more reasons than there are.
func everything(r *telemetry.Recorder) {
	for _, m := range []telemetry.Metric{telemetry.Received, telemetry.Acked, telemetry.Expired} {
		r.Count(m, rt(""), 1)
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

// E7: a model's lane has at most 12 series.
func TestRecorder_AModelsLaneHasAtMostTwelveSeries(t *testing.T) {
	t.Parallel()
	r := telemetry.NewRecorder()
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
	if series > 12 || series < 9 {
		t.Errorf("%d series, want at most 12, and the reasons apart", series)
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
