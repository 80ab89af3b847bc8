// Package httpapi is the door: the HTTP API in the dialects of OpenAI and Bedrock.
//
// It reads of a request only what routing needs, hands the body's bytes on as they
// came, and answers in the shape that the caller's SDK knows. What a request waits
// for and who runs it is behind [Calls].
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/internal/strictjson"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

// Calls runs requests.
type Calls interface {
	// Do returns the request's reply or an error that [llmq.AsError] understands; an
	// id that is known already is taken up, not run again. The end of ctx means that
	// this caller waits no longer; it must not cancel the request (FEATURES A5).
	// Implementations are safe for concurrent use.
	Do(ctx context.Context, r llmq.Request) (*llmq.Reply, error)
	// Stream does the same for a request whose reply is wanted while it comes. An error that is known at once is
	// returned here; ctx holds for the stream's reading too.
	Stream(ctx context.Context, r llmq.Request) (llmq.Stream, error)

	// The rest is for callers who come back by the id. A tenant's ids are its own: any other is [llmq.CodeCallNotFound],
	// and one whose end is no longer stored [llmq.CodeResultExpired].

	// Submit leaves a request and returns where it stands. An id that is known is not run again.
	Submit(ctx context.Context, r llmq.Request) (llmq.Call, error)
	// Find returns where a call stands, with its reply or error where it has ended.
	Find(ctx context.Context, tenant, id string) (llmq.Call, error)
	// Wait is Find once the call has ended, or as it stands when ctx ends.
	Wait(ctx context.Context, tenant, id string) (llmq.Call, error)
	// Withdraw cancels a call for everybody and returns where it stands then, without its reply.
	Withdraw(ctx context.Context, tenant, id string) (llmq.Call, error)
	// Follow reads a call's stream from an offset in bytes on. One that it has not come to is [llmq.CodeInvalidRequest].
	Follow(ctx context.Context, tenant, id string, at int64) (llmq.Stream, error)
}

// Timeouts are a lane's deadlines, counted from a request's arrival.
type Timeouts struct {
	Default time.Duration // when the caller names none
	Max     time.Duration // the longest that a caller may ask for
}

// Config tunes the door. Start from [DefaultConfig].
type Config struct {
	BodyLimit int64                  // bytes of a body; default 4 MiB, at least 1
	Wait      time.Duration          // longest wait for a reply before 504; default 280 s, positive
	Timeouts  map[llmq.Lane]Timeouts // one of each lane; default is what [llmq.Lane] says
}

// DefaultConfig is the configuration of a deployment that sets nothing.
func DefaultConfig() Config {
	c := Config{BodyLimit: 4 << 20, Wait: 280 * time.Second, Timeouts: map[llmq.Lane]Timeouts{}}
	for _, l := range llmq.Lanes() {
		c.Timeouts[l] = Timeouts{Default: l.DefaultTimeout(), Max: l.MaxTimeout()}
	}
	return c
}

func (c Config) faults() []error {
	var faults []error
	if c.BodyLimit < 1 {
		faults = append(faults, fmt.Errorf("Config.BodyLimit must be positive, is %d bytes", c.BodyLimit))
	}
	if c.Wait <= 0 {
		faults = append(faults, fmt.Errorf("Config.Wait must be positive, is %s", c.Wait))
	}
	for _, l := range llmq.Lanes() {
		if t := c.Timeouts[l]; t.Default <= 0 || t.Max < t.Default {
			faults = append(faults, fmt.Errorf("Config.Timeouts[%s] must be positive and Max not below Default, is %s and %s", l, t.Default, t.Max))
		}
	}
	return faults
}

// Deps are what the door works with. All are required but Timeout and Traces, and Program stands for Keys and Rates.
type Deps struct {
	Calls Calls
	Keys  *auth.Checker
	Rates Rates
	// Program is the one caller of a door that serves its own process, by a [Transport], and nobody else: no request's
	// credentials are looked at.
	Program   auth.Caller
	Catalogue llmq.Catalogue // at least one model
	// Timeout is the deadline of a model's calls that name none, counted from their arrival; 0, or nil, is the lane's.
	Timeout func(ctx context.Context, alias string, op llmq.Op, l llmq.Lane) time.Duration
	// HashID names a user or a session: the door keeps no other form of them. An empty id
	// stays empty.
	HashID func(id string) string
	Logger *slog.Logger    // gets one record a request: never a body, a key or a prompt
	Traces *tracing.Tracer // nil: no request is traced, and a trace that it is part of goes on all the same
}

func (d Deps) faults() []error {
	var faults []error
	for _, dep := range []struct {
		name    string
		missing bool
	}{
		{"Calls", d.Calls == nil},
		{"Keys", d.Keys == nil && !isSomebody(d.Program)},
		{"Rates", d.Rates == nil && !isSomebody(d.Program)},
		{"Catalogue", len(d.Catalogue.Models()) == 0},
		{"HashID", d.HashID == nil},
		{"Logger", d.Logger == nil},
	} {
		if dep.missing {
			faults = append(faults, fmt.Errorf("dependency %s is missing", dep.name))
		}
	}
	return faults
}

// Handler is the door. It is safe for concurrent use and holds no state of a request.
type Handler struct {
	cfg       Config
	calls     Calls
	keys      *auth.Checker
	rates     Rates
	program   auth.Caller // nobody, in a door that listens
	catalogue llmq.Catalogue
	timeout   func(context.Context, string, llmq.Op, llmq.Lane) time.Duration
	hashID    func(string) string
	log       *slog.Logger
	traces    *tracing.Tracer
	since     time.Time // when the models were loaded; "created" of each in GET /v1/models
	limits    strictjson.Limits
}

var _ http.Handler = (*Handler)(nil)

// New makes the door, or says everything that it lacks.
func New(cfg Config, deps Deps) (*Handler, error) {
	if faults := append(cfg.faults(), deps.faults()...); len(faults) > 0 {
		return nil, fmt.Errorf("make the door: %w", errors.Join(faults...))
	}
	return &Handler{
		cfg: cfg, calls: deps.Calls, keys: deps.Keys, rates: deps.Rates, program: deps.Program, catalogue: deps.Catalogue, timeout: deps.Timeout, hashID: deps.HashID, log: deps.Logger, traces: deps.Traces,
		since: time.Now(), limits: strictjson.Default(),
	}, nil
}

// ServeHTTP answers one request. It recovers from panics, its own and those of what
// it calls.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{w: w, r: r, path: r.URL.EscapedPath(), id: llmq.NewID(), start: time.Now(), status: http.StatusOK}
	defer h.finish(x) //nolint:contextcheck // the request carries the context
	defer func() {    //nolint:contextcheck // the request carries the context
		if v := recover(); v != nil {
			// The value may hold a piece of the body, so that only its type is told (IN8).
			h.log.ErrorContext(r.Context(), "panic in the door", "request_id", x.id, "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
			x.fail(llmq.Errorf(llmq.CodeInternal, "an internal error ended the request"))
		}
	}()
	if err := h.serve(x); err != nil { //nolint:contextcheck // the request carries the context
		x.fail(llmq.AsError(err))
	}
}

// serve finds the route and lets the caller in. Only an open route runs without a
// key; all others get an [auth.Caller] that nobody but the check fills (KT5).
func (h *Handler) serve(x *exchange) error {
	m, err := match(x.r.Method, x.path)
	x.matched = m
	if errors.Is(err, llmq.CodeUnknownRoute) {
		return err // there is nothing behind it to protect
	}
	if m.access != open {
		if authErr := h.admit(x); authErr != nil {
			return authErr // the same for a method that is not allowed
		}
	}
	if err != nil {
		return err
	}
	if m.access != open {
		if err := x.caller.May(m.access.scope()); err != nil {
			return err
		}
	}
	if m.access.counted() {
		if err := h.charge(x); err != nil {
			return err
		}
	}
	return m.serve(h, x, x.caller)
}

// finish logs the exchange: who, what, how it ended, how long it took.
func (h *Handler) finish(x *exchange) {
	level := slog.LevelInfo
	if isSomebody(h.program) {
		level = slog.LevelDebug // the log is the program's, which knows what it calls
	}
	attrs := []slog.Attr{
		slog.String("request_id", x.id), slog.String("method", llmq.Clip(x.r.Method, 16)), slog.String("route", x.matched.Path),
		slog.Int("status", x.status), slog.Int64("took_ms", time.Since(x.start).Milliseconds()),
		slog.String("tenant", x.caller.Tenant()), slog.String("key_id", x.caller.KeyID()),
	}
	if x.err != nil {
		attrs = append(attrs, slog.String("code", string(x.err.Code)))
		if x.status >= http.StatusInternalServerError {
			level = slog.LevelError
			// Not the message: it may hold a provider's, which may quote the prompt.
			attrs = append(attrs, slog.String("field", x.err.Field), slog.Any("cause", x.err.Err))
		}
	}
	h.log.LogAttrs(x.r.Context(), level, "door", attrs...)
	x.endSpan()
}
