package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, h http.HandlerFunc, who Authorizer) *Remote {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	r, err := New(server.URL+"/prod/", who)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// What was answered with an error is told with all that it says, in whatever form it came.
func TestRemote_ReadsEveryFormOfError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		want   Refused
	}{
		{"the admin API's", 429, map[string]string{"Retry-After": "60"}, `{"error":{"code":"rate_limited","message":"later","field":"queue"}}`, Refused{429, "rate_limited", "later", "queue", "", time.Minute}},
		{"OpenAI's", 403, map[string]string{"X-LLMQ-Request-Id": "req_1"}, `{"error":{"message":"no","type":"x","param":"model","code":"forbidden"}}`, Refused{403, "forbidden", "no", "model", "req_1", 0}},
		{"Bedrock's", 404, map[string]string{"X-LLMQ-Error-Code": "model_not_found"}, `{"message":"no such model"}`, Refused{404, "model_not_found", "no such model", "", "", 0}},
		{"API Gateway's", 403, nil, `{"message":"Missing Authentication Token"}`, Refused{403, "", "Missing Authentication Token", "", "", 0}},
		{"somebody's", 502, map[string]string{"Retry-After": "soon"}, `<html>`, Refused{Status: 502}},
		{"a redirect", 302, map[string]string{"Location": "http://192.0.2.1/"}, ``, Refused{Status: 302}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body) //nolint:errcheck // the test's own client
			}, Bearer("k"))
			_, err := r.Get(t.Context(), "/status", nil)
			got, ok := errors.AsType[*Refused](err)
			if !ok {
				t.Fatalf("error = %v", err)
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Error(diff)
			}
			if got.Error() == "" {
				t.Error("it says nothing")
			}
		})
	}
}

// KT7: a request is signed for its service and region, with its body.
func TestSigV4_SignsForItsService(t *testing.T) {
	t.Parallel()
	who := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret", SessionToken: "session"}, nil
	})
	r := serve(t, func(w http.ResponseWriter, req *http.Request) {
		h := req.Header
		if !strings.Contains(h.Get("Authorization"), "/eu-central-1/execute-api/aws4_request") || !strings.Contains(h.Get("Authorization"), "content-type") ||
			h.Get("X-Amz-Security-Token") != "session" || h.Get("X-Amz-Date") == "" || req.URL.Path != "/prod/queues/pause" {
			t.Errorf("asked %s with %v", req.URL, h)
		}
		io.WriteString(w, `{}`) //nolint:errcheck // the test's own client
	}, SigV4(who, "execute-api", "eu-central-1"))
	if _, err := r.Post(t.Context(), "/queues/pause", map[string]string{"queue": "q"}); err != nil {
		t.Error(err)
	}
}

func TestSigV4_WithoutCredentialsSaysSo(t *testing.T) {
	t.Parallel()
	nobody := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errors.New("expired") })
	r := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("asked") }, SigV4(nobody, "execute-api", "r"))
	if _, err := r.Get(t.Context(), "/status", nil); !errors.Is(err, ErrNoCredentials) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("error = %v", err)
	}
}

// A key goes to this machine, or over TLS.
func TestBearer_NotInPlainText(t *testing.T) {
	t.Parallel()
	for u, ok := range map[string]bool{
		"http://127.0.0.1:8082": true, "http://localhost:1": true, "http://[::1]:1": true, "https://x.example": true,
		"http://10.0.0.1": false, "http://x.example": false, "http://127.0.0.1.x.example": false,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = Bearer("k")(t.Context(), req, nil)
		if ok != (err == nil) || !ok && req.Header.Get("Authorization") != "" || err != nil && strings.Contains(err.Error(), "\"k\"") {
			t.Errorf("%s: %v", u, err)
		}
	}
}

func TestRemote_NoJSONIsAnError(t *testing.T) {
	t.Parallel()
	r := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, Bearer("k")) //nolint:errcheck // the test's own client
	if _, err := r.Get(t.Context(), "/status", nil); err == nil || !strings.Contains(err.Error(), "is it llmq's?") {
		t.Errorf("error = %v", err)
	}
}

func TestRegionOf_ReadsTheHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"abc123.execute-api.eu-central-1.amazonaws.com": "eu-central-1", "abc123.execute-api.cn-north-1.amazonaws.com.cn": "cn-north-1",
		"llmq.example.com": "", "127.0.0.1": "", "execute-api.x": "",
	} {
		if got := RegionOf(host); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}
