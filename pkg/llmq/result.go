package llmq

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ResultVersion is the version of the stored result that this release writes. A
// reader refuses a newer one.
const ResultVersion = 1

// Result is the stored end of a request: a reply or an error, never both.
type Result struct {
	RID      RID
	Tenant   string // its hash is stored and compared, so that no tenant gets another's (SECURITY-DESIGN KT6)
	BodyHash string // of the request that ended so, compared with that of whoever reads it; "" is unknown
	Reply    *Reply
	Err      *Error
}

// Meta is the meta of whichever of reply and error is set.
func (r Result) Meta() Meta {
	if r.Err != nil {
		return r.Err.Meta
	}
	if r.Reply != nil {
		return r.Reply.Meta
	}
	return Meta{}
}

type resultJSON struct {
	V           int             `json:"v"`
	RID         RID             `json:"rid"`
	TenantHash  string          `json:"tenant_hash"`
	BodyHash    string          `json:"body_hash,omitempty"`
	Meta        metaJSON        `json:"meta"`
	Status      int             `json:"status,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
	Error       *errorJSON      `json:"error,omitempty"`
	Ref         *Ref            `json:"ref,omitempty"`
	Stream      bool            `json:"stream,omitempty"`
	Events      []byte          `json:"events,omitempty"` // of a stream, in base64: they need not be JSON, nor text
	Body        json.RawMessage `json:"body,omitempty"`
}

type errorJSON struct {
	Code         Code   `json:"code"`
	Message      string `json:"message"`
	Field        string `json:"field,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

type metaJSON struct {
	RequestID   string `json:"request_id"`
	Model       string `json:"model,omitempty"`
	Target      string `json:"target,omitempty"`
	Provider    string `json:"provider,omitempty"`
	ModelID     string `json:"model_id,omitempty"`
	Lane        Lane   `json:"lane,omitempty"`
	Fallback    bool   `json:"fallback_used"`
	Attempts    int    `json:"attempts"`
	Takeovers   int    `json:"takeovers,omitempty"`
	QueueWaitMS int64  `json:"queue_wait_ms"`
	ProvidedMS  int64  `json:"provider_ms"`
	Worker      string `json:"worker,omitempty"`
	Direct      bool   `json:"direct,omitempty"`
}

// MarshalJSON writes durations as whole milliseconds, as all of llmq's JSON does.
func (m Meta) MarshalJSON() ([]byte, error) { return json.Marshal(m.wire()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Meta) UnmarshalJSON(b []byte) error {
	var w metaJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("decode meta: %w", err)
	}
	*m = w.meta()
	return nil
}

func (m Meta) wire() metaJSON {
	return metaJSON{
		RequestID: m.RequestID, Model: m.Model, Target: m.Target, Provider: m.Provider, ModelID: m.ModelID, Lane: m.Lane,
		Fallback: m.Fallback, Attempts: m.Attempts, Takeovers: m.Takeovers,
		QueueWaitMS: m.QueueWait.Milliseconds(), ProvidedMS: m.Provided.Milliseconds(), Worker: m.Worker, Direct: m.Direct,
	}
}

func (w metaJSON) meta() Meta {
	return Meta{
		RequestID: w.RequestID, Model: w.Model, Target: w.Target, Provider: w.Provider, ModelID: w.ModelID, Lane: w.Lane,
		Fallback: w.Fallback, Attempts: w.Attempts, Takeovers: w.Takeovers,
		QueueWait: time.Duration(w.QueueWaitMS) * time.Millisecond, Provided: time.Duration(w.ProvidedMS) * time.Millisecond, Worker: w.Worker, Direct: w.Direct,
	}
}

// EncodeResult writes a result as JSON. The reply's body must be valid JSON, but of a stream, and is
// spliced in byte for byte; with ref set the body is left out, for it lies there.
func EncodeResult(r Result, ref *Ref) ([]byte, error) {
	if (r.Reply == nil) == (r.Err == nil) {
		return nil, fmt.Errorf("encode result %s: needs a reply or an error, and not both", r.RID)
	}
	w := resultJSON{V: ResultVersion, RID: r.RID, TenantHash: TenantHash(r.Tenant), BodyHash: r.BodyHash, Meta: r.Meta().wire(), Ref: ref}
	var body []byte
	if r.Err != nil {
		w.Error = &errorJSON{Code: r.Err.Code, Message: r.Err.Message, Field: r.Err.Field, RetryAfterMS: r.Err.RetryAfter.Milliseconds()}
	} else {
		w.Status, w.ContentType, w.Stream = r.Reply.Status, r.Reply.ContentType, r.Reply.Stream
		switch {
		case ref != nil:
		case w.Stream:
			w.Events = r.Reply.Body
		default:
			body = r.Reply.Body
		}
	}
	return spliceLast(w, "body", body)
}

// ErrAnothersResult is why a stored result was not decoded that is not the request's own, or not the tenant's (SECURITY-DESIGN KT6).
var ErrAnothersResult = errors.New("the stored result is another request's")

// DecodeResult reads what [EncodeResult] wrote, checks that it is rid's and the
// tenant's, and returns the reference where the body lies elsewhere.
func DecodeResult(b []byte, rid RID, tenant string) (Result, *Ref, error) {
	var w resultJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return Result{}, nil, fmt.Errorf("decode result %s: %w", rid, err)
	}
	if w.V < 1 || w.V > ResultVersion {
		return Result{}, nil, fmt.Errorf("decode result %s: version %d is none of this release's, 1 to %d", rid, w.V, ResultVersion)
	}
	if w.RID != rid || w.TenantHash != TenantHash(tenant) {
		return Result{}, nil, fmt.Errorf("decode result %s: %w", rid, ErrAnothersResult)
	}
	r := Result{RID: rid, Tenant: tenant, BodyHash: w.BodyHash}
	if w.Error != nil {
		r.Err = &Error{Code: w.Error.Code, Message: w.Error.Message, Field: w.Error.Field, RetryAfter: time.Duration(w.Error.RetryAfterMS) * time.Millisecond, Meta: w.Meta.meta()}
		return r, nil, nil
	}
	if w.Status == 0 || (w.Ref != nil && len(w.Body)+len(w.Events) != 0) || (w.Stream && len(w.Body) != 0) {
		return Result{}, nil, fmt.Errorf("decode result %s: it holds neither an error nor one reply", rid)
	}
	r.Reply = &Reply{Status: w.Status, ContentType: w.ContentType, Body: w.Body, Stream: w.Stream, Meta: w.Meta.meta()}
	if w.Stream {
		r.Reply.Body = w.Events
	}
	return r, w.Ref, nil
}
