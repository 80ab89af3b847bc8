package bedrock

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// classify says what a reply outside 2xx means for the next step.
func classify(r egress.Reply, now time.Time, secret string) *provider.Error {
	kind, message := parse(r)
	for _, row := range table {
		if !row.fits(r.Status, kind, message) {
			continue
		}
		e := &provider.Error{Class: row.class, Code: row.code, Status: r.Status, Kind: provider.CleanToken(provider.CleanMessage(kind, secret), 64)}
		if row.class == provider.Throttle || row.class == provider.Retryable {
			e.RetryAfter = max(provider.RetryAfter(r.Header, now), row.atLeast)
		}
		if !row.secret {
			e.Message = provider.CleanMessage(message, secret)
		}
		return e
	}
	panic("bedrock: the last row of the table takes every reply")
}

// row is one rule. What is left empty is not looked at.
type row struct {
	status  func(int) bool
	kinds   []string
	says    []string // the message holds one of these, in any case
	class   provider.Class
	code    llmq.Code
	atLeast time.Duration // a wait where Bedrock names none
	secret  bool          // the message is not passed on
}

func (r row) fits(status int, kind, message string) bool {
	if r.status != nil && !r.status(status) {
		return false
	}
	if r.kinds != nil && !slices.Contains(r.kinds, kind) {
		return false
	}
	message = strings.ToLower(message)
	return r.says == nil || slices.ContainsFunc(r.says, func(s string) bool { return strings.Contains(message, s) })
}

func in(codes ...int) func(int) bool { return func(s int) bool { return slices.Contains(codes, s) } }

func hundred(h int) func(int) bool { return func(s int) bool { return s/100 == h } }

// table holds the rules; the first that fits decides. An exception's name goes before its status,
// since Bedrock answers 400 for a quota; the status decides where a gateway or proxy answered.
//
// Left out on purpose: the throttle that never ends because an account's quota is 0. It has the
// name and words of every other one, so only a look at the applied quota can tell.
var table = []row{
	// The day's tokens are spent (case H15c). The name is that of an ordinary throttle, but no
	// backoff reaches tomorrow.
	{kinds: []string{"ThrottlingException"}, says: []string{"per day"}, class: provider.TargetFatal, code: llmq.CodeInsufficientQuota},
	{kinds: []string{"ThrottlingException", "TooManyRequestsException"}, class: provider.Throttle, code: llmq.CodeRateLimited},
	{kinds: []string{"ServiceQuotaExceededException"}, class: provider.Throttle, code: llmq.CodeRateLimited}, // a 400
	// A model that must be loaded first takes longer than any curve waits at first. It is no fault
	// of the target's health, so it must not open the breaker as a retryable would.
	{kinds: []string{"ModelNotReadyException"}, class: provider.Throttle, code: llmq.CodeRateLimited, atLeast: 10 * time.Second},

	// Our role, key or clock, or access to the model that nobody asked AWS for. The text names
	// accounts and roles, and the caller can do nothing.
	{kinds: []string{
		"AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature",
		"IncompleteSignatureException", "MissingAuthenticationTokenException", "MissingAuthenticationToken", "InvalidClientTokenId",
		"ExpiredTokenException", "ExpiredToken", "NotAuthorized", "OptInRequired",
	}, class: provider.TargetFatal, code: llmq.CodeProviderAuth, secret: true},

	// A ValidationException speaks of the call, but for these, which speak of the model that our
	// configuration named (case H18). No apostrophe is matched: AWS writes some of them curly.
	{kinds: []string{"ValidationException"}, says: []string{
		"on-demand throughput", "model identifier is invalid", "support the model that you provided",
	}, class: provider.TargetFatal, code: llmq.CodeProviderError},
	{kinds: []string{"ValidationException"}, class: provider.CallFatal, code: llmq.CodeProviderRejected},
	{kinds: []string{"ResourceNotFoundException", "UnknownOperationException"}, class: provider.TargetFatal, code: llmq.CodeProviderError},

	// The model took too long, failed, or its host did. ModelErrorException (424) deserves one more
	// try and no third; how many tries a class gets is not decided here.
	{kinds: []string{
		"ModelTimeoutException", "ModelErrorException", "ModelStreamErrorException", "InternalServerException", "InternalFailure",
		"ServiceUnavailableException", "ServiceUnavailable", "RequestTimeout", "RequestTimeoutException",
	}, class: provider.Retryable, code: llmq.CodeProviderError},

	// No name, or one that is new to us.
	{status: in(429), class: provider.Throttle, code: llmq.CodeRateLimited},
	{status: in(401, 403, 407), class: provider.TargetFatal, code: llmq.CodeProviderAuth, secret: true},
	{status: in(404, 405, 410, 501), class: provider.TargetFatal, code: llmq.CodeProviderError},
	{status: in(408, 424), class: provider.Retryable, code: llmq.CodeProviderError},
	{status: hundred(5), class: provider.Retryable, code: llmq.CodeProviderError},
	{status: hundred(4), class: provider.CallFatal, code: llmq.CodeProviderRejected},

	// Redirects, which are never followed, and what is no final status at all: not Bedrock.
	{class: provider.TargetFatal, code: llmq.CodeProviderError},
}

// parse returns the exception's name and message. The name comes in a header, as
// "Name:http://internal/...", or in the body, as "namespace#Name"; what is around it is cut off.
// The message's field is "message", or "Message" where IAM or the API key check answered.
func parse(r egress.Reply) (kind, message string) {
	var body struct {
		Type    json.RawMessage `json:"__type"`
		Message json.RawMessage `json:"message"` // encoding/json takes any case
	}
	if json.Unmarshal(r.Body, &body) != nil {
		body.Type, body.Message = nil, nil
	}
	kind = r.Header.Get("X-Amzn-Errortype")
	if kind == "" {
		kind = text(body.Type)
	}
	kind, _, _ = strings.Cut(kind, ":")
	if i := strings.LastIndexByte(kind, '#'); i >= 0 {
		kind = kind[i+1:]
	}
	return strings.TrimSpace(kind), text(body.Message)
}

// text is the JSON string in v, or "" where v is something else.
func text(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}
