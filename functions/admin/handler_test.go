package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/llm-queue/llmq/pkg/llmq/admin"
)

type fakeVerbs struct{}

func (fakeVerbs) Status(context.Context) admin.Status {
	return admin.Status{Queues: []admin.QueueStatus{{Queue: "llm-chat-a", Model: "chat-a", Lane: "bg", Waiting: 3}}, Targets: []admin.TargetStatus{}}
}

func event(method, path string, headers map[string]string, userARN string) events.APIGatewayProxyRequest {
	ev := events.APIGatewayProxyRequest{HTTPMethod: method, Path: path, Headers: headers}
	ev.RequestContext.Identity.UserArn = userARN
	return ev
}

// KT7: operators only; a caller's way in is none of theirs.
func TestAdmin_WhoGetsIn(t *testing.T) {
	t.Parallel()
	local, aws := gate{key: "k-local"}, gate{iam: true}
	bearer := func(k string) map[string]string { return map[string]string{"authorization": "Bearer " + k} }
	for _, tt := range []struct {
		name   string
		g      gate
		ev     events.APIGatewayProxyRequest
		status int
		code   string
	}{
		{"local key", local, event("GET", "/status", bearer("k-local"), ""), 200, ""},
		{"local, no key", local, event("GET", "/status", nil, ""), 401, "invalid_api_key"},
		{"local, wrong key", local, event("GET", "/status", bearer("k-other"), ""), 401, "invalid_api_key"},
		{"local, empty key configured", gate{}, event("GET", "/status", bearer(""), ""), 401, "invalid_api_key"},
		{"aws, signed", aws, event("GET", "/status", nil, "arn:aws:sts::111122223333:assumed-role/ops/s"), 200, ""},
		{"aws, bearer key", aws, event("GET", "/status", bearer("k-local"), ""), 401, "invalid_api_key"},
		{"health is open", aws, event("GET", "/health", nil, ""), 200, ""},
		{"unknown path", local, event("GET", "/keys", bearer("k-local"), ""), 404, "unknown_route"},
		{"wrong method", local, event("POST", "/status", bearer("k-local"), ""), 405, "method_not_allowed"},
		{"zero event", local, events.APIGatewayProxyRequest{}, 401, "invalid_api_key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			resp, err := newHandler(fakeVerbs{}, tt.g)(t.Context(), tt.ev)
			if err != nil {
				t.Fatal(err)
			}
			var body struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal([]byte(resp.Body), &body); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || body.Error.Code != tt.code {
				t.Errorf("answer = %d %q, want %d %q", resp.StatusCode, body.Error.Code, tt.status, tt.code)
			}
			if strings.Contains(resp.Body, "k-other") {
				t.Error("a presented key came back")
			}
		})
	}
}

func TestAdmin_StatusIsJSON(t *testing.T) {
	t.Parallel()
	resp, err := newHandler(fakeVerbs{}, gate{iam: true})(t.Context(), event("GET", "/status", nil, "arn"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"queues":[{"queue":"llm-chat-a","model":"chat-a","lane":"bg","waiting":3,"received":0,"delayed":0,"dead_letters":0}],"targets":[]}`
	if resp.Body != want {
		t.Errorf("body = %s\nwant   %s", resp.Body, want)
	}
}
