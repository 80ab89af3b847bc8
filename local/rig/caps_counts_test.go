package rig_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

// answered holds that each request of a storm was answered by the provider, and that none
// was given up. It returns those that the provider saw more than once.
func (s *storm) answered(t *testing.T, ids []string) (again []string) {
	t.Helper()
	seen := s.ByRequest()
	lost := 0
	for _, id := range ids {
		calls := seen[id]
		if !slices.ContainsFunc(calls, func(c server.Call) bool { return c.Outcome == server.Replied && c.Status == 200 }) {
			lost++
		}
		if len(calls) > 1 {
			again = append(again, id)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d requests were never answered", lost, len(ids))
	}
	if n := len(seen); n != len(ids) {
		t.Errorf("the provider saw %d different requests, want %d", n, len(ids))
	}
	if _, dead := s.depth(t); dead > 0 {
		t.Errorf("%d dead letters", dead)
	}
	return again
}

// onceEach holds that no request was paid for twice.
func (s *storm) onceEach(t *testing.T, ids []string) {
	t.Helper()
	if again := s.answered(t, ids); len(again) > 0 {
		t.Errorf("%d requests were paid for twice: %.5q", len(again), again)
	}
	g := s.Fake.Stats().All
	if g.Calls != len(ids) || g.Good != len(ids) || g.Repeats != 0 {
		t.Errorf("the provider counts %d calls, %d good, %d repeats; want %d, %d, 0", g.Calls, g.Good, g.Repeats, len(ids), len(ids))
	}
	if n := len(s.metas(t, ids)); n != len(ids) {
		t.Errorf("%d results are stored, want %d", n, len(ids))
	}
}

// history tells what the provider saw of a few requests, counted from a time.
func (s *storm) history(ids []string, since time.Time) string {
	seen := s.ByRequest()
	var b strings.Builder
	for _, id := range ids[:min(5, len(ids))] {
		fmt.Fprintf(&b, "\n%s:", id)
		for _, c := range seen[id] {
			fmt.Fprintf(&b, " at %.2f s for %.2f s: %s %d;", c.At.Sub(since).Seconds(), c.Duration.Seconds(), c.Outcome, c.Status)
		}
	}
	return b.String()
}

// notPaidAgain holds that no call began for a request whose result was seen stored before.
func (s *storm) notPaidAgain(t *testing.T) {
	t.Helper()
	for id, calls := range s.ByRequest() {
		at := s.StoredAt(id)
		if last := calls[len(calls)-1]; !at.IsZero() && last.At.After(at) {
			t.Errorf("%s was paid for %s after its result was stored", id, last.At.Sub(at))
		}
	}
}

// alive holds that enough worker processes took part.
func (s *storm) alive(t *testing.T) {
	t.Helper()
	if _, together := s.Processes(); together < leastAlive {
		t.Errorf("at most %d worker processes were alive together, want %d", together, leastAlive)
	}
}

// counts is what a storm prints.
func (s *storm) counts() string {
	seen, together := s.Processes()
	return fmt.Sprintf("peak %d, %d calls, %d worker processes (%d together)", s.Fake.Peak(""), s.Fake.Stats().All.Calls, seen, together)
}

// rate is how many calls a second the provider answered between two times.
func (s *storm) rate(from, to time.Time) float64 {
	good := 0
	for _, second := range s.Fake.Timeline("") {
		if !second.At.Before(from.Truncate(time.Second)) && second.At.Before(to) {
			good += second.Good
		}
	}
	return float64(good) / to.Sub(from).Seconds()
}

// tally counts the functions' log lines by message, warnings and errors only: a storm says
// too much to be read.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (l *tally) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		var entry struct{ Level, Msg, Doing, Reason string }
		_, text, _ := strings.Cut(line, "{") // before it is whose line it is
		if json.Unmarshal([]byte("{"+text), &entry) == nil && entry.Level != "INFO" && entry.Level != "" {
			l.seen[strings.TrimSpace(entry.Msg+" "+entry.Doing+" "+entry.Reason)]++
		}
	}
	return len(p), nil
}

// count is how often messages that begin so were logged.
func (l *tally) count(message string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for said, times := range l.seen {
		if strings.HasPrefix(said, message) {
			n += times
		}
	}
	return n
}

// String lists the messages, each with its count.
func (l *tally) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, msg := range slices.Sorted(maps.Keys(l.seen)) {
		fmt.Fprintf(&b, "%d x %s; ", l.seen[msg], msg)
	}
	return b.String()
}
