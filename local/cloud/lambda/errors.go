package lambda

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Code names a failure of the Lambda service itself, as AWS spells it. Codes are errors, so that
// errors.Is(err, lambda.CodeThrottled) works.
type Code string

// The codes this host returns.
const (
	CodeThrottled       Code = "TooManyRequestsException"       // a limit of concurrency or rate; Error.Throttle says which
	CodeNotFound        Code = "ResourceNotFoundException"      // no function of that name
	CodeConflict        Code = "ResourceConflictException"      // the function exists already
	CodeTooLarge        Code = "RequestTooLargeException"       // the payload is over MaxPayload
	CodeInvalidContent  Code = "InvalidRequestContentException" // the payload is not JSON
	CodeInvalidConfig   Code = "InvalidParameterValueException" // the function's configuration can't work
	CodeClosed          Code = "ServiceException"               // the host is closed
	codeTimedOut             = "Sandbox.Timedout"
	codeExit                 = "Runtime.ExitError"
	codeEntrypoint           = "Runtime.InvalidEntrypoint"
	codeResponseTooBig       = "Function.ResponseSizeTooLarge"
	codeTruncated            = "Runtime.TruncatedResponse"
	functionErrorHeader      = "Unhandled" // what X-Amz-Function-Error says for every failure of a function
)

// Error returns the code's text.
func (c Code) Error() string { return string(c) }

// Error is a failure of the service: the function did not run. Compare its code with errors.Is.
type Error struct {
	Code     Code
	Function string
	Reason   string // for people
	Throttle string // of CodeThrottled: which limit it was, such as ThrottleReserved
}

// Error returns function, code and reason.
func (e *Error) Error() string {
	return fmt.Sprintf("lambda: function %s: %s: %s", e.Function, e.Code, e.Reason)
}

// Unwrap makes errors.Is(err, code) hold.
func (e *Error) Unwrap() error { return e.Code }

// FunctionError is a failure of the function: it ran and reported an error, exited or ran out of time. Its text leaves the
// payload out, since that may quote what the function was sent.
type FunctionError struct {
	Function  string
	RequestID string
	Type      string // errorType, such as Runtime.ExitError, Sandbox.Timedout or the Go type of a handler's error
	Payload   []byte // the JSON a caller of Invoke gets: errorType, errorMessage, stackTrace
}

// Error returns function, request id and type.
func (e *FunctionError) Error() string {
	return fmt.Sprintf("lambda: function %s: request %s: %s", e.Function, e.RequestID, e.Type)
}

// platformError builds the error that the service, not the runtime, writes. AWS puts errorType first in these.
func platformError(function, requestID, errorType, message string) *FunctionError {
	payload, err := json.Marshal(struct {
		Type    string `json:"errorType"`
		Message string `json:"errorMessage"`
	}{errorType, message})
	if err != nil {
		panic(err) // two strings always marshal
	}
	return &FunctionError{Function: function, RequestID: requestID, Type: errorType, Payload: payload}
}

func timedOut(function, requestID string, after time.Duration) *FunctionError {
	return platformError(function, requestID, codeTimedOut,
		fmt.Sprintf("RequestId: %s Error: Task timed out after %.2f seconds", requestID, after.Seconds()))
}

// exited describes how a runtime ended while it owed an answer.
func exited(function, requestID string, e exit) *FunctionError {
	switch {
	case errors.Is(e.startErr, errStopping):
		return platformError(function, requestID, codeExit,
			fmt.Sprintf("RequestId: %s Error: Runtime exited without providing a reason", requestID))
	case e.startErr != nil:
		return platformError(function, requestID, codeEntrypoint, fmt.Sprintf("RequestId: %s Error: %v", requestID, e.startErr))
	case e.state == nil || e.state.Success():
		return platformError(function, requestID, codeExit,
			fmt.Sprintf("RequestId: %s Error: Runtime exited without providing a reason", requestID))
	default:
		return platformError(function, requestID, codeExit,
			fmt.Sprintf("RequestId: %s Error: Runtime exited with error: %s", requestID, e.state))
	}
}

// reported wraps what a runtime posted to .../error. The type is read from the header, else from the body.
func reported(function, requestID, headerType string, body []byte) *FunctionError {
	errorType := headerType
	if errorType == "" {
		var said struct {
			Type string `json:"errorType"`
		}
		// A body that is no JSON has no type; it is passed on as it is.
		if json.Unmarshal(body, &said) == nil {
			errorType = said.Type
		}
	}
	if errorType == "" {
		errorType = "Runtime.UnknownReason"
	}
	return &FunctionError{Function: function, RequestID: requestID, Type: errorType, Payload: body}
}
