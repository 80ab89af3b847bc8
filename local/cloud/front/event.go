package front

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llm-queue/llmq/local/cloud/internal/ids"
)

// proxyEvent is the event as API Gateway writes it. It is not events.APIGatewayProxyRequest, which can't say null for a
// missing body or map and leaves isBase64Encoded out when it is false.
type proxyEvent struct {
	Resource          string              `json:"resource"`
	Path              string              `json:"path"`
	HTTPMethod        string              `json:"httpMethod"`
	Headers           map[string]string   `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	Query             map[string]string   `json:"queryStringParameters"`
	MultiValueQuery   map[string][]string `json:"multiValueQueryStringParameters"`
	PathParameters    map[string]string   `json:"pathParameters"`
	StageVariables    map[string]string   `json:"stageVariables"`
	RequestContext    requestContext      `json:"requestContext"`
	Body              *string             `json:"body"`
	IsBase64Encoded   bool                `json:"isBase64Encoded"`
}

type requestContext struct {
	ResourceID        string   `json:"resourceId"`
	ResourcePath      string   `json:"resourcePath"`
	HTTPMethod        string   `json:"httpMethod"`
	ExtendedRequestID string   `json:"extendedRequestId"`
	RequestTime       string   `json:"requestTime"`
	Path              string   `json:"path"`
	AccountID         string   `json:"accountId"`
	Protocol          string   `json:"protocol"`
	Stage             string   `json:"stage"`
	DomainPrefix      string   `json:"domainPrefix"`
	RequestTimeEpoch  int64    `json:"requestTimeEpoch"` // milliseconds
	RequestID         string   `json:"requestId"`
	Identity          identity `json:"identity"`
	DomainName        string   `json:"domainName"`
	DeploymentID      string   `json:"deploymentId"`
	APIID             string   `json:"apiId"`
}

// identity is null but for these two when a method has no AWS authorization.
type identity struct {
	CognitoIdentityPoolID         *string `json:"cognitoIdentityPoolId"`
	AccountID                     *string `json:"accountId"`
	CognitoIdentityID             *string `json:"cognitoIdentityId"`
	Caller                        *string `json:"caller"`
	SourceIP                      string  `json:"sourceIp"`
	PrincipalOrgID                *string `json:"principalOrgId"`
	AccessKey                     *string `json:"accessKey"`
	CognitoAuthenticationType     *string `json:"cognitoAuthenticationType"`
	CognitoAuthenticationProvider *string `json:"cognitoAuthenticationProvider"`
	UserARN                       *string `json:"userArn"`
	UserAgent                     string  `json:"userAgent"`
	User                          *string `json:"user"`
}

// The two resources of the API: everything, and the root, which that does not hold.
const (
	resource = "/{proxy+}"
	root     = "/"
)

// event renders a request.
//
// A REST API passes `path` as it came, percent-encoding and all, and decodes pathParameters and the query once (a HTTP API
// decodes its path as well; observations are collected in middleapi/standard-server#93 and smithy-typescript#379). So a
// model id that holds an encoded ARN survives in `path`, where the function decodes it once, and %2F is not a separator.
// The stage is in requestContext.path only.
//
// Two things differ. Header names arrive in Go's canonical form, while a REST API keeps the client's case, so functions
// must compare them without case anyway. And a body that is no valid UTF-8 is base64: on AWS that depends on
// binaryMediaTypes, and without those the gateway would damage it.
func (f *Front) event(r *http.Request, id string, body []byte, by *User, now time.Time) ([]byte, error) {
	path := rawPath(r)
	domain, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		domain = r.Host
	}
	prefix, _, _ := strings.Cut(domain, ".")
	e := proxyEvent{
		Resource:       resource,
		Path:           path,
		HTTPMethod:     r.Method,
		PathParameters: map[string]string{"proxy": decoded(strings.TrimPrefix(path, "/"))},
		RequestContext: requestContext{
			ResourceID: "proxy", ResourcePath: resource, HTTPMethod: r.Method,
			ExtendedRequestID: base64.StdEncoding.EncodeToString([]byte(id[:11])),
			RequestTime:       now.UTC().Format("02/Jan/2006:15:04:05 -0700"), RequestTimeEpoch: now.UnixMilli(),
			Path: "/" + f.opts.Stage + path, AccountID: f.opts.AccountID, Protocol: r.Proto, Stage: f.opts.Stage,
			DomainName: domain, DomainPrefix: prefix, DeploymentID: "local", RequestID: id, APIID: f.opts.APIID,
			Identity: identity{SourceIP: sourceIP(r), UserAgent: r.UserAgent()},
		},
	}
	if path == root {
		e.Resource, e.PathParameters = root, nil
		e.RequestContext.ResourceID, e.RequestContext.ResourcePath = "root", root
	}
	if by != nil {
		who := &e.RequestContext.Identity
		who.UserARN, who.AccessKey, who.AccountID, who.Caller, who.User = &by.ARN, &by.AccessKey, &f.opts.AccountID, &by.AccessKey, &by.AccessKey
	}
	e.Headers, e.MultiValueHeaders = headers(r, now)
	e.Query, e.MultiValueQuery = query(r.URL.RawQuery)
	if len(body) > 0 {
		text := string(body)
		if !utf8.Valid(body) {
			text, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
		}
		e.Body = &text
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // <, > and & would grow sixfold and move the 6 MB limit
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("render event: %w", err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// rawPath returns the path as the client sent it.
func rawPath(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		return path
	}
	return r.URL.EscapedPath() // a request in absolute form
}

// decoded undoes percent-encoding once; what isn't encoded well stays.
func decoded(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

// query splits a query string: the last value of each name, and all. Both are null without a query.
func query(raw string) (map[string]string, map[string][]string) {
	if raw == "" {
		return nil, nil
	}
	last, all := map[string]string{}, map[string][]string{}
	for pair := range strings.FieldsFuncSeq(raw, func(r rune) bool { return r == '&' || r == ';' }) { // a REST API splits at both
		name, value, _ := strings.Cut(pair, "=")
		name, value = decodedQuery(name), decodedQuery(value)
		last[name] = value
		all[name] = append(all[name], value)
	}
	return last, all
}

func decodedQuery(s string) string {
	if d, err := url.QueryUnescape(s); err == nil {
		return d
	}
	return s
}

// headers returns the last value of each header, and all: the client's but for those of its connection, and what the
// gateway adds.
func headers(r *http.Request, now time.Time) (map[string]string, map[string][]string) {
	h := r.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	dropHop(h)
	h.Del("Content-Length") // the gateway keeps it to itself
	h.Set("Host", r.Host)
	scheme, port := "http", "80"
	if r.TLS != nil {
		scheme, port = "https", "443"
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if _, p, err := net.SplitHostPort(local.String()); err == nil {
			port = p
		}
	}
	// What the client claims comes before what is known.
	h.Set("X-Forwarded-For", strings.Join(append(h.Values("X-Forwarded-For"), sourceIP(r)), ", "))
	h.Set("X-Forwarded-Port", port)
	h.Set("X-Forwarded-Proto", scheme)
	if h.Get("X-Amzn-Trace-Id") == "" {
		h.Set("X-Amzn-Trace-Id", fmt.Sprintf("Root=1-%08x-%s", now.Unix(), ids.Hex(12)))
	}
	last := make(map[string]string, len(h))
	for name, values := range h {
		if len(values) > 0 {
			last[name] = values[len(values)-1]
		}
	}
	return last, h
}

// dropHop removes the headers that belong to one connection only.
func dropHop(h http.Header) {
	for _, names := range h.Values("Connection") {
		for name := range strings.SplitSeq(names, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		h.Del(name)
	}
}

func sourceIP(r *http.Request) string {
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return ip
}
