package sqs

import (
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/llm-queue/llmq/local/cloud/sqs/internal/broker"
)

// The codes of errors that only the protocol layer makes; no shapes of the SQS model, as on AWS.
const (
	entityTooLarge        broker.Code = "RequestEntityTooLargeException"
	incompleteSignature   broker.Code = "IncompleteSignatureException"
	internalFailure       broker.Code = "InternalFailure"
	methodNotAllowed      broker.Code = "MethodNotAllowedException"
	missingAuthentication broker.Code = "MissingAuthenticationTokenException"
	requestThrottled      broker.Code = "RequestThrottled" // a shape of the model, but only a fault makes it here
	serialization         broker.Code = "SerializationException"
	unknownOperation      broker.Code = "UnknownOperationException"
	unsupportedMedia      broker.Code = "UnsupportedMediaTypeException"
)

func fault(code broker.Code, message string) error { return broker.Fail(code, "%s", message) }

// wireError is how an error of a code goes over the wire.
type wireError struct {
	namespace string // of the shape
	query     string // code in the old query protocol: what SDKs return as ErrorCode
	status    int
}

const (
	modelled = "com.amazonaws.sqs#"
	common   = "com.amazon.coral.service#" // AWS's front, which answers what the model doesn't name
	oldName  = "AWS.SimpleQueueService."
)

// onWire returns how a code goes over the wire. Codes and status are those of the API model; a code it doesn't list keeps its name.
func onWire(code broker.Code) wireError {
	name := string(code)
	switch code {
	case broker.BatchEntryIDsNotDistinct, broker.BatchRequestTooLong, broker.EmptyBatchRequest, broker.InvalidBatchEntryID,
		broker.MessageNotInflight, broker.QueueDeletedRecently, broker.TooManyEntries, broker.UnsupportedOperation:
		return wireError{modelled, oldName + name, http.StatusBadRequest}
	case broker.PurgeQueueInProgress:
		return wireError{modelled, oldName + name, http.StatusForbidden}
	case broker.QueueDoesNotExist:
		return wireError{modelled, oldName + "NonExistentQueue", http.StatusBadRequest}
	case broker.QueueNameExists:
		return wireError{modelled, "QueueAlreadyExists", http.StatusBadRequest}
	case broker.InvalidAttributeName, broker.InvalidAttributeValue, broker.InvalidMessageContents:
		return wireError{modelled, name, http.StatusBadRequest}
	case broker.InvalidAddress, broker.ReceiptHandleIsInvalid, broker.ResourceNotFound:
		return wireError{modelled, name, http.StatusNotFound}
	case broker.OverLimit, requestThrottled:
		return wireError{modelled, name, http.StatusForbidden}

	case broker.MissingParameter:
		return wireError{common, "MissingParameter", http.StatusBadRequest}
	case missingAuthentication:
		return wireError{common, strings.TrimSuffix(name, "Exception"), http.StatusForbidden}
	case methodNotAllowed:
		return wireError{common, strings.TrimSuffix(name, "Exception"), http.StatusMethodNotAllowed}
	case entityTooLarge:
		return wireError{common, strings.TrimSuffix(name, "Exception"), http.StatusRequestEntityTooLarge}
	case unsupportedMedia:
		return wireError{common, strings.TrimSuffix(name, "Exception"), http.StatusUnsupportedMediaType}
	case broker.Unavailable:
		return wireError{common, strings.TrimSuffix(name, "Exception"), http.StatusServiceUnavailable}
	case internalFailure:
		return wireError{common, name, http.StatusInternalServerError}
	case serialization, unknownOperation:
		return wireError{common, name, http.StatusBadRequest}
	case broker.InvalidParameterValue, incompleteSignature:
		return wireError{common, strings.TrimSuffix(name, "Exception"), http.StatusBadRequest}
	}
	return wireError{common, name, http.StatusBadRequest}
}

// senderFault tells whether the caller is to blame.
func (e wireError) senderFault() bool { return e.status < http.StatusInternalServerError }

// asError returns the broker.Error that every error here is; anything else is a fault of this server and told as such.
func asError(err error) *broker.Error {
	if e, ok := errors.AsType[*broker.Error](err); ok {
		return e
	}
	return &broker.Error{Code: internalFailure, Message: "An internal error occurred."}
}

// writeError answers with an error, and returns the status and the code it wrote.
func writeError(w http.ResponseWriter, err error) (status int, code string) {
	e := asError(err)
	wire := onWire(e.Code)
	if r, ok := errors.AsType[*refused](err); ok && r.status != 0 {
		wire.status = r.status
	}
	blame := "Sender"
	if !wire.senderFault() {
		blame = "Receiver"
	}
	body, marshalErr := json.Marshal(struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}{wire.namespace + string(e.Code), strings.ToValidUTF8(e.Message, "\uFFFD")})
	if marshalErr != nil {
		body = nil // valid text always encodes; the header still tells the code
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Amzn-Query-Error", wire.query+";"+blame)
	w.WriteHeader(wire.status)
	_, _ = w.Write(body) // fails only when the caller has left
	return wire.status, string(e.Code)
}
