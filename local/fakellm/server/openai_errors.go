package server

import (
	"fmt"
	"net/http"
	"strings"
)

const (
	kindInvalidRequest = "invalid_request_error"
	kindServer         = "server_error"
	// noCode asks for an error whose code is null, where an empty code would ask for the usual one.
	noCode = "null"
)

// openAIErrors are the errors that OpenAI documents or was seen to send, by their code. %s stands
// for the model.
func openAIErrors() map[string]fault {
	return map[string]fault{
		"invalid_api_key": {
			status: http.StatusUnauthorized, kind: kindInvalidRequest,
			message: "Incorrect API key provided. You can find your API key at https://platform.openai.com/account/api-keys.",
		},
		"model_not_found": {
			status: http.StatusNotFound, kind: kindInvalidRequest,
			message: "The model `%s` does not exist or you do not have access to it.",
		},
		"rate_limit_exceeded": {
			status: http.StatusTooManyRequests, kind: "requests",
			message: "Rate limit reached for %s in organization org-fakellm on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.",
		},
		"insufficient_quota": { // the same status, and nothing that a retry could cure
			status: http.StatusTooManyRequests, kind: "insufficient_quota",
			message: "You exceeded your current quota, please check your plan and billing details.",
		},
		"context_length_exceeded": {
			status: http.StatusBadRequest, kind: kindInvalidRequest, param: "messages",
			message: "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. Please reduce the length of the messages.",
		},
		"content_policy_violation": {
			status: http.StatusBadRequest, kind: kindInvalidRequest,
			message: "Your request was rejected as a result of our safety system.",
		},
	}
}

// openAIErrorsByStatus are those that a bare status asks for. Statuses that aren't listed get the
// invalid-request shape below 500, and the server-error shape above.
func openAIErrorsByStatus() map[int]fault {
	return map[int]fault{
		http.StatusUnauthorized:    {code: "invalid_api_key"},
		http.StatusNotFound:        {code: "model_not_found"},
		http.StatusTooManyRequests: {code: "rate_limit_exceeded"},
		http.StatusInternalServerError: {
			code: noCode, kind: kindServer,
			message: "The server had an error while processing your request. Sorry about that!",
		},
		http.StatusServiceUnavailable: {
			code: noCode, kind: kindServer,
			message: "That model is currently overloaded with other requests. You can retry your request, or contact us if the error persists.",
		},
	}
}

type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

type openAIErrorBody struct {
	Error openAIError `json:"error"`
}

// completeOpenAI fills in what f leaves open.
func completeOpenAI(f fault) fault {
	if f.code == "" {
		f = f.or(openAIErrorsByStatus()[f.status])
	}
	f = f.or(openAIErrors()[f.code])
	if f.status == 0 {
		f.status = http.StatusInternalServerError
	}
	if f.kind == "" && f.status < http.StatusInternalServerError {
		f.kind = kindInvalidRequest
	} else if f.kind == "" {
		f.kind = kindServer
	}
	if f.message == "" {
		f.message = http.StatusText(f.status)
	}
	return f
}

// shape has null for a param and a code that are empty.
func (f fault) shape() openAIError {
	shaped := openAIError{Message: f.message, Type: f.kind}
	if f.param != "" {
		shaped.Param = &f.param
	}
	if f.code != "" && f.code != noCode {
		shaped.Code = &f.code
	}
	return shaped
}

// fault writes OpenAI's shape of an error: four fields.
func (openAIWire) fault(f fault, id string) reply {
	f = completeOpenAI(f)
	return openAIReply(f.status, id, 0, openAIErrorBody{f.shape()})
}

// or takes from usual what f leaves open.
func (f fault) or(usual fault) fault {
	if f.status == 0 {
		f.status = usual.status
	}
	if f.code == "" {
		f.code = usual.code
	}
	if f.kind == "" {
		f.kind = usual.kind
	}
	if f.param == "" {
		f.param = usual.param
	}
	if f.message == "" && strings.Contains(usual.message, "%s") {
		f.message = fmt.Sprintf(usual.message, f.model)
	} else if f.message == "" {
		f.message = usual.message
	}
	return f
}
