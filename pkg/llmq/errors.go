package llmq

import (
	"errors"
	"fmt"
	"time"
)

// Code tells machines why a request ended without a reply. Codes are API: they
// are stable, and docs/ERRORS.md is made from [Codes].
type Code string

// Error makes a Code usable as a target of errors.Is.
func (c Code) Error() string { return string(c) }

// The codes. What each means and what to do stands in [Codes].
const (
	CodeInvalidRequest      Code = "invalid_request"
	CodeInvalidJSON         Code = "invalid_json"
	CodeUnsupported         Code = "unsupported_feature"
	CodeInvalidKey          Code = "invalid_api_key"
	CodeKeyRevoked          Code = "key_revoked"
	CodeForbidden           Code = "forbidden"
	CodeUnknownRoute        Code = "unknown_route"
	CodeMethodNotAllowed    Code = "method_not_allowed"
	CodeUnsupportedMedia    Code = "unsupported_media_type"
	CodeTooLarge            Code = "request_too_large"
	CodeModelNotFound       Code = "model_not_found"
	CodeCallNotFound        Code = "call_not_found"
	CodeModelNotConfigured  Code = "model_not_configured"
	CodeWrongWire           Code = "wrong_wire"
	CodeIdempotencyMismatch Code = "idempotency_mismatch"
	CodeResultExpired       Code = "result_expired"
	CodeTimeout             Code = "timeout"
	CodeExpired             Code = "expired"
	CodeCancelled           Code = "cancelled"
	CodeRateLimited         Code = "rate_limited"
	CodeNoCapacity          Code = "no_capacity"
	CodeInsufficientQuota   Code = "insufficient_quota"
	CodeQueueUnavailable    Code = "queue_unavailable"
	CodeProviderRejected    Code = "provider_rejected"
	CodeProviderError       Code = "provider_error"
	CodeProviderAuth        Code = "provider_auth_failed"
	CodeBadEnvelope         Code = "bad_envelope"
	CodeNewerEnvelope       Code = "newer_envelope"
	CodeWrongQueue          Code = "wrong_queue"
	CodeSenderNotAllowed    Code = "sender_not_allowed"
	CodeStreamBroken        Code = "stream_broken"
	CodeWorkerCrash         Code = "worker_crash"
	CodeUnknownJob          Code = "unknown_job"
	CodeJobFailed           Code = "job_failed"
	CodeConfiguration       Code = "configuration"
	CodeInternal            Code = "internal_error"
)

// CodeInfo is what a code promises.
type CodeInfo struct {
	Code   Code
	Status int    // HTTP status at the door
	Retry  bool   // the same request may succeed later; the door then says x-should-retry: true and Retry-After
	Means  string // what happened, for people
	Do     string // what the caller or the operator should do
}

// Codes lists every code in the order of docs/ERRORS.md.
func Codes() []CodeInfo { return append([]CodeInfo(nil), codes...) }

// codes is the one table of errors (FEATURES A17). Only what may succeed unchanged
// is retryable: an SDK repeats the whole request on a true.
var codes = []CodeInfo{
	{CodeInvalidRequest, 400, false, "A field, header or id of the request is missing or not of its form, or the call needs more tokens at once than its budget ever holds.", "Mend the field that the error names; ask for less output where it is too large."},
	{CodeInvalidJSON, 400, false, "The body is not one JSON value, names a member twice, or holds text that is not UTF-8.", "Mend the body at the place that the error names."},
	{CodeUnsupported, 400, false, "The request asks for something that this release does not serve.", "Leave the named field out; see the known gaps in the README."},
	{CodeInvalidKey, 401, false, "The key is missing, unknown or expired.", "Send the key as Authorization: Bearer KEY."},
	{CodeKeyRevoked, 401, false, "The key was revoked, before the call or while it was queued.", "Use another key; GET /keys of the admin API says when it was revoked and by whom."},
	{CodeForbidden, 403, false, "The key may not do this, or the request came from where none may come from.", "Use a key with the right scope, model and lane, and a host name that this door answers to."},
	{CodeUnknownRoute, 404, false, "No route has this path.", "Check the base URL; the error lists the paths."},
	{CodeMethodNotAllowed, 405, false, "The path is right, the method is not.", "Use the method in the Allow header."},
	{CodeUnsupportedMedia, 415, false, "The body is compressed or is not JSON, or Accept asks for a reply that is not.", "Send Content-Type: application/json and no Content-Encoding; with an invocation, an Accept that takes application/json."},
	{CodeTooLarge, 413, false, "The body is larger than the door takes.", "Send at most 4 MiB; put media where the provider can fetch it."},
	{CodeModelNotFound, 404, false, "No model or target of this name is configured.", "Use a name of GET /v1/models."},
	{CodeCallNotFound, 404, false, "No call of this id is known to the key's tenant: it was never submitted, or more than a day ago, or its producer's message waits for its first worker.", "Check the id, and the tenant of the key."},
	{CodeModelNotConfigured, 500, false, "The door knows the model, the worker that got the call does not.", "Deploy the same configuration to both."},
	{CodeWrongWire, 400, false, "The model does not speak the dialect of this path.", "Use the path that the error names."},
	{CodeIdempotencyMismatch, 422, false, "The id was used before for another body or operation.", "Use a new Idempotency-Key for a new request."},
	{CodeResultExpired, 410, false, "The request was done, but its result is no longer stored.", "Send it again under a new id if you still want it."},
	{CodeTimeout, 504, false, "No reply came before the deadline or the end of the door's wait; a provider may have been called.", "Where the message offers it, send the same Idempotency-Key again to take up the running call; else ask for a longer timeout under a new id."},
	{CodeExpired, 504, false, "The deadline passed before the call was begun: no provider was called.", "Ask for a longer timeout, or raise the model's limits."},
	{CodeCancelled, 409, false, "The request was cancelled.", "Nothing; send it again under a new id if you still want it."},
	{CodeRateLimited, 429, true, "The provider throttled the call, its budget of calls or tokens is used up, or the key has made its calls of the minute.", "Wait as Retry-After says."},
	{CodeNoCapacity, 429, true, "No slot came free in the time that a live call waits for one, or the target is left alone after repeated failures (breaker).", "Wait as Retry-After says, or use a slower lane."},
	{CodeInsufficientQuota, 429, false, "The account behind the key, ours or the provider's, has no money or quota left.", "Raise the budget or pay the provider; repeating does not help."},
	{CodeQueueUnavailable, 503, true, "The queue, the state store or the keys can't be reached.", "Wait as Retry-After says; look at the alarms."},
	{CodeProviderRejected, 400, false, "The provider refused the request as wrong.", "Mend what the provider's message names."},
	{CodeProviderError, 502, false, "The provider failed, could not be reached, or answered with something that is no reply.", "Look at the target's health; send it again under a new id."},
	{CodeProviderAuth, 502, false, "The provider refused our credentials or our access to the model.", "Mend the provider's secret or access; the caller can do nothing."},
	{CodeBadEnvelope, 400, false, "A message on the queue is not a valid envelope.", "Mend the producer; the message is in the dead-letter queue with its reason."},
	{CodeNewerEnvelope, 500, false, "A message has a newer version than its workers and waited for them in vain.", "Deploy the workers before the producers."},
	{CodeWrongQueue, 400, false, "A message names a model or lane that is not its queue's.", "Send it to the queue of its model and lane."},
	{CodeSenderNotAllowed, 403, false, "A message came from a sender that is not listed.", "List the sender under producers and have it send again; nobody else can, for whose message it is can't be known."},
	{CodeStreamBroken, 502, false, "The reply broke off after its first content had been passed on; it is not made anew, since its caller has a part of it.", "Discard what came, or keep it as a part; send it again under a new id."},
	{CodeWorkerCrash, 500, false, "Workers died again and again while they ran this request, so it is not run any more.", "Look at the workers' memory and logs; the message is in the dead-letter queue."},
	{CodeUnknownJob, 404, false, "No worker of the queue has the function that the job names: it was handed back until its time was nearly over.", "Check the name, or deploy a worker that has it; the job is in the dead-letter queue, and a redrive runs it."},
	{CodeJobFailed, 500, false, "The job's function failed: for good, as it said itself, or timing.max_receives times; then the job is in the dead-letter queue.", "Look at the message and at the worker's log; mend the function and redrive, or send the job again under a new id."},
	{CodeConfiguration, 500, false, "The deployment is not configured as it must be.", "Mend what the error names and deploy again."},
	{CodeInternal, 500, false, "Something failed that should not; the log has it under the request id.", "Report it with the request id."},
}

// Info looks c up. An unknown code, which only a newer release can have stored,
// gets [CodeInternal]'s row under its own name.
func (c Code) Info() CodeInfo {
	for _, info := range codes {
		if info.Code == c {
			return info
		}
	}
	info := CodeInternal.Info()
	info.Code = c
	return info
}

// Error is how every failed request ends. errors.Is matches on its Code, so
// errors.Is(err, llmq.CodeRateLimited) works through any wrapping.
type Error struct {
	Code       Code
	Message    string        // what was wrong, in our words; the caller reads it, so no prompt, reply or key
	Field      string        // the field or header to mend; "" when there is none
	RetryAfter time.Duration // how long to wait before the same request may succeed; 0 is unknown
	Final      bool          // the same id will get this same answer, retryable or not; told by replays, never stored
	Meta       Meta          // the same fields as a success carries
	Err        error         // cause, for logs only; never shown to callers
}

// Errorf makes an Error whose message is for the caller.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// At names the field that is to be mended, and returns e.
func (e *Error) At(field string) *Error { e.Field = field; return e }

// After says when the same request may succeed, and returns e.
func (e *Error) After(d time.Duration) *Error { e.RetryAfter = d; return e }

// Because keeps the cause for the log, and returns e.
func (e *Error) Because(err error) *Error { e.Err = err; return e }

// Error is the whole story, for logs: code, message and cause.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap lets errors.Is and errors.As see the code and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Err}
}

// AsError returns err as an *Error: itself where it is one, else an
// [CodeInternal] that keeps err as its cause. A nil err gives nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Errorf(CodeInternal, "an internal error ended the request").Because(err)
}
