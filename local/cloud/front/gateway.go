package front

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Response is a gateway response as an API sets it up for a type of error.
type Response struct {
	Status int               // 0 leaves the status that the error has on AWS
	Header map[string]string // besides Content-Type
	Body   string            // JSON; "" is AWS's {"message":...}
}

// The types of gateway responses that are given here, by AWS's names. The two defaults stand for every type of their
// hundred that an API sets up no response for.
const (
	typeAccessDenied  = "ACCESS_DENIED"
	typeSignature     = "INVALID_SIGNATURE"
	typeTooLarge      = "REQUEST_TOO_LARGE"
	typeThrottled     = "THROTTLED" // by the gateway; a function's own limit is an integration failure
	typeConfiguration = "API_CONFIGURATION_ERROR"
	typeFailure       = "INTEGRATION_FAILURE"
	typeTimeout       = "INTEGRATION_TIMEOUT"
	typeDefault4xx    = "DEFAULT_4XX"
	typeDefault5xx    = "DEFAULT_5XX"
)

// Deployed are the gateway responses of the door's API as infra/cdk sets them up; a test holds them against the template.
// Both wires' clients can read them: OpenAI's error and Bedrock's message.
func Deployed() map[string]Response {
	out := map[string]Response{}
	for _, r := range []struct {
		kind     string
		code     llmq.Code
		message  string
		awsError string
	}{
		{typeThrottled, llmq.CodeNoCapacity, "the API or the door takes no more calls at the moment", "ThrottlingException"},
		{typeTooLarge, llmq.CodeTooLarge, "the request is larger than the API takes", "ValidationException"},
		{typeTimeout, llmq.CodeTimeout, "the door gave no reply in time; the call may still be running", "ModelTimeoutException"},
		{typeFailure, llmq.CodeInternal, "the door failed; the call may still be running", "InternalServerException"},
		{typeDefault4xx, llmq.CodeInvalidRequest, "the API refused the request", "ValidationException"},
		{typeDefault5xx, llmq.CodeInternal, "the API failed", "InternalServerException"},
	} {
		info := r.code.Info()
		response := Response{Header: map[string]string{
			"X-LLMQ-Error-Code": string(r.code), "X-Should-Retry": strconv.FormatBool(info.Retry), "X-Amzn-Errortype": r.awsError,
		}}
		if info.Retry {
			response.Header["Retry-After"] = "1"
		}
		if r.kind != typeDefault4xx && r.kind != typeDefault5xx {
			response.Status = info.Status
		}
		kind := "invalid_request_error"
		switch {
		case info.Status == http.StatusTooManyRequests:
			kind = "rate_limit_error"
		case info.Status >= http.StatusInternalServerError:
			kind = "server_error"
		}
		response.Body = mustJSON(map[string]any{
			"error": map[string]any{"message": r.message, "type": kind, "param": nil, "code": string(r.code)}, "message": r.message,
		})
		out[r.kind] = response
	}
	return out
}

// configured is the response for an error, if the API sets one up.
func (o *Options) configured(e gatewayError) Response {
	if r, ok := o.Responses[e.Type]; ok {
		return r
	}
	if e.Status < http.StatusInternalServerError {
		return o.Responses[typeDefault4xx]
	}
	return o.Responses[typeDefault5xx]
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("front: " + err.Error()) // maps of strings always marshal
	}
	return string(b)
}
