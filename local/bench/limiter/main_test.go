package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func law(t testing.TB) program {
	t.Helper()
	p, err := compile(capacity.LawText())
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	return p
}

func find(t *testing.T, name string) *scenario {
	t.Helper()
	for _, sc := range scenarios() {
		if sc.name == name {
			return sc
		}
	}
	t.Fatalf("no scenario is named %q", name)
	return nil
}

// watched lets a test look at, or tamper with, a law between its decisions.
type watched struct {
	*learned
	before func(now int64) int64 // gives the time that the law is told
	after  func(now int64, granted bool)
}

func (w *watched) admit(now int64, c *call) (bool, int64) {
	if w.before != nil {
		now = w.before(now)
	}
	ok, wait := w.learned.admit(now, c)
	if w.after != nil {
		w.after(now, ok)
	}
	return ok, wait
}

func (w *watched) settle(now, id int64, e capacity.Ending, tokens, retryAfter int64) {
	if w.before != nil {
		now = w.before(now)
	}
	w.learned.settle(now, id, e, tokens, retryAfter)
}

func (l *learned) told(t *testing.T, now int64) capacity.Learned {
	t.Helper()
	l.call(l.facts, 1, l.state, number(now))
	var facts []int64
	list := l.vm.ToTable(-1)
	for i := 1; i <= list.Len(); i++ {
		facts = append(facts, asInt(list.RawGetInt(i)))
	}
	l.vm.Pop(1)
	known, err := capacity.ReadLearned(facts)
	if err != nil {
		t.Fatalf("facts: %v", err)
	}
	return known
}
