package broker

import "fmt"

// Code names what went wrong, by the name of the error's shape in the SQS API. The protocol layer adds the old query code and the
// HTTP status.
type Code string

// The codes the broker and the protocol layer use. Those of the first group are shapes of the API model, so SDKs know them as
// types; those of the second are answered by AWS's common front and reach a caller as a plain code.
const (
	BatchEntryIDsNotDistinct Code = "BatchEntryIdsNotDistinct"
	BatchRequestTooLong      Code = "BatchRequestTooLong"
	EmptyBatchRequest        Code = "EmptyBatchRequest"
	InvalidAddress           Code = "InvalidAddress"
	InvalidAttributeName     Code = "InvalidAttributeName"
	InvalidAttributeValue    Code = "InvalidAttributeValue"
	InvalidBatchEntryID      Code = "InvalidBatchEntryId"
	InvalidMessageContents   Code = "InvalidMessageContents"
	MessageNotInflight       Code = "MessageNotInflight"
	OverLimit                Code = "OverLimit"
	PurgeQueueInProgress     Code = "PurgeQueueInProgress"
	QueueDeletedRecently     Code = "QueueDeletedRecently"
	QueueDoesNotExist        Code = "QueueDoesNotExist"
	QueueNameExists          Code = "QueueNameExists"
	ReceiptHandleIsInvalid   Code = "ReceiptHandleIsInvalid"
	ResourceNotFound         Code = "ResourceNotFoundException"
	TooManyEntries           Code = "TooManyEntriesInBatchRequest"
	UnsupportedOperation     Code = "UnsupportedOperation"

	InvalidParameterValue Code = "InvalidParameterValueException"
	MissingParameter      Code = "MissingRequiredParameterException"
	Unavailable           Code = "ServiceUnavailableException"
)

// Error is what every operation of the broker fails with, never wrapped. Message is meant for the caller and never holds a message body or an
// attribute's value.
type Error struct {
	Code    Code
	Message string
}

// Error returns the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Fail returns an *Error with a formatted message.
func Fail(code Code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// invalidValue is the answer to a parameter that is out of range, worded as SQS words it.
func invalidValue(parameter string, value any, reason string) error {
	return Fail(InvalidParameterValue, "Value %v for parameter %s is invalid. Reason: %s", value, parameter, reason)
}
