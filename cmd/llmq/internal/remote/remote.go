// Package remote speaks HTTP to a deployment: to its admin API and to its door.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Authorizer proves who asks, in a request's headers. body is what the request sends.
type Authorizer func(ctx context.Context, req *http.Request, body []byte) error

// Bearer sends a key.
func Bearer(key string) Authorizer {
	return func(_ context.Context, req *http.Request, _ []byte) error {
		if req.URL.Scheme != "https" && !OnLoopback(req.URL.Hostname()) {
			return fmt.Errorf("the key for %s is not sent in plain text; use https", req.URL.Host)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		return nil
	}
}

// OnLoopback reports whether a host is this machine by its name or its address.
func OnLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Remote is one API. It is safe for concurrent use.
type Remote struct {
	base      *url.URL
	authorize Authorizer
	client    *http.Client

	// Unrecorded, where it is set, is called for what was done and of which no record was written.
	Unrecorded func()
}

const (
	// connectWithin bounds the way to a server: who is not there says so soon.
	connectWithin = 5 * time.Second
	// maxAnswerBytes bounds an answer that is read whole: a reply may have 20 MiB.
	maxAnswerBytes = 32 << 20
)

// Anonymous proves nothing: for what anybody may ask.
func Anonymous() Authorizer {
	return func(context.Context, *http.Request, []byte) error { return nil }
}

// New returns the API at a base URL. A redirect is an answer like any other: who is proven is not told elsewhere.
// [Remote.Close] ends its idle connections.
func New(base string, a Authorizer) (*Remote, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no URL; it looks like https://host/path", base)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the URL holds more than scheme, host and path; credentials are no part of it")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return &Remote{base: u, authorize: a, client: &http.Client{
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: connectWithin}).DialContext, TLSHandshakeTimeout: connectWithin,
			IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close ends idle connections.
func (r *Remote) Close() { r.client.CloseIdleConnections() }

// Host is where it is, for people.
func (r *Remote) Host() string { return r.base.Host }

// Get reads what lies under a path, as the API wrote it.
func (r *Remote) Get(ctx context.Context, path string, query url.Values) (json.RawMessage, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return r.Ask(ctx, http.MethodGet, path, nil)
}

// Post sends an object and reads what the API answers.
func (r *Remote) Post(ctx context.Context, path string, in any) (json.RawMessage, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	return r.Ask(ctx, http.MethodPost, path, body)
}

// Ask sends a request whose answer is JSON, and returns that as it is.
func (r *Remote) Ask(ctx context.Context, method, path string, body []byte) (json.RawMessage, error) {
	resp, err := r.Do(ctx, method, path, nil, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // it was read to its end, or the read's error is returned
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, &Unreachable{Host: r.Host(), Err: err}
	}
	if len(text) > maxAnswerBytes || !json.Valid(text) {
		return nil, fmt.Errorf("%s answered %s with no JSON; is it llmq's?", r.Host(), path)
	}
	return text, nil
}

// Do sends a request. A path may hold a query. An answer that is none of 2xx is a [*Refused], and no answer an [*Unreachable]; else the caller
// closes the body.
func (r *Remote) Do(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, */*;q=0.5")
	for name, values := range header {
		req.Header[name] = values
	}
	if err := r.authorize(ctx, req, body); err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ask %s: %w", r.Host(), context.Cause(ctx))
		}
		return nil, &Unreachable{Host: r.Host(), Err: err}
	}
	if resp.StatusCode/100 == 2 {
		if resp.Header.Get("X-LLMQ-Audit") == "missing" && r.Unrecorded != nil {
			r.Unrecorded()
		}
		return resp, nil
	}
	defer resp.Body.Close() // an error's few bytes
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, &Unreachable{Host: r.Host(), Err: err}
	}
	return nil, refused(resp, text)
}

// Unreachable says that nobody answered.
type Unreachable struct {
	Host string
	Err  error
}

// Error implements error.
func (u *Unreachable) Error() string {
	why := u.Err
	if wrapped, ok := errors.AsType[*url.Error](why); ok {
		why = wrapped.Err // without the URL again
	}
	return fmt.Sprintf("%s can't be reached: %v", u.Host, why)
}

// Unwrap returns why.
func (u *Unreachable) Unwrap() error { return u.Err }

// Refused is an error that was answered.
type Refused struct {
	Status     int
	Code       string // llmq's; "" where it was not llmq that answered
	Message    string
	Field      string        // what is to be mended; "" is nothing named
	RequestID  string        // the door's, or API Gateway's
	RetryAfter time.Duration // 0: asking again is not known to help
}

// Error implements error.
func (r *Refused) Error() string {
	text := r.Message
	if text == "" {
		text = fmt.Sprintf("answered with HTTP %d %s", r.Status, http.StatusText(r.Status))
	}
	switch {
	case r.Code != "" && r.RequestID != "":
		text += " (" + r.Code + ", " + r.RequestID + ")"
	case r.Code != "":
		text += " (" + r.Code + ")"
	}
	return text
}

// refused reads an error in any of the forms that there are: of the admin API and OpenAI's, {"error":{…}}; of Bedrock
// and of API Gateway, {"message":…}.
func refused(resp *http.Response, text []byte) *Refused {
	out := &Refused{Status: resp.StatusCode, Code: resp.Header.Get("X-LLMQ-Error-Code"), RequestID: resp.Header.Get("X-LLMQ-Request-Id")}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		out.RetryAfter = time.Duration(s) * time.Second
	}
	var told struct {
		Error   struct{ Code, Message, Field, Param string }
		Message string
	}
	if json.Unmarshal(text, &told) != nil {
		return out
	}
	out.Message, out.Field = told.Error.Message, told.Error.Field
	if out.Message == "" {
		out.Message = told.Message
	}
	if out.Field == "" {
		out.Field = told.Error.Param
	}
	if told.Error.Code != "" {
		out.Code = told.Error.Code
	}
	return out
}
