package openai

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// classify says what a reply outside 2xx means for the next step.
func classify(r egress.Reply, now time.Time, key string) *provider.Error {
	w := parse(r.Body)
	for _, row := range table {
		if !row.fits(r.Status, w) {
			continue
		}
		e := &provider.Error{Class: row.class, Code: row.code, Status: r.Status, Kind: w.kind(key)}
		if row.class == provider.Throttle || row.class == provider.Retryable {
			e.RetryAfter = cmp.Or(provider.RetryAfter(r.Header, now), provider.Span(w.delay), provider.SaidWait(w.message))
		}
		if !row.secret {
			e.Message = provider.CleanMessage(w.message, key)
		}
		return e
	}
	panic("openai: the last row of the table takes every reply")
}

// told makes an error of what a 2xx reply, or an event of a stream, tells of one: OpenRouter answers so once it has begun
// to write blanks, and a response of OpenAI's can fail with status 200. What the error calls itself stands for the status
// that it would have had.
func told(body []byte, key string) *provider.Error {
	failed := gjson.GetBytes(body, "error")
	if inner := gjson.GetBytes(body, "response.error"); !isThere(failed) && isThere(inner) {
		failed, body = inner, []byte(`{"error":`+inner.Raw+`}`)
	}
	code := failed.Get("code")
	if !failed.IsObject() {
		code = gjson.GetBytes(body, "code")
	}
	e := classify(egress.Reply{Status: statusOf(code), Header: http.Header{}, Body: body}, time.Now(), key)
	if e.Message == "" && e.Code == llmq.CodeProviderError {
		e.Message = "the provider told of an error and not of which" // its status, which else would be named, was no such
	}
	return e
}

func statusOf(code gjson.Result) int {
	if n := int(code.Int()); n >= 400 && n < 600 {
		return n
	}
	switch name := code.String(); {
	case name == "rate_limit_exceeded":
		return http.StatusTooManyRequests
	case name == "invalid_api_key":
		return http.StatusUnauthorized
	case strings.HasPrefix(name, "invalid_"), name == "context_length_exceeded":
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// row is one rule. What is left empty is not looked at.
type row struct {
	status func(int) bool
	kinds  []string // the error's code or type is one of these
	says   []string // its message holds one of these, in any case
	class  provider.Class
	code   llmq.Code
	secret bool // the message is not passed on
}

func (r row) fits(status int, w wireError) bool {
	if r.status != nil && !r.status(status) {
		return false
	}
	if r.kinds != nil && !slices.Contains(r.kinds, w.code) && !slices.Contains(r.kinds, w.typ) {
		return false
	}
	message := strings.ToLower(w.message)
	return r.says == nil || slices.ContainsFunc(r.says, func(s string) bool { return strings.Contains(message, s) })
}

func in(codes ...int) func(int) bool { return func(s int) bool { return slices.Contains(codes, s) } }

func hundred(h int) func(int) bool { return func(s int) bool { return s/100 == h } }

// table holds the rules; the first that fits decides.
//
// Left out on purpose: 403 of OpenRouter for a flagged input, which can't be told from a key
// without access; and x-should-retry, which speaks to SDKs that know neither our other targets nor
// our limiter.
var table = []row{
	// No money. It looks like a throttle, but waiting does not help, and slowing down for it would
	// shrink the limiter for nothing (case H15). Only one of code and type may be set.
	{kinds: []string{"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}, class: provider.TargetFatal, code: llmq.CodeInsufficientQuota},
	{status: in(402), class: provider.TargetFatal, code: llmq.CodeInsufficientQuota},                                              // OpenRouter, DeepSeek
	{status: in(400), says: []string{"credit balance is too low"}, class: provider.TargetFatal, code: llmq.CodeInsufficientQuota}, // Anthropic

	// One request above the whole minute's allowance of tokens is refused however long it waits.
	// OpenAI says 429, Groq 413. A target with a larger allowance can take it.
	{status: in(413, 429), kinds: []string{"rate_limit_exceeded"}, says: []string{"request too large"}, class: provider.TargetFatal, code: llmq.CodeProviderRejected},

	// Load. 529 is Anthropic's and 498 Groq's word for it.
	{status: in(429, 498, 529), class: provider.Throttle, code: llmq.CodeRateLimited},
	{kinds: []string{"server_is_overloaded", "overloaded_error", "slow_down"}, class: provider.Throttle, code: llmq.CodeRateLimited}, // seen with 400 too
	// A 503 that says so is load as well. Any other 503 comes from something on the way (a balancer
	// without a server behind it, a deployment): that is health, which the breaker must see and the
	// limiter must not learn from.
	{status: in(503), says: []string{"overloaded", "slow down", "server busy"}, class: provider.Throttle, code: llmq.CodeRateLimited},

	// Our key or its rights. The text may hold parts of the key, and the caller can do nothing.
	{status: in(401, 403, 407), class: provider.TargetFatal, code: llmq.CodeProviderAuth, secret: true},

	// The model, the path or the method is not there: configuration, not the call.
	{kinds: []string{"model_not_found"}, class: provider.TargetFatal, code: llmq.CodeProviderError},
	{status: in(404, 405, 410, 501), class: provider.TargetFatal, code: llmq.CodeProviderError},

	// The server gave up waiting for us (408), lost a race for a lock (409, OpenAI's own SDKs
	// retry it), or waits for something itself (424, 425).
	{status: in(408, 409, 424, 425), class: provider.Retryable, code: llmq.CodeProviderError},
	{status: hundred(5), class: provider.Retryable, code: llmq.CodeProviderError},

	// The rest of 4xx speaks of the body: 400, 413, 415, 422.
	{status: hundred(4), class: provider.CallFatal, code: llmq.CodeProviderRejected},

	// Redirects, which are never followed, and what is no final status at all: not an API.
	{class: provider.TargetFatal, code: llmq.CodeProviderError},
}
