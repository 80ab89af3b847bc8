package httpapi

import (
	"errors"
	"net/http"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// Route is one row of the door's table.
type Route struct {
	Method string
	Path   string // {modelId} stands for a percent-encoded model id, slashes and all, {id} for a call's id, which has none
}

// The parameters of paths; a path has one at most.
const (
	modelID = "{modelId}"
	callID  = "{id}"
)

// native begins the paths that are neither OpenAI's nor Bedrock's but our own (docs/adr/0021).
const native = "/llmq/v1"

// maxPathBytes bounds a path as it came (SECURITY-DESIGN IN1).
const maxPathBytes = 4096

// route is a row with what it does.
type route struct {
	Route
	access access
	op     llmq.Op
	serve  func(*Handler, *exchange, auth.Caller) error
}

// access is what a route asks of a key.
type access int

const (
	open      access = iota // no key
	anyKey                  // a key that holds
	caller                  // the scope call, and one of the key's calls of the minute
	submitter               // the scope submit, and one of the key's calls of the minute
	reader                  // the scope read
	canceller               // the scope cancel
)

// scope is what a key must have.
func (a access) scope() auth.Scope {
	switch a {
	case caller:
		return auth.ScopeCall
	case submitter:
		return auth.ScopeSubmit
	case reader:
		return auth.ScopeRead
	case canceller:
		return auth.ScopeCancel
	default:
		return ""
	}
}

// counted reports whether a request is one of the calls that its key may make in a minute.
func (a access) counted() bool { return a == caller || a == submitter }

// table is every route there is (SECURITY-DESIGN KT5: one table, golden-tested).
func table() []route {
	return []route{
		{Route{http.MethodPost, "/v1/chat/completions"}, caller, llmq.OpChat, (*Handler).complete},
		{Route{http.MethodPost, "/v1/responses"}, caller, llmq.OpResponses, (*Handler).complete},
		{Route{http.MethodPost, "/v1/embeddings"}, caller, llmq.OpEmbeddings, (*Handler).complete},
		{Route{http.MethodGet, "/v1/models"}, anyKey, "", (*Handler).models},
		{Route{http.MethodPost, "/model/" + modelID + "/converse"}, caller, llmq.OpConverse, (*Handler).complete},
		{Route{http.MethodPost, "/model/" + modelID + "/converse-stream"}, caller, llmq.OpConverseStream, (*Handler).complete},
		{Route{http.MethodPost, "/model/" + modelID + "/invoke"}, caller, llmq.OpInvoke, (*Handler).complete},
		{Route{http.MethodPost, "/model/" + modelID + "/invoke-with-response-stream"}, caller, llmq.OpInvokeStream, (*Handler).complete},
		{Route{http.MethodPost, native + "/calls"}, submitter, "", (*Handler).submit},
		{Route{http.MethodGet, native + "/calls/" + callID}, reader, "", (*Handler).call},
		{Route{http.MethodDelete, native + "/calls/" + callID}, canceller, "", (*Handler).withdraw},
		{Route{http.MethodGet, native + "/calls/" + callID + "/result"}, reader, "", (*Handler).result},
		{Route{http.MethodGet, native + "/calls/" + callID + "/stream"}, reader, "", (*Handler).follow},
		{Route{http.MethodGet, native + "/openapi.json"}, anyKey, "", (*Handler).document},
		{Route{http.MethodGet, native + "/message.schema.json"}, anyKey, "", (*Handler).document},
		{Route{http.MethodGet, "/health"}, open, "", (*Handler).health},
	}
}

// Routes lists the door's routes, for those who set up what stands before it.
func Routes() []Route {
	var rs []Route
	for _, rt := range table() {
		rs = append(rs, rt.Route)
	}
	return rs
}

// HasRoute reports whether a percent-encoded path belongs to a route, whatever the
// method.
func HasRoute(escapedPath string) bool {
	_, err := match("", escapedPath)
	return !errors.Is(err, llmq.CodeUnknownRoute)
}

// matched is the route that a request found.
type matched struct {
	route
	param string // what stands for the path's parameter, still percent-encoded
	allow string // with [llmq.CodeMethodNotAllowed]: the path's methods
}

// match finds the route of a percent-encoded path. With [llmq.CodeMethodNotAllowed]
// it says which methods the path has, and route is one of them.
func match(method, path string) (matched, error) {
	var other matched
	var allow []string
	for _, rt := range table() {
		param, ok := rt.matches(path)
		if !ok {
			continue
		}
		if rt.Method == method {
			return matched{route: rt, param: param}, nil
		}
		other, allow = matched{route: rt}, append(allow, rt.Method)
	}
	if len(allow) > 0 {
		other.allow = strings.Join(allow, ", ")
		return other, llmq.Errorf(llmq.CodeMethodNotAllowed, "%s takes %s", other.Path, other.allow)
	}
	return matched{}, llmq.Errorf(llmq.CodeUnknownRoute, "no route has this path; the routes are %s", paths())
}

// matches compares a path as it came. A model id may hold slashes (an ARN that some
// front end decoded), so that it is what stands between the fixed parts.
func (r Route) matches(path string) (param string, ok bool) {
	name := modelID
	before, after, has := strings.Cut(r.Path, name)
	if !has {
		name = callID
		before, after, has = strings.Cut(r.Path, name)
	}
	if !has {
		return "", path == r.Path
	}
	if len(path) > maxPathBytes || len(path) < len(before)+len(after) || !strings.HasPrefix(path, before) || !strings.HasSuffix(path, after) {
		return "", false
	}
	param = path[len(before) : len(path)-len(after)]
	return param, name == modelID || param != "" && !strings.Contains(param, "/")
}

func paths() string {
	var ps []string
	for _, rt := range table() {
		ps = append(ps, rt.Method+" "+rt.Path)
	}
	return strings.Join(ps, ", ")
}
