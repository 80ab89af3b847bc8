package front

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// gatewayError is an answer of the gateway itself, before or instead of the function's.
type gatewayError struct {
	Type      string // AWS's name of the gateway response, such as INTEGRATION_TIMEOUT
	Status    int    // that of an API which sets up no gateway responses
	Message   string // AWS's text
	RequestID string
}

// kind is a case in which the gateway answers itself.
type kind int

const (
	badRequest      kind = iota // the body did not arrive, or the query can't be read
	forbidden                   // not meant for us
	headerTooLarge              // over the gateway's 10,240 bytes
	requestTooLarge             // over the gateway's 10 MB
	eventTooLarge               // within those, but the event is over Lambda's 6 MB
	noRoom                      // the function's concurrency is used up
	noFunction                  // there is none that may be called
	functionFailed              // it returned an error, exited or timed out
	badReply                    // its reply is not of the kind the integration takes
	timeout                     // no reply in time
	throttled                   // by the gateway itself; a fault, as this one has no rate
)

// response returns AWS's gateway response for a case. What nobody documents was taken from people's access logs:
//
//   - a function that failed is INTEGRATION_FAILURE ("Lambda Customer Function Error", DataBiosphere/azul#6624) with 502,
//     though the type's documented status is 504, which holds where an API sets the response up without one;
//   - a function without room is INTEGRATION_FAILURE too, with 500 and never 429 (re:Post, "Inconsistencies in response
//     codes depending on whether API Gateway response settings are configured", shows the type by changing its response);
//   - a reply of the wrong form is 502, "configuration error" in the execution log. No source tells the type, so it is
//     one that falls to DEFAULT_5XX here. Unseen as well: the answer to too large a header, which is told by its status.
func (k kind) response(requestID string) gatewayError {
	e := func(status int, name, message string) gatewayError {
		return gatewayError{Type: name, Status: status, Message: message, RequestID: requestID}
	}
	const internal = "Internal server error"
	switch k {
	case badRequest:
		return e(http.StatusBadRequest, typeDefault4xx, "Bad Request")
	case forbidden:
		return e(http.StatusForbidden, typeAccessDenied, "Forbidden")
	case headerTooLarge:
		return e(http.StatusRequestHeaderFieldsTooLarge, typeDefault4xx, "Request Header Fields Too Large")
	case requestTooLarge:
		return e(http.StatusRequestEntityTooLarge, typeTooLarge, "HTTP content length exceeded "+strconv.Itoa(maxBody)+" bytes.")
	case eventTooLarge:
		return e(http.StatusRequestEntityTooLarge, typeTooLarge, "Request Too Long")
	case throttled:
		return e(http.StatusTooManyRequests, typeThrottled, "Too Many Requests")
	case noRoom:
		return e(http.StatusInternalServerError, typeFailure, internal)
	case noFunction:
		return e(http.StatusInternalServerError, typeConfiguration, internal)
	case functionFailed:
		return e(http.StatusBadGateway, typeFailure, internal)
	case timeout:
		return e(http.StatusGatewayTimeout, typeTimeout, "Endpoint request timed out")
	case badReply:
	}
	return e(http.StatusBadGateway, typeDefault5xx, internal)
}

// fail answers for the gateway. The cause is for the log.
func (f *Front) fail(w http.ResponseWriter, requestID string, k kind, cause error) {
	e := k.response(requestID)
	if cause != nil {
		f.opts.Logger.Warn("gateway response", "type", e.Type, "request_id", requestID, "err", cause)
	}
	f.answer(w, e)
}

// refuse answers a request whose signature doesn't hold.
func (f *Front) refuse(w http.ResponseWriter, requestID string, cause error) {
	f.opts.Logger.Warn("gateway response", "type", typeSignature, "request_id", requestID, "err", cause)
	f.answer(w, gatewayError{Type: typeSignature, Status: http.StatusForbidden, Message: cause.Error(), RequestID: requestID})
}

func (f *Front) answer(w http.ResponseWriter, e gatewayError) {
	set := f.opts.configured(e)
	if set.Status != 0 {
		e.Status = set.Status
	}
	body := []byte(set.Body)
	if set.Body == "" {
		body = []byte(mustJSON(map[string]string{"message": e.Message}))
	}
	h := w.Header()
	for name, value := range set.Header {
		h.Set(name, value)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // a client that has left needs no answer
}

// classify says which answer a failed invocation gets. Its error's text is for the log and not for callers.
func classify(err error) kind {
	switch {
	case errors.Is(err, lambda.CodeThrottled):
		return noRoom
	case errors.Is(err, lambda.CodeTooLarge):
		return eventTooLarge
	case errors.Is(err, context.DeadlineExceeded):
		return timeout
	case errors.Is(err, lambda.CodeNotFound), errors.Is(err, lambda.CodeClosed):
		return noFunction
	default:
		return functionFailed
	}
}
