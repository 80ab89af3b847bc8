package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/httpapi"
)

// handler answers one invocation. The event is taken raw, so that what is no event of
// ours can be told apart from one that is merely incomplete.
type handler func(ctx context.Context, raw json.RawMessage) (*events.APIGatewayProxyStreamingResponse, error)

// newHandler runs h behind an API Gateway REST API with response streaming. It turns
// the event into an HTTP request and decides nothing else.
//
// The handler never returns an error: whatever happens is an answer with a status,
// since API Gateway would make a bare 502 of an error. It may be called concurrently.
// told is called at the end of each invocation, before its body ends: the process may be frozen after that.
func newHandler(h http.Handler, told func()) handler {
	return func(ctx context.Context, raw json.RawMessage) (*events.APIGatewayProxyStreamingResponse, error) {
		r, path, err := request(ctx, raw)
		if err != nil {
			refusal := llmq.AsError(err)
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { httpapi.WriteError(w, path, refusal) })
			return stream(ctx, h, &http.Request{URL: &url.URL{}}, told), nil
		}
		return stream(ctx, h, r, told), nil
	}
}

// event is the part of a REST API proxy event that is read, with what tells other
// events apart from it.
type event struct {
	HTTPMethod        string              `json:"httpMethod"`
	Path              string              `json:"path"`
	Headers           map[string]string   `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	Query             map[string]string   `json:"queryStringParameters"`
	MultiValueQuery   map[string][]string `json:"multiValueQueryStringParameters"`
	Body              string              `json:"body"`
	IsBase64Encoded   bool                `json:"isBase64Encoded"`
	RequestContext    struct {
		Stage      string          `json:"stage"`
		DomainName string          `json:"domainName"`
		Identity   identity        `json:"identity"`
		ELB        json.RawMessage `json:"elb"` // of a load balancer's event
	} `json:"requestContext"`

	Version json.RawMessage `json:"version"` // of an HTTP API's event, in both its formats
}

type identity struct {
	SourceIP string `json:"sourceIp"`
}

// wrongEvent refuses all but one shape: an event that is half understood is worse than
// one that is refused.
func wrongEvent(why string) error {
	return llmq.Errorf(llmq.CodeInvalidRequest, "%s; the door takes the proxy event of an API Gateway REST API (httpMethod, path, requestContext.stage)", why)
}

func (e *event) check() error {
	switch {
	case len(e.Version) > 0:
		return wrongEvent("this is the event of an API Gateway HTTP API")
	case len(e.RequestContext.ELB) > 0:
		return wrongEvent("this is the event of a load balancer")
	case e.HTTPMethod == "" || !strings.HasPrefix(e.Path, "/") || e.RequestContext.Stage == "":
		return wrongEvent("this is no event of an HTTP request")
	}
	return nil
}

// request makes an HTTP request of an event. The path is returned with an error too,
// because the answer's shape follows from it.
func request(ctx context.Context, raw json.RawMessage) (*http.Request, string, error) {
	var e event
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, "", wrongEvent("this is not the JSON of an event")
	}
	if err := e.check(); err != nil {
		return nil, "", err
	}
	u := route(e.Path, e.RequestContext.Stage)
	u.RawQuery = e.query().Encode()
	body := e.Body
	if e.IsBase64Encoded {
		decoded, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			return nil, u.EscapedPath(), llmq.Errorf(llmq.CodeInvalidRequest, "the event's body is not the base64 that it says it is")
		}
		body = string(decoded)
	}
	r, err := http.NewRequestWithContext(ctx, e.HTTPMethod, "/", strings.NewReader(body))
	if err != nil {
		return nil, u.EscapedPath(), llmq.Errorf(llmq.CodeInvalidRequest, "the event's method is not one of HTTP").Because(err)
	}
	r.URL = u
	r.Header = e.header()
	r.Host = e.RequestContext.DomainName
	// The address that API Gateway saw; X-Forwarded-For is whatever a caller wrote.
	r.RemoteAddr = net.JoinHostPort(e.RequestContext.Identity.SourceIP, "0")
	return r, u.EscapedPath(), nil
}

// route is the URL of a path. A path that is a route is taken as it is, even where the
// stage has the name of the route's first part; one that is none loses the stage's
// name, once, since some front ends leave it in.
func route(path, stage string) *url.URL {
	u := parsePath(path)
	if httpapi.HasRoute(u.EscapedPath()) {
		return u
	}
	if rest, ok := strings.CutPrefix(path, "/"+stage); ok && strings.HasPrefix(rest, "/") {
		return parsePath(rest)
	}
	return u
}

// parsePath keeps a path's percent-encoding: a REST API delivers it as it came. A path
// that is not validly encoded is one that some front end has decoded, and is encoded
// again as a whole, so that no ? or % of it gets a meaning.
func parsePath(path string) *url.URL {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return &url.URL{Path: path}
	}
	return &url.URL{Path: decoded, RawPath: path}
}

// header merges both header maps, either of which may be missing or null. A name in
// the map of many values wins over the same name, in whatever case, in the other.
func (e *event) header() http.Header {
	h := http.Header{}
	for name, values := range e.MultiValueHeaders {
		for _, v := range values {
			h.Add(name, v)
		}
	}
	single := http.Header{}
	for name, v := range e.Headers {
		single.Add(name, v)
	}
	for name, values := range single {
		if _, known := h[name]; !known {
			h[name] = values
		}
	}
	return h
}

func (e *event) query() url.Values {
	q := url.Values{}
	for name, v := range e.Query {
		q.Set(name, v)
	}
	for name, values := range e.MultiValueQuery {
		q[name] = values
	}
	return q
}

// panicked makes an error of a recovered value. The value may hold a piece of a body,
// so that only its type is told.
func panicked(v any) error { return fmt.Errorf("the handler panicked with a %T", v) }
