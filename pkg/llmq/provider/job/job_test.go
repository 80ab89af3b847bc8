package job_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/job"
)

func call(ctx context.Context, do job.Func) (*provider.Response, *provider.Error) {
	return logged(ctx, do, slog.New(slog.DiscardHandler))
}

func logged(ctx context.Context, do job.Func, log *slog.Logger) (*provider.Response, *provider.Error) {
	f := job.New(map[string]job.Func{"x": do}, log)
	resp, err := f.Call(ctx, provider.Request{Op: llmq.OpJob, ModelID: "x", Body: []byte(`{"a":1}`), Tenant: "team", ID: "j-1", Attempt: 2})
	pe, _ := errors.AsType[*provider.Error](err)
	return resp, pe
}

func TestCall_GivesTheJobAndTakesItsResult(t *testing.T) {
	t.Parallel()
	resp, err := call(t.Context(), func(_ context.Context, r job.Run) ([]byte, error) {
		if diff := cmp.Diff(job.Run{ID: "j-1", Tenant: "team", Attempt: 2, Payload: []byte(`{"a":1}`)}, r); diff != "" {
			t.Errorf("the function got (-want +got):\n%s", diff)
		}
		return []byte(`[ 1 ]`), nil
	})
	if err != nil || string(resp.Body) != `[ 1 ]` || resp.Status != 200 {
		t.Errorf("%+v, %v", resp, err)
	}
	if resp, err := call(t.Context(), func(context.Context, job.Run) ([]byte, error) { return nil, nil }); err != nil || string(resp.Body) != "null" {
		t.Errorf("no result is %+v, %v", resp, err)
	}
}

// gives is a function whose result is text.
func gives(text string) job.Func {
	return func(context.Context, job.Run) ([]byte, error) { return []byte(text), nil }
}

const noResult = "its result is no JSON value in UTF-8 of at most 1000 levels"

func TestCall_WhatAnErrorMeans(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		do    job.Func
		class provider.Class
		after time.Duration
		says  string
	}{
		"an error":     {func(context.Context, job.Run) ([]byte, error) { return nil, boom }, provider.Retryable, 0, "boom"},
		"fatal":        {func(context.Context, job.Run) ([]byte, error) { return nil, errors.Join(job.Fatal(boom)) }, provider.CallFatal, 0, "boom"},
		"later":        {func(context.Context, job.Run) ([]byte, error) { return nil, job.After(time.Minute, boom) }, provider.Retryable, time.Minute, "boom"},
		"a panic":      {func(context.Context, job.Run) ([]byte, error) { panic("secret") }, provider.Retryable, 0, "it panicked with a string"},
		"no JSON":      {gives("done"), provider.CallFatal, 0, noResult},
		"empty":        {gives(""), provider.CallFatal, 0, noResult},
		"blank":        {gives(" \n"), provider.CallFatal, 0, noResult},
		"not in UTF-8": {gives("\"\xff\""), provider.CallFatal, 0, noResult},
		"too deep":     {gives(strings.Repeat("[", 9999) + strings.Repeat("]", 9999)), provider.CallFatal, 0, noResult}, // json.Valid takes it
		"without word": {func(context.Context, job.Run) ([]byte, error) { return nil, errors.New("") }, provider.Retryable, 0, "it failed without a word"},
		// A time-out of the function's own says nothing of the job's.
		"own time-out": {func(context.Context, job.Run) ([]byte, error) { return nil, context.DeadlineExceeded }, provider.Retryable, 0, "context deadline exceeded"},
	} {
		resp, err := call(t.Context(), tc.do)
		if resp != nil || err == nil || err.Class != tc.class || err.RetryAfter != tc.after || err.Message != tc.says || err.Code != llmq.CodeJobFailed || err.Err != nil {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
	}
	if job.Fatal(nil) != nil || job.After(time.Second, nil) != nil {
		t.Error("no error is one")
	}
}

func TestCall_AStoppedFunctionIsToldApart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err := call(ctx, func(ctx context.Context, _ job.Run) ([]byte, error) { return nil, errors.New("connection closed") })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// SEC22: neither a panic's value nor a function's words are logged.
func TestCall_LogsNoPayload(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, nil))
	_, _ = logged(t.Context(), func(context.Context, job.Run) ([]byte, error) { panic("MARKED") }, log)
	_, _ = logged(t.Context(), func(context.Context, job.Run) ([]byte, error) { return nil, errors.New("MARKED") }, log)
	if !strings.Contains(b.String(), "panic_type=string") || strings.Contains(b.String(), "MARKED") {
		t.Errorf("logged: %s", b.String())
	}
}

func TestFunctions_WhatTheyLack(t *testing.T) {
	t.Parallel()
	f := job.New(nil, slog.New(slog.DiscardHandler))
	_, err := f.Call(t.Context(), provider.Request{ModelID: "x"})
	if f.Has("x") || !errors.Is(err, llmq.CodeUnknownJob) {
		t.Errorf("%v", err)
	}
}
