package front

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// What the local gateway answers is what the deployed one is set up to answer.
func TestDeployed_IsWhatTheTemplateSays(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"dev", "prod"} {
		text, err := os.ReadFile("../../../infra/cdk/stack/testdata/" + env + "/stack.json")
		if err != nil {
			t.Fatal(err)
		}
		var template struct {
			Resources map[string]struct {
				Type       string
				Properties json.RawMessage
			}
		}
		if err := json.Unmarshal(text, &template); err != nil {
			t.Fatal(err)
		}
		want := map[string]Response{}
		for _, r := range template.Resources {
			if r.Type != "AWS::ApiGateway::GatewayResponse" {
				continue
			}
			var p struct {
				ResponseType, StatusCode              string
				ResponseParameters, ResponseTemplates map[string]string
			}
			if err := json.Unmarshal(r.Properties, &p); err != nil {
				t.Fatal(err)
			}
			one := Response{Header: map[string]string{}, Body: sorted(t, p.ResponseTemplates["application/json"])}
			if p.StatusCode != "" {
				if _, err := fmt.Sscan(p.StatusCode, &one.Status); err != nil {
					t.Fatal(err)
				}
			}
			for name, value := range p.ResponseParameters {
				one.Header[strings.TrimPrefix(name, "gatewayresponse.header.")] = strings.Trim(value, "'")
			}
			want[p.ResponseType] = one
		}
		got := Deployed()
		for kind, r := range got {
			r.Body = sorted(t, r.Body)
			got[kind] = r
		}
		if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
			t.Errorf("%s (-template +local):\n%s", env, diff)
		}
	}
}

// sorted is JSON with its members in order.
func sorted(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return mustJSON(v)
}

// Which gateway response comes when, with those of the deployed door.
func TestFront_DeployedGatewayResponses(t *testing.T) {
	t.Parallel()
	fails := func(err error) fakeStreamer {
		return func(context.Context, []byte) (*lambda.Stream, error) { return nil, err }
	}
	for _, tt := range []struct {
		name      string
		functions fakeStreamer
		query     string
		status    int
		code      string
	}{
		{"function failed", fails(&lambda.FunctionError{Type: "E"}), "", 500, "internal_error"},
		{"function timed out", fails(&lambda.FunctionError{Type: "Sandbox.Timedout"}), "", 500, "internal_error"},
		{"no room for the function", fails(&lambda.Error{Code: lambda.CodeThrottled}), "", 500, "internal_error"},
		{"no such function", fails(&lambda.Error{Code: lambda.CodeNotFound}), "", 500, "internal_error"},
		{"no prelude", replies("hello"), "", 502, "internal_error"},
		{"event over 6 MB", fails(&lambda.Error{Code: lambda.CodeTooLarge}), "", 413, "request_too_large"},
		{"no reply in time", fails(context.DeadlineExceeded), "", 504, "timeout"},
		{"query that AWS can't read", replies(ok), "?a=1|2", 400, "invalid_request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, tt.functions, func(o *Options) { o.Responses = Deployed() })
			resp, text := do(t, srv, "POST", "/x"+tt.query, nil, nil)
			var body struct {
				Message string
				Error   struct{ Message, Type, Code string }
			}
			if err := json.Unmarshal([]byte(text), &body); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if resp.StatusCode != tt.status || body.Error.Code != tt.code || body.Message == "" || body.Message != body.Error.Message ||
				resp.Header.Get("X-LLMQ-Error-Code") != tt.code || resp.Header.Get("X-Should-Retry") != "false" || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("got %d %s %v", resp.StatusCode, text, resp.Header)
			}
			if strings.Contains(text, "Endpoint request timed out") {
				t.Error("AWS's own text came through")
			}
		})
	}
}

// The request line and the values of the header together have 10,240 bytes.
func TestFront_LargestHeaderPassesOneMoreByteDoesNot(t *testing.T) {
	t.Parallel()
	sizes := make(chan int, 2)
	f, srv := serveFront(t, replies(ok))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sizes <- headerSize(r)
		f.ServeHTTP(w, r)
	})
	srv.Config.Handler = h
	fill := 0
	for _, tt := range []struct{ size, status int }{{0, 200}, {maxHeader, 200}, {maxHeader + 1, 431}} {
		resp, text := do(t, srv, "POST", "/x", nil, func(r *http.Request) { r.Header.Set("X-Fill", strings.Repeat("a", fill)) })
		size := <-sizes
		if resp.StatusCode != tt.status || tt.size != 0 && size != tt.size {
			t.Errorf("header of %d bytes: got %d %s", size, resp.StatusCode, text)
		}
		if tt.size == 0 {
			fill = maxHeader - size
		} else {
			fill++
		}
	}
}

func TestFront_LimitsAreOptions(t *testing.T) {
	t.Parallel()
	srv := serve(t, replies(ok), func(o *Options) { o.MaxBody, o.MaxHeader = 10, 300 })
	for body, want := range map[string]int{strings.Repeat("a", 10): 200, strings.Repeat("a", 11): 413} {
		if resp, _ := do(t, srv, "POST", "/x", strings.NewReader(body), nil); resp.StatusCode != want {
			t.Errorf("%d bytes: got %d", len(body), resp.StatusCode)
		}
	}
	if resp, _ := do(t, srv, "POST", "/"+strings.Repeat("x", 300), nil, nil); resp.StatusCode != 431 {
		t.Errorf("long path: got %d", resp.StatusCode)
	}
}

func TestNewBuffered_WaitsAtMost29Seconds(t *testing.T) {
	t.Parallel()
	waits := make(chan time.Duration, 1)
	srv := serveBuffered(t, fakeInvoker(func(ctx context.Context, _ []byte) (lambda.Result, error) {
		until, _ := ctx.Deadline()
		waits <- time.Until(until)
		return lambda.Result{Payload: []byte(`{"statusCode":200}`)}, nil
	}))
	do(t, srv, "GET", "/x", nil, nil)
	if wait := <-waits; wait > maxBuffered || wait < maxBuffered-10*time.Second {
		t.Errorf("the function has %v", wait)
	}
}
