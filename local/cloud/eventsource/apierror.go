package eventsource

import "net/http"

// Code names a failure of the mapping API, as AWS spells it. Codes are errors, so that errors.Is(err, CodeInUse) works.
type Code string

// The codes of the API.
const (
	CodeInvalid    Code = "InvalidParameterValueException" // a parameter that Lambda can't take
	CodeValidation Code = "ValidationException"            // a parameter outside its bounds
	CodeNotFound   Code = "ResourceNotFoundException"      // no such mapping
	CodeInUse      Code = "ResourceInUseException"         // a change of the mapping is under way
	CodeConflict   Code = "ResourceConflictException"      // the queue feeds the function already
	CodeService    Code = "ServiceException"               // the service is closed, or the queue can't be read
	codeContent    Code = "InvalidRequestContentException" // the body is not JSON
	codeUnknown    Code = "UnknownOperationException"      // no operation of that method and path
)

// Error returns the code's text.
func (c Code) Error() string { return string(c) }

// status is the HTTP status of the code.
func (c Code) status() int {
	switch c {
	case CodeNotFound, codeUnknown:
		return http.StatusNotFound
	case CodeConflict:
		return http.StatusConflict
	case CodeService:
		return http.StatusInternalServerError
	default:
		return http.StatusBadRequest
	}
}

// Error is a failure of the mapping API. Compare its code with errors.Is.
type Error struct {
	Code    Code
	Message string // as AWS words it, where that is known
}

// Error returns code and message.
func (e *Error) Error() string { return "eventsource: " + string(e.Code) + ": " + e.Message }

// Unwrap makes errors.Is(err, code) hold.
func (e *Error) Unwrap() error { return e.Code }

func invalid(message string) error { return &Error{Code: CodeInvalid, Message: message} }

func notFound() error {
	return &Error{Code: CodeNotFound, Message: "The resource you requested does not exist."}
}
