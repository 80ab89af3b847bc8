package rig_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
)

// What a caller wrote reaches the provider byte for byte but for the model's name, and what the provider answers reaches the
// caller byte for byte, through queue and worker.
func TestBodies_PassAsTheyCame(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	for _, tt := range []struct{ name, body, reply string }{
		{
			"H03 a: tags", `{"model":"chat-a","messages":[{"role":"user","content":"<rules>a && b</rules>"}]}`,
			`{"id":"x0","object":"chat.completion","created":1795953600,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"<b>a && b</b>"},"finish_reason":"stop"}]}`,
		},
		{
			"H04: an assistant's turn without content",
			`{"model":"chat-a","messages":[{"role":"user","content":"time?"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"now","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"12:00"}]}`,
			`{"id":"x1","object":"chat.completion","created":1795953600,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c2","type":"function","function":{"name":"zone","arguments":""}}]},"finish_reason":"tool_calls","logprobs":null}],"usage":{"prompt_tokens":11,"completion_tokens":4,"total_tokens":15}}`,
		},
	} {
		before := len(r.Fake.Calls())
		if err := r.Fake.Program(server.Match{Model: "fake-chat-1"}, server.Reply{Body: []byte(tt.reply)}); err != nil {
			t.Fatal(err)
		}
		resp, reply := send(t, r, call{body: tt.body})
		if resp.StatusCode != http.StatusOK || string(reply) != tt.reply {
			t.Errorf("%s: the caller got %d\n%s\nwant\n%s", tt.name, resp.StatusCode, reply, tt.reply)
		}
		calls := r.Fake.Calls()[before:]
		want := strings.Replace(tt.body, `"chat-a"`, `"fake-chat-1"`, 1)
		if len(calls) != 1 {
			t.Fatalf("%s: the provider got %d calls, want 1", tt.name, len(calls))
		}
		if got := string(calls[0].Body); got != want {
			t.Errorf("%s: the provider got\n%s\nwant\n%s", tt.name, got, want)
		}
	}
}

// What can never be served is refused at the door: it reaches neither a queue nor a provider.
func TestBodies_ThatCanNeverBeServedAreNotQueued(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	const turns = `"messages":[{"role":"user","content":"time?"},{"role":"assistant","content":null}]`
	for _, tt := range []struct{ name, path, body, code, says string }{
		{"H03 b: half of an emoji", "", `{"model":"chat-a","messages":[{"role":"user","content":"half \ud83d moon"}]}`, "invalid_json", "messages.0.content"},
		{"H04: a model that speaks Converse alone", "", `{"model":"conv-a",` + turns + `}`, "wrong_wire", "/model/conv-a/converse"},
		{"H25 d: embeddings of a model on Bedrock", "/v1/embeddings", `{"model":"conv-a","input":[1820,1053,382]}`, "wrong_wire", "/model/conv-a/"},
	} {
		resp, reply := send(t, r, call{path: tt.path, body: tt.body})
		if resp.StatusCode != http.StatusBadRequest || resp.Header.Get("X-Should-Retry") != "false" ||
			!bytes.Contains(reply, []byte(tt.code)) || !bytes.Contains(reply, []byte(tt.says)) {
			t.Errorf("%s: %d %v %s, want 400 %s, not to be tried again, that says %s", tt.name, resp.StatusCode, resp.Header, reply, tt.code, tt.says)
		}
	}
	if waiting, dead, err := r.Depth(t.Context()); err != nil || waiting+dead != 0 || len(r.Fake.Calls()) != 0 {
		t.Errorf("%d messages wait, %d are dead (%v), and the provider got %d calls", waiting, dead, err, len(r.Fake.Calls()))
	}
}
