package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

func sha(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func TestCalls_TellWhatHappened(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.CaptureBytes = 9 })
	body := chatBody("m")
	r := request(t.Context(), http.MethodPost, "/v1/chat/completions", body)
	r.Header.Set("Api-Key", "secret")
	r.Header.Set("X-Trace", "shown")
	do(s, r)
	post(t, s, "/v1/chat/completions", "{")
	bad := request(t.Context(), http.MethodPost, conversePath("m"), converseBody)
	bad.Header.Set("Authorization", "Bearer wrong")
	do(s, bad)
	hidden := []string{"(redacted)"}
	want := []server.Call{
		{
			Seq: 1, Wire: "openai", Operation: "chat", Path: "/v1/chat/completions", Model: "m", KeyHash: server.KeyHash(apiKey),
			Status: 200, Outcome: server.Replied, InputTokens: 1, OutputTokens: 2, RequestBytes: len(body), RequestSHA256: sha(body), Body: []byte(`{"model":`),
			Header: http.Header{"Authorization": hidden, "Api-Key": hidden, "X-Trace": {"shown"}},
		},
		{
			Seq: 2, Wire: "openai", Path: "/v1/chat/completions", KeyHash: server.KeyHash(apiKey),
			Status: 400, Outcome: server.Refused, RequestBytes: 1, RequestSHA256: sha("{"), Body: []byte("{"),
			Header: http.Header{"Authorization": hidden},
		},
		{
			Seq: 3, Wire: "bedrock", Path: "/model/m/converse", Status: 403, Outcome: server.Refused,
			Header: http.Header{"Authorization": hidden},
		},
	}
	got := s.Calls()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(server.Call{}, "At", "Duration", "FirstByte")); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	for _, c := range got {
		if time.Since(c.At) > time.Minute || c.Duration < 0 || c.Duration > time.Minute {
			t.Errorf("call %d at %v took %v", c.Seq, c.At, c.Duration)
		}
	}
}

func TestCalls_KeepsTheLatest(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.LogCalls = 3 })
	for i := range 10 {
		chat(t, s, fmt.Sprint(i))
	}
	var models []string
	for _, c := range s.Calls() {
		models = append(models, c.Model)
	}
	if diff := cmp.Diff([]string{"7", "8", "9"}, models); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
}
