// Package job is the provider of jobs: what serves a request is a function of one's own in this process, not a model behind an
// endpoint. Claims, retries, cancellation, results and dead letters are those of every request.
package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// Run is one run of a job.
type Run struct {
	ID      string          // of the job: the same in every run of it, and what makes a run idempotent
	Tenant  string          // whose job it is
	Attempt int             // which run of it this is, from 1; a run that died with its worker in its first 10 s may not be counted
	Payload json.RawMessage // the JSON object that the job was sent with, byte for byte; not to be changed
}

// Func does a job. It must be idempotent: a job runs at least once, and may run again after its worker died, also where it had
// done all of its work by then.
//
// The context ends with the job's deadline, its queue's timeout, its cancellation, the loss of its claim and the
// stop of its worker. Func must return soon after: until it does it holds its slot, and its process.
//
// What it returns is the job's result, one JSON value in UTF-8 of at most 1000 levels; nil is null. An error has the job run again after a wait, until it has failed
// timing.max_receives times: then it is dead-lettered. [Fatal] and [After] say otherwise. The error's text is told to whoever asks for
// the job's end, so it must hold no secret. A panic is an error as any other; its value is logged nowhere.
type Func func(ctx context.Context, r Run) (result []byte, err error)

// Fatal is an error that no repeat can mend: the job ends with it, and is not dead-lettered. Fatal(nil) is nil.
func Fatal(err error) error { return verdictOf(err, verdict{isFatal: true}) }

// After is an error after which the job runs again in d at the earliest. After(d, nil) is nil.
func After(d time.Duration, err error) error { return verdictOf(err, verdict{after: d}) }

func verdictOf(err error, v verdict) error {
	if err == nil {
		return nil
	}
	v.error = err
	return v
}

type verdict struct {
	error
	isFatal bool
	after   time.Duration
}

func (v verdict) Unwrap() error { return v.error }

// Functions are a worker's functions by their names. It is a [provider.Provider] that makes no connection.
type Functions struct {
	byName map[string]Func
	log    *slog.Logger
}

var (
	_ provider.Provider  = Functions{}
	_ provider.Selective = Functions{}
)

// New makes a worker's functions; none is a worker that hands every job on.
func New(byName map[string]Func, log *slog.Logger) Functions { return Functions{byName, log} }

// Has reports whether there is a function of that name.
func (f Functions) Has(name string) bool { return f.byName[name] != nil }

// Call runs the function that req names.
func (f Functions) Call(ctx context.Context, req provider.Request) (*provider.Response, error) {
	do := f.byName[req.ModelID]
	if do == nil {
		return nil, &provider.Error{Class: provider.TargetFatal, Code: llmq.CodeUnknownJob, Unsent: true, Message: "this worker has no such function"}
	}
	out, err := f.try(ctx, do, Run{ID: req.ID, Tenant: req.Tenant, Attempt: req.Attempt, Payload: req.Body})
	switch {
	case err != nil:
		return nil, failure(ctx, err)
	case out == nil:
		out = []byte("null")
	case !egress.Sound(out): // as of a model's reply: what is stored must be readable by whoever asks for it
		return nil, failure(ctx, Fatal(errors.New("its result is no JSON value in UTF-8 of at most 1000 levels")))
	}
	return &provider.Response{Status: 200, ContentType: "application/json", Body: out}, nil
}

// try runs a function, and makes an error of its panic. The value may hold a piece of the payload; its type may not.
func (f Functions) try(ctx context.Context, do Func, r Run) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			f.log.Error("a job's function panicked", "request_id", r.ID, "panic_type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			out, err = nil, fmt.Errorf("it panicked with a %T", p)
		}
	}()
	return do(ctx, r)
}

// failure is what an error means for what follows. The function's own words are told to its caller and not logged.
func failure(ctx context.Context, err error) *provider.Error {
	e := &provider.Error{Class: provider.Retryable, Code: llmq.CodeJobFailed, Message: provider.CleanMessage(err.Error())}
	if e.Message == "" {
		e.Message = "it failed without a word"
	}
	v, _ := errors.AsType[verdict](err)
	switch e.RetryAfter = v.after; {
	case v.isFatal:
		e.Class = provider.CallFatal
	case ctx.Err() != nil: // whatever it says then, it was stopped
		e.Err = ctx.Err()
	}
	return e
}
