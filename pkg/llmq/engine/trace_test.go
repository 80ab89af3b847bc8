package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// logTo makes r's engine log to h.
func (r *rig) logTo(h slog.Handler, rtWait time.Duration) *engine.Engine {
	r.handler = h
	defer func() { r.handler = nil }()
	return r.newEngine("w1", rtWait)
}

// events are the log's lines as "event key=value …" of the wanted keys, and whether each has the request's id.
func events(t *testing.T, log string, keys ...string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(log) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["request_id"] != "req-1" {
			t.Errorf("no request id: %s", line)
		}
		text := fmt.Sprint(m["msg"])
		for _, k := range keys {
			if v, there := m[k]; there {
				text += fmt.Sprintf(" %s=%v", k, v)
			}
		}
		out = append(out, text)
	}
	return out
}

// E8: one call, step by step, by its id: an attempt that fails, a sleep, an attempt that succeeds.
func TestTrace_FollowsAttemptsOfOneCall(t *testing.T) {
	t.Parallel()
	tries := 0
	call := func(ctx context.Context, req provider.Request) (*provider.Response, error) {
		if tries++; tries == 1 {
			time.Sleep(40 * time.Millisecond)
			return nil, &provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 503, Kind: "sk-canary", Message: "sk-canary"}
		}
		return answers("{}", 300*time.Millisecond)(ctx, req)
	}
	bubble(t, call, func(t *testing.T, r *rig) {
		e := r.logTo(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}), 30*time.Second)
		c := engine.Call{Request: request(), MessageID: "m-1", Receives: 1, QueuedAt: time.Now().Add(-2 * time.Second)}
		wantVerdict(t, e.Run(t.Context(), c), engine.Stored, "ok")
		log := r.log.String()
		want := []string{
			"call_started queue_wait_ms=2000 message_id=m-1",
			"slot_acquired waited_ms=0 target=m@t",
			"attempt_done target=m@t attempts=1 outcome=retryable provider_ms=40",
			"backoff target=m@t",
			"slot_acquired waited_ms=0 target=m@t",
			"attempt_done target=m@t attempts=2 outcome=ok provider_ms=300",
			"call_done target=m@t attempts=2 outcome=ok",
		}
		if diff := cmp.Diff(want, events(t, log, "queue_wait_ms", "waited_ms", "message_id", "target", "attempts", "outcome", "provider_ms")); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
		if !strings.Contains(log, `"sleep_secs":`) || !strings.Contains(log, `"total_ms":`) || strings.Contains(log, "canary") || strings.Contains(log, "the prompt") {
			t.Errorf("log\n%s", log)
		}
	})
}

// E8: a live call that waits for a slot tells each wait; a queued one that gets none is told to go back.
func TestTrace_TellsOfWaitsForASlot(t *testing.T) {
	t.Parallel()
	for lane, want := range map[llmq.Lane][]string{
		llmq.LaneRT: {"call_done", "call_started", "rt_capacity_wait", "slot_unavailable missing=slots"},
		llmq.LaneBG: {"call_requeued", "call_started", "slot_unavailable missing=slots"},
	} {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				defer r.occupy()()
				e := r.logTo(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}), time.Second)
				req := request()
				req.Lane = lane
				e.Run(t.Context(), engine.Call{Request: req})
				got := slices.DeleteFunc(events(t, r.log.String(), "missing"), func(s string) bool { return s == "call_failed" })
				slices.Sort(got)
				if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
					t.Errorf("events (-want +got):\n%s\n%s", diff, r.log)
				}
			})
		})
	}
}

// levels counts what a logger is asked at INFO.
type levels struct {
	mu             sync.Mutex // guards all below
	debug, derived int
}

func (l *levels) Enabled(_ context.Context, at slog.Level) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at == slog.LevelDebug {
		l.debug++
	}
	return at >= slog.LevelInfo
}

func (l *levels) Handle(context.Context, slog.Record) error {
	return errors.New("nothing is to be logged")
}

func (l *levels) derive() slog.Handler {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.derived++
	return l
}

func (l *levels) WithAttrs([]slog.Attr) slog.Handler { return l.derive() }
func (l *levels) WithGroup(string) slog.Handler      { return l.derive() }

// E8: below DEBUG a call costs one look at the level, however many attempts it takes, and no derived logger.
func TestTrace_BelowDebugIsOneLevelCheckACall(t *testing.T) {
	t.Parallel()
	tries := 0
	call := func(ctx context.Context, req provider.Request) (*provider.Response, error) {
		if tries++; tries < 3 {
			return nil, &provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 503}
		}
		return answers("{}", 0)(ctx, req)
	}
	bubble(t, call, func(t *testing.T, r *rig) {
		var seen levels
		e := r.logTo(&seen, time.Second)
		wantVerdict(t, e.Run(t.Context(), engine.Call{Request: request()}), engine.Stored, "ok")
		if tries != 3 || seen.debug != 1 || seen.derived != 0 {
			t.Errorf("%d attempts, %d looks at the level, %d derived loggers; want 3, 1, 0", tries, seen.debug, seen.derived)
		}
	})
}

// E8: what the trace's steps allocate below DEBUG, exactly.
func TestTrace_BelowDebugAllocatesNothing(t *testing.T) { //nolint:paralleltest // others' allocations would count
	steps := engine.TraceSteps(slog.New(slog.DiscardHandler))
	if n := testing.AllocsPerRun(1000, steps); n != 0 {
		t.Errorf("%v allocations a call, want 0", n)
	}
}

// E7: a call that ends at another target than its first is counted by that one, and no other is.
func TestFallbackMetric_CountsWhereACallEnded(t *testing.T) {
	t.Parallel()
	call := func(ctx context.Context, req provider.Request) (*provider.Response, error) {
		if req.ModelID == "bad" {
			return nil, &provider.Error{Class: provider.TargetFatal, Code: llmq.CodeProviderError, Status: 404}
		}
		return answers("{}", 0)(ctx, req)
	}
	bubble(t, call, func(t *testing.T, r *rig) {
		bad, good := target(), target()
		bad.ModelID, good.Name = "bad", "second"
		r.metrics = telemetry.NewLasting()
		r.chainOf(fallback.Rules{}, bad, good)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: request()}), engine.Stored, "ok")
		r.chainOf(fallback.Rules{}, good, bad)
		again := request()
		again.ID = "req-2"
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: again}), engine.Stored, "ok")
		want := []telemetry.Sample{{Metric: telemetry.Fallback, Labels: telemetry.Labels{Model: "m", Step: "m@second"}, Value: 1}}
		if diff := cmp.Diff(want, r.metrics.Samples(t.Context())); diff != "" {
			t.Errorf("samples (-want +got):\n%s", diff)
		}
	})
}
