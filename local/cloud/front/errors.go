package front

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// GatewayError is an answer of the gateway itself, before or instead of the function's.
type GatewayError struct {
	Type      string // AWS's name of the gateway response, such as INTEGRATION_TIMEOUT
	Status    int
	Message   string // AWS's text
	RequestID string
}

// kind is a case in which the gateway answers itself.
type kind int

const (
	badRequest      kind = iota // the body did not arrive
	forbidden                   // not meant for us
	requestTooLarge             // over the gateway's 10 MB
	eventTooLarge               // within those, but the event is over Lambda's 6 MB
	throttled                   // the function has no room
	serverError                 // there is no such function
	badReply                    // the function failed, or its reply is not of the kind the integration takes
	timeout                     // no reply in time
)

// response returns AWS's gateway response for a case.
func (k kind) response(requestID string) GatewayError {
	e := func(status int, name, message string) GatewayError {
		return GatewayError{Type: name, Status: status, Message: message, RequestID: requestID}
	}
	switch k {
	case badRequest:
		return e(http.StatusBadRequest, "BAD_REQUEST_BODY", "Bad Request")
	case forbidden:
		return e(http.StatusForbidden, "ACCESS_DENIED", "Forbidden")
	case requestTooLarge:
		return e(http.StatusRequestEntityTooLarge, "REQUEST_TOO_LARGE", "HTTP content length exceeded "+strconv.Itoa(maxBody)+" bytes.")
	case eventTooLarge:
		return e(http.StatusRequestEntityTooLarge, "REQUEST_TOO_LARGE", "Request Too Long")
	case throttled:
		return e(http.StatusTooManyRequests, "THROTTLED", "Too Many Requests")
	case serverError:
		return e(http.StatusInternalServerError, "API_CONFIGURATION_ERROR", "Internal server error")
	case timeout:
		return e(http.StatusGatewayTimeout, "INTEGRATION_TIMEOUT", "Endpoint request timed out")
	case badReply:
	}
	return e(http.StatusBadGateway, "INTEGRATION_FAILURE", "Internal server error")
}

// awsForm is what API Gateway answers when a gateway response has no template of its own.
func awsForm(e GatewayError) (contentType string, body []byte) {
	body, err := json.Marshal(struct {
		Message string `json:"message"`
	}{e.Message})
	if err != nil {
		panic(err) // a string always marshals
	}
	return "application/json", body
}

// fail answers for the gateway. The cause is for the log.
func (f *front) fail(w http.ResponseWriter, requestID string, k kind, cause error) {
	e := k.response(requestID)
	if cause != nil {
		f.opts.Logger.Warn("gateway response", "type", e.Type, "request_id", requestID, "err", cause)
	}
	contentType, body := f.opts.Respond(e)
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // a client that has left needs no answer
}

// classify says which answer a failed invocation gets. A function that failed is a 502 whatever its error was: its text is
// for the log and not for callers.
func classify(err error) kind {
	switch {
	case errors.Is(err, lambda.CodeThrottled):
		return throttled
	case errors.Is(err, lambda.CodeTooLarge):
		return eventTooLarge
	case errors.Is(err, context.DeadlineExceeded):
		return timeout
	case errors.Is(err, lambda.CodeNotFound), errors.Is(err, lambda.CodeClosed):
		return serverError
	default:
		return badReply
	}
}
