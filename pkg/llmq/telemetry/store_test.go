package telemetry_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// watch runs a test of a watched store on virtual time. said lists what was logged since it was last
// asked, without the times.
func watch(t *testing.T, test func(t *testing.T, s *telemetry.Store, said func() []string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
		test(t, telemetry.NewStore("w", telemetry.NewRecorder(), slog.New(h)), func() []string {
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			log.Reset()
			return lines
		})
	})
}

// C9: a log line when it is lost and one when it is back, however many calls fail.
func TestStore_SaysOnceThatItIsLostAndOnceThatItIsBack(t *testing.T) {
	t.Parallel()
	watch(t, func(t *testing.T, s *telemetry.Store, said func() []string) {
		for range 40 {
			began := time.Now()
			time.Sleep(250 * time.Millisecond)
			s.Failed(began, "timeout")
		}
		if got := s.DownFor(); got != 10*time.Second {
			t.Errorf("down for %v, want 10s", got)
		}
		want := []string{`level=WARN msg=state_store_lost cause=timeout failing_ms=750`}
		if diff := cmp.Diff(want, said()); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
		s.Answered()
		s.Answered()
		want = []string{`level=INFO msg=state_store_back lost_ms=10000 failed_calls=40 causes=map[timeout:40]`}
		if diff := cmp.Diff(want, said()); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
		if got := s.DownFor(); got != 0 {
			t.Errorf("down for %v, want 0", got)
		}
	})
}

func TestStore_TwoFailuresAreNoLoss(t *testing.T) {
	t.Parallel()
	watch(t, func(t *testing.T, s *telemetry.Store, said func() []string) {
		for range 10 {
			s.Failed(time.Now(), "reset")
			s.Failed(time.Now(), "reset")
			time.Sleep(time.Second)
			if got := s.DownFor(); got != time.Second {
				t.Errorf("down for %v, want a second: releases grow from the first failure on", got)
			}
			s.Answered()
		}
		if diff := cmp.Diff([]string{""}, said()); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
	})
}

// Calls that hang while the store comes back fail only later.
func TestStore_StragglersAreNoNewLoss(t *testing.T) {
	t.Parallel()
	watch(t, func(t *testing.T, s *telemetry.Store, said func() []string) {
		began := time.Now()
		time.Sleep(time.Second)
		s.Answered()
		for range 10 {
			s.Failed(began, "timeout")
		}
		if got := s.DownFor(); got != 0 {
			t.Errorf("down for %v, want 0", got)
		}
		if diff := cmp.Diff([]string{""}, said()); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
	})
}

// The gauge is told with every flush of a spell, so that an alarm sees it whole.
func TestStore_GaugeFollows(t *testing.T) {
	t.Parallel()
	r := telemetry.NewRecorder()
	s := telemetry.NewStore("w", r, slog.New(slog.DiscardHandler))
	flush := func() string {
		var out bytes.Buffer
		if err := r.FlushEMF(&out, "n"); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for range 4 {
		s.Failed(time.Now(), "refused")
	}
	if got := flush(); !strings.Contains(got, `"llmq_store_down":1`) || !strings.Contains(got, `"llmq_store_errors_total":4`) {
		t.Errorf("lost: %s", got)
	}
	s.Failed(time.Now(), "refused")
	if got := flush(); !strings.Contains(got, `"llmq_store_down":1`) || !strings.Contains(got, `"llmq_store_errors_total":1`) {
		t.Errorf("still lost: %s", got)
	}
	s.Answered()
	if got := flush(); !strings.Contains(got, `"llmq_store_down":0`) || strings.Contains(got, "errors") {
		t.Errorf("back: %s", got)
	}
	s.Answered()
	if got := flush(); got != "" {
		t.Errorf("well: %s, want nothing", got)
	}
}

// C9: an outage, however short, is known of for a while after it.
func TestStore_BackWithinEndsByTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := telemetry.NewStore("w", nil, slog.New(slog.DiscardHandler))
		said := func() bool { return s.BackWithin(time.Minute) }
		s.Answered()
		if said() || (*telemetry.Store)(nil).BackWithin(time.Minute) {
			t.Error("back, though it was never away")
		}
		s.Failed(time.Now(), "timeout")
		if said() {
			t.Error("back, while it is away")
		}
		s.Answered()
		time.Sleep(59 * time.Second)
		s.Answered()
		if !said() {
			t.Error("not back within the minute")
		}
		time.Sleep(time.Second)
		if said() {
			t.Error("still back within the minute, after it")
		}
	})
}
