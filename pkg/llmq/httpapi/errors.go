package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// defaultRetryAfter is what a retryable error advises when nobody knows better.
const defaultRetryAfter = time.Second

// WriteError answers with an error in the shape of the dialect that escapedPath
// belongs to. It is for what refuses a request before the door sees it.
func WriteError(w http.ResponseWriter, escapedPath string, e *llmq.Error) {
	x := &exchange{w: w, path: escapedPath, id: llmq.NewID()}
	x.fail(e)
}

// describe sets an error's headers and returns its status and body, in OpenAI's
// shape or, on paths of Bedrock's API and on our own, in theirs.
func describe(h http.Header, path string, e *llmq.Error) (status int, contentType string, body []byte) {
	info := e.Code.Info()
	retry := info.Retry && !e.Final // the same id would get this same answer
	setHeader(h, "X-LLMQ-Error-Code", string(e.Code))
	setHeader(h, "X-Should-Retry", strconv.FormatBool(retry))
	if retry {
		after := e.RetryAfter
		if after <= 0 {
			after = defaultRetryAfter
		}
		// Rounded up: who comes back early is refused again.
		ms := int64((after + time.Millisecond - 1) / time.Millisecond)
		setHeader(h, "Retry-After", strconv.FormatInt((ms+999)/1000, 10))
		setHeader(h, "Retry-After-Ms", strconv.FormatInt(ms, 10))
		setHeader(h, "X-Amz-Retry-After", strconv.FormatInt(ms, 10)) // what AWS SDKs read, in milliseconds
	}
	if info.Status == http.StatusUnauthorized {
		setHeader(h, "WWW-Authenticate", "Bearer")
	}
	if strings.HasPrefix(path, "/model/") {
		exception, status := bedrockError(info)
		setHeader(h, "X-Amzn-Errortype", exception)
		return status, "application/json", mustEncode(bedrockBody{Message: wording(e)})
	}
	if strings.HasPrefix(path, native+"/") {
		return info.Status, "application/json", mustEncode(nativeBody{nativeShape(e, retry)})
	}
	return info.Status, "application/json", mustEncode(openAIShape(e))
}

type openAIBody struct {
	Error openAIError `json:"error"`
}

type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // null when there is none, as OpenAI has it
	Code    string  `json:"code"`
}

type nativeBody struct {
	Error nativeError `json:"error"`
}

type nativeError struct {
	Code         string `json:"code"`
	Message      string `json:"message"`
	Field        string `json:"field,omitempty"`
	Retryable    bool   `json:"retryable"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

// nativeShape is an error on our own routes. retryable says that the same may succeed later.
func nativeShape(e *llmq.Error, retryable bool) nativeError {
	out := nativeError{Code: string(e.Code), Message: wording(e), Field: e.Field, Retryable: retryable}
	if retryable {
		out.RetryAfterMS = e.RetryAfter.Milliseconds()
	}
	return out
}

type bedrockBody struct {
	Message string `json:"message"`
}

// openAIShape is an error as OpenAI's SDKs read it.
func openAIShape(e *llmq.Error) openAIBody {
	out := openAIBody{Error: openAIError{Message: wording(e), Type: openAIType(e.Code.Info()), Code: string(e.Code)}}
	if e.Field != "" {
		out.Error.Param = &e.Field
	}
	return out
}

// wording is what an error says, or what its code means.
func wording(e *llmq.Error) string {
	if e.Message != "" {
		return e.Message
	}
	return e.Code.Info().Means
}

// mustEncode encodes structs of strings, which can't fail.
func mustEncode(v any) []byte {
	b, err := encode(v)
	if err != nil {
		panic("httpapi: an error body can't be encoded: " + err.Error())
	}
	return b
}

// openAIType is OpenAI's coarse kind of error. A bad key is an invalid_request_error
// there, told apart by its code.
func openAIType(info llmq.CodeInfo) string {
	switch {
	case info.Code == llmq.CodeInsufficientQuota:
		return "insufficient_quota"
	case info.Status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case info.Status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// bedrockError is the exception of Bedrock's API that says most nearly the same, and
// its status. AWS SDKs know no x-should-retry: they repeat 500, 502, 503, 504 and
// what is called throttling, and older ones every 429. So a call that must not be
// repeated gets the status that Bedrock itself gives the exception (408, 424, 400).
// Faults of our own stay 500, as an SDK expects of a broken service.
func bedrockError(info llmq.CodeInfo) (exception string, status int) {
	switch info.Code {
	case llmq.CodeInvalidKey, llmq.CodeKeyRevoked:
		return "UnrecognizedClientException", info.Status
	case llmq.CodeForbidden:
		return "AccessDeniedException", info.Status
	case llmq.CodeUnknownRoute, llmq.CodeMethodNotAllowed:
		return "UnknownOperationException", info.Status
	case llmq.CodeModelNotFound, llmq.CodeCallNotFound, llmq.CodeResultExpired:
		return "ResourceNotFoundException", info.Status
	case llmq.CodeTimeout, llmq.CodeExpired:
		return "ModelTimeoutException", http.StatusRequestTimeout
	case llmq.CodeCancelled:
		return "ConflictException", info.Status
	case llmq.CodeRateLimited, llmq.CodeNoCapacity:
		return "ThrottlingException", info.Status
	case llmq.CodeInsufficientQuota:
		return "ServiceQuotaExceededException", http.StatusBadRequest
	case llmq.CodeQueueUnavailable:
		return "ServiceUnavailableException", info.Status
	case llmq.CodeProviderError, llmq.CodeProviderAuth, llmq.CodeStreamBroken:
		return "ModelErrorException", http.StatusFailedDependency
	default:
		if info.Status < http.StatusInternalServerError {
			return "ValidationException", info.Status
		}
		return "InternalServerException", info.Status
	}
}
