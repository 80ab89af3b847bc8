package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/local/beacon"
)

// lit is a runtime folder in which a local cloud is told of, whose admin API is at a URL.
func lit(t *testing.T, dir string, admin string) {
	t.Helper()
	out, err := beacon.Light(dir, beacon.Cloud{URL: "http://127.0.0.1:" + port(t, admin), Key: "door", AdminURL: admin, AdminKey: testKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := out(); err != nil {
			t.Error(err)
		}
	})
}

func port(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}

// Where the admin API is: by flag, environment, variable, or as the local cloud that runs.
func TestTarget_IsFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		env  func(admin string) []string
		args func(admin string) []string
	}{
		{"by itself", func(string) []string { return nil }, func(string) []string { return nil }},
		{"--env local, whatever is set", func(string) []string { return []string{"LLMQ_ADMIN_URL=http://127.0.0.1:1"} }, func(string) []string { return []string{"--env", "local"} }},
		{"by a flag, with its own key", func(string) []string { return []string{"LLMQ_ADMIN_URL=http://127.0.0.1:1"} }, func(admin string) []string { return []string{"--admin-url", admin + "/"} }},
		{"by a variable, with its own key", func(admin string) []string { return []string{"LLMQ_ADMIN_URL=" + admin} }, func(string) []string { return nil }},
		{"by its port", func(admin string) []string {
			return []string{"LLMQ_LOCAL_PORT=" + admin[strings.LastIndexByte(admin, ':')+1:]}
		}, func(string) []string { return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, admin := t.TempDir(), replay(t, "keys")
			lit(t, dir, admin)
			got := invoke(t, at{env: append(tt.env(admin), "XDG_RUNTIME_DIR="+dir)}, append([]string{"keys"}, tt.args(admin)...)...)
			if got.code != 0 || !strings.Contains(got.out, "ppwtn5v2ym") {
				t.Errorf("code %d: %s%s", got.code, got.out, got.err)
			}
		})
	}
}

// What can't be found or reached says what to do next.
func TestTarget_ErrorsTellTheNextStep(t *testing.T) {
	t.Parallel()
	two := t.TempDir()
	lit(t, two, "http://127.0.0.1:2")
	lit(t, two, "http://127.0.0.1:3")
	for _, tt := range []struct {
		name string
		env  []string
		args string
		code int
		want string
	}{
		{"nothing runs", nil, "status", exitUnreachable, "start one with make run, or set LLMQ_ADMIN_URL"},
		{"another port", []string{"XDG_RUNTIME_DIR=" + two, "LLMQ_LOCAL_PORT=9"}, "status", exitUnreachable, "LLMQ_LOCAL_PORT is 9, and the local clouds that run here have 2, 3"},
		{"two run", []string{"XDG_RUNTIME_DIR=" + two}, "status", exitUnreachable, "set LLMQ_LOCAL_PORT to one of 2, 3"},
		{"refused connection", []string{"LLMQ_ADMIN_URL=http://127.0.0.1:1", "LLMQ_ADMIN_KEY=k"}, "status", exitUnreachable, "start the local cloud with make run"},
		{"no key", []string{"LLMQ_ADMIN_URL=http://127.0.0.1:1"}, "status", exitUnreachable, "set LLMQ_ADMIN_KEY"},
		{"a key in plain text", []string{"LLMQ_ADMIN_URL=http://192.0.2.1", "LLMQ_ADMIN_KEY=k"}, "status", exitFailed, "not sent in plain text"},
		{"no URL", []string{"LLMQ_ADMIN_URL=localhost", "LLMQ_ADMIN_KEY=k"}, "status", exitUsage, "it looks like https://host/path"},
		{"credentials in the URL", []string{"LLMQ_ADMIN_URL=https://u:p@host", "LLMQ_ADMIN_KEY=k"}, "status", exitUsage, "no part of it"},
		{"two places", nil, "status --env prod --admin-url https://x", exitUsage, "give only one of --admin-url, --env"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := invoke(t, at{env: tt.env}, strings.Fields(tt.args)...)
			if got.code != tt.code || got.out != "" || !strings.Contains(got.err, tt.want) {
				t.Errorf("code %d, want %d; %q%q", got.code, tt.code, got.out, got.err)
			}
		})
	}
}

// On AWS the stack's output says where the admin API is.
func TestTarget_OnAWS(t *testing.T) {
	// not parallel: the SDK reads the process's environment
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "session")
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	signed := func(req *http.Request, service string) bool {
		return strings.HasPrefix(req.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=AKIDTEST/") &&
			strings.Contains(req.Header.Get("Authorization"), "/eu-central-1/"+service+"/aws4_request") && req.Header.Get("X-Amz-Security-Token") == "session"
	}
	stacks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !signed(req, "cloudformation") || req.URL.Query().Get("Action") != "DescribeStacks" {
			t.Errorf("asked %s with %v", req.URL, req.Header)
		}
		if req.URL.Query().Get("StackName") != "llmq-prod" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `<ErrorResponse><Error><Code>ValidationError</Code></Error></ErrorResponse>`)
			return
		}
		fmt.Fprint(w, `<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><DescribeStacksResult><Stacks><member><Outputs>`+
			`<member><OutputKey>DoorAPIOpenAIBaseURL22244682</OutputKey><OutputValue>https://door.invalid/prod/v1</OutputValue></member>`+
			`<member><OutputKey>AdminAPIAdminURLE4B46113</OutputKey><OutputValue>https://127.0.0.1:1/prod/</OutputValue></member></Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`)
	}))
	defer stacks.Close()
	env := []string{"AWS_ENDPOINT_URL_CLOUDFORMATION=" + stacks.URL}
	got := invoke(t, at{env: env}, "status", "--env", "prod")
	if got.code != exitUnreachable || !strings.Contains(got.err, "127.0.0.1:1 can't be reached") { // nobody is there, but it was found
		t.Errorf("code %d: %s%s", got.code, got.out, got.err)
	}
	got = invoke(t, at{env: env}, "status", "--env", "staging")
	if got.code != exitUnreachable || !strings.Contains(got.err, "no stack llmq-staging") {
		t.Errorf("code %d: %s%s", got.code, got.out, got.err)
	}
}
