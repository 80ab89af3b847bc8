package front

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"
)

func TestEvent_Goldens(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		method string
		target string
		body   string
		header http.Header
	}{
		{
			"chat", "POST", "/v1/chat/completions", `{"model":"chat-a","messages":[{"role":"user","content":"<b>café ☕</b> & more"}]}`,
			http.Header{
				"Authorization": {"Bearer k-test"}, "Content-Type": {"application/json"}, "User-Agent": {"openai-go"},
				"Accept": {"text/event-stream", "application/json"}, "Connection": {"keep-alive, X-Hop"}, "X-Hop": {"1"},
			},
		},
		{"converse", "POST", "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x/converse", "\xff\x00binary", nil},
		{"get", "GET", "/v1/jobs/a%20b?wait=5&tag=x&tag=y%2Bz+w&empty&bad=%zz", "", http.Header{"X-Forwarded-For": {"203.0.113.9"}}},
	}
	f := &Front{opts: options()}
	for _, tt := range tests {
		r := httptest.NewRequest(tt.method, tt.target, strings.NewReader(tt.body))
		r.Host, r.RemoteAddr, r.Header = "127.0.0.1:8080", "127.0.0.1:50000", tt.header
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}))
		if r.Header == nil {
			r.Header = http.Header{}
		}
		r.Header.Set("X-Amzn-Trace-Id", "Root=1-5759e988-bd862e3fe1be46a994272793")
		got, err := f.event(r, "deef4878-7910-41e6-8f14-25afc3e9ae33", []byte(tt.body), nil, time.Date(2026, 11, 29, 6, 1, 9, 693e6, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(got), `\u003c`) || strings.Contains(string(got), `\u0026`) {
			t.Errorf("%s: escaped like HTML: %s", tt.name, got)
		}
		var parsed events.APIGatewayProxyRequest
		if err := json.Unmarshal(got, &parsed); err != nil {
			t.Errorf("%s: aws-lambda-go can't read it: %v", tt.name, err)
		}
		var buf bytes.Buffer
		if err := json.Indent(&buf, got, "", "  "); err != nil {
			t.Fatal(err)
		}
		golden(t, tt.name+".json", append(buf.Bytes(), '\n'))
	}
}

// A model id that holds an encoded ARN must reach the function so that decoding once gives the ARN.
func TestEvent_PathIsRawAndProxyParameterDecoded(t *testing.T) {
	t.Parallel()
	tests := []struct{ path, proxy string }{
		{"/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Aprompt%2FABC/converse", "model/arn:aws:bedrock:eu-west-1:1:prompt/ABC/converse"},
		{"/model/arn%253Aaws/converse", "model/arn%3Aaws/converse"},
		{"/a//b/../c/", "a//b/../c/"},
		{"/plus+plus", "plus+plus"},
		{"/", ""},
	}
	for _, tt := range tests {
		e := eventOf(t, "POST", tt.path, nil, func(r *http.Request) { r.URL.Opaque = tt.path })
		if e.Path != tt.path || e.PathParameters["proxy"] != tt.proxy || e.RequestContext.Path != "/local"+tt.path {
			t.Errorf("%s: path %q, proxy %q, context %q", tt.path, e.Path, e.PathParameters["proxy"], e.RequestContext.Path)
		}
	}
}

func TestEvent_Body(t *testing.T) {
	t.Parallel()
	if e := eventOf(t, "GET", "/x", nil, nil); e.Body != nil || e.IsBase64Encoded {
		t.Errorf("no body: %+v", e)
	}
	if e := eventOf(t, "POST", "/x", strings.NewReader("café ☕"), nil); *e.Body != "café ☕" || e.IsBase64Encoded {
		t.Errorf("text: %q %v", *e.Body, e.IsBase64Encoded)
	}
	if e := eventOf(t, "POST", "/x", strings.NewReader("\xff\x00"), nil); *e.Body != "/wA=" || !e.IsBase64Encoded {
		t.Errorf("bytes: %q %v", *e.Body, e.IsBase64Encoded)
	}
}

func TestQuery_LastAndAllValues(t *testing.T) {
	t.Parallel()
	last, all := query("a=1&a=2&b=x%20y+z&&c;%64=%zz")
	if diff := cmp.Diff(map[string]string{"a": "2", "b": "x y z", "c": "", "d": "%zz"}, last); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string][]string{"a": {"1", "2"}, "b": {"x y z"}, "c": {""}, "d": {"%zz"}}, all); diff != "" {
		t.Error(diff)
	}
	if last, all := query(""); last != nil || all != nil {
		t.Errorf("no query: %v %v, want null", last, all)
	}
}

// The root is a resource of its own, as {proxy+} does not hold it.
func TestEvent_Root(t *testing.T) {
	t.Parallel()
	e := eventOf(t, "GET", "/", nil, nil)
	if e.Resource != "/" || e.Path != "/" || e.PathParameters != nil || e.RequestContext.ResourcePath != "/" || e.RequestContext.Path != "/local/" {
		t.Errorf("got %+v", e)
	}
}

func TestEvent_HeadersOfTheConnectionStayBehind(t *testing.T) {
	t.Parallel()
	e := eventOf(t, "POST", "/x", strings.NewReader("{}"), func(r *http.Request) { r.Header["X-Many"] = []string{"1", "2"} })
	for _, name := range []string{"Content-Length", "Connection", "Transfer-Encoding"} {
		if _, ok := e.MultiValueHeaders[name]; ok {
			t.Errorf("%s is in the event", name)
		}
	}
	if diff := cmp.Diff([]string{"1", "2"}, e.MultiValueHeaders["X-Many"]); diff != "" || e.Headers["X-Many"] != "2" {
		t.Errorf("X-Many: %s, %q", diff, e.Headers["X-Many"])
	}
}
