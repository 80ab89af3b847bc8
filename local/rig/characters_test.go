package rig_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/llm-queue/llmq/local/rig"
)

// H06: characters that SQS refuses in a message reach the provider all the same, as the
// same code points; a label with one of them is refused at the door, and not by SQS.
func TestDoor_CharactersThatSQSRefuses(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	const content = "a\ufffeb\uffffc\u0001"
	resp, reply := send(t, r, call{body: "{\"model\":\"chat-a\",\"messages\":[{\"role\":\"user\",\"content\":\"a\xef\xbf\xbeb\xef\xbf\xbfc\\u0001\"}]}"})
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, reply)
	}
	calls := r.Fake.Calls()
	if len(calls) != 1 {
		t.Fatalf("%d provider calls, want 1", len(calls))
	}
	var got struct {
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(calls[0].Body, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Messages) != 1 || got.Messages[0].Content != content {
		t.Errorf("the provider got %q, want %q", got.Messages, content)
	}
	const label = "u\u00fcser \ufffe"
	resp, reply = send(t, r, call{body: fine, header: map[string]string{"X-LLMQ-User": label}})
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusBadRequest {
		t.Errorf("label %q: %d %s, want it hashed or refused with 400", label, resp.StatusCode, reply)
	}
}
