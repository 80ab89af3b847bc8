package rig

import (
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

func TestAsked_FindsTheTextOnEachWire(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, body, want string }{
		{"chat", string(ChatBody(ModelChat, "call-1")), "call-1"},
		{"chat with more to read", string(ChatBody(ModelChat, "call-1 and more")), "call-1"},
		{"converse", `{"messages":[{"role":"user","content":[{"text":"call-2"}]}]}`, "call-2"},
		{"embeddings", `{"model":"emb-a","input":"call-3"}`, "call-3"},
		{"embeddings of several texts", `{"input":["a","b"]}`, ""},
		{"cut short", `{"messages":[{"role":"us`, ""},
		{"no messages", `{"messages":[]}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Asked(server.Call{Body: []byte(tt.body)}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTogether_CountsWhatOverlaps(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	call := func(from, to time.Duration) server.Call {
		return server.Call{At: start.Add(from), Duration: to - from}
	}
	calls := []server.Call{call(0, 10), call(2, 5), call(5, 8), call(20, 30)} // the third begins as the second ends
	if got := Together(calls); got != 2 {
		t.Errorf("got %d, want 2", got)
	}
	if got := Together(nil); got != 0 {
		t.Errorf("of none: %d", got)
	}
}
