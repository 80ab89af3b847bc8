package lambda

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeRuns is an Invoke that gives the next of its outcomes and notes when it was called.
type fakeRuns struct {
	began time.Time
	ends  []any // "" for success, a text for a function error, or an error
	at    []string
	ids   map[string]bool
}

func (r *fakeRuns) invoke(_ context.Context, _ string, _ []byte, opts InvokeOptions) (Result, error) {
	end := r.ends[len(r.at)]
	r.at = append(r.at, time.Since(r.began).String())
	r.ids[opts.requestID] = true
	if err, ok := end.(error); ok {
		return Result{}, err
	}
	result := Result{ErrorType: end.(string)}
	if result.ErrorType != "" {
		result.FunctionError = functionErrorHeader
	}
	return result, nil
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestAsync_RetriesAndGivesUp(t *testing.T) {
	t.Parallel()
	throttle := throttled("fn", ThrottleAccount)
	many := make([]any, 1000)
	for i := range many {
		many[i] = throttle
	}
	tests := []struct {
		name     string
		ends     []any
		config   AsyncConfig
		wantAt   []string
		wantEnd  string // condition
		attempts int
	}{
		{name: "success", ends: []any{""}, wantAt: []string{"0s"}},
		{name: "one error", ends: []any{"E", ""}, wantAt: []string{"0s", "1m0s"}},
		{name: "errors", ends: []any{"E", "E", "E"}, wantAt: []string{"0s", "1m0s", "3m0s"}, wantEnd: EventRetriesExhausted, attempts: 3},
		{name: "no retries", ends: []any{"E"}, config: AsyncConfig{NoRetries: true}, wantAt: []string{"0s"}, wantEnd: EventRetriesExhausted, attempts: 1},
		{name: "throttles", ends: []any{throttle, throttle, throttle, ""}, wantAt: []string{"0s", "1s", "3s", "7s"}},
		{name: "throttles are no retries", ends: []any{throttle, "E", throttle, "E", ""}, wantAt: []string{"0s", "1s", "1m1s", "1m3s", "3m3s"}},
		{
			name: "too old", ends: many, config: AsyncConfig{MaxAge: time.Minute},
			wantAt: []string{"0s", "1s", "3s", "7s", "15s", "31s"}, wantEnd: EventAgeExceeded,
		},
		{name: "function is gone", ends: []any{&Error{Code: CodeNotFound}}, wantAt: []string{"0s"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs := &fakeRuns{began: time.Now(), ends: tt.ends, ids: map[string]bool{}}
				q := newAsyncQueue(runs.invoke, DefaultOptions().AsyncRetries, discard())
				var ended []AsyncFailure
				if tt.config.MaxAge == 0 {
					tt.config.MaxAge = maxEventAge
				}
				tt.config.OnFailure = func(f AsyncFailure) { ended = append(ended, f) }
				q.add(event{function: "fn", requestID: "id", payload: []byte("{}"), config: tt.config, since: time.Now()}, InvokeOptions{requestID: "id"}, false)
				q.wait()
				if diff := cmp.Diff(tt.wantAt, runs.at); diff != "" {
					t.Errorf("runs: %s", diff)
				}
				if len(runs.ids) != 1 || !runs.ids["id"] {
					t.Errorf("request ids %v", runs.ids)
				}
				switch {
				case tt.wantEnd == "" && len(ended) != 0:
					t.Errorf("given up: %+v", ended)
				case tt.wantEnd != "" && (len(ended) != 1 || ended[0].Condition != tt.wantEnd || ended[0].Attempts != tt.attempts || string(ended[0].Payload) != "{}"):
					t.Errorf("got %+v", ended)
				}
			})
		})
	}
}

func TestAsync_CloseDropsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := &fakeRuns{began: time.Now(), ends: []any{"E", ""}, ids: map[string]bool{}}
		q := newAsyncQueue(runs.invoke, DefaultOptions().AsyncRetries, discard())
		q.add(event{since: time.Now(), config: AsyncConfig{MaxAge: maxEventAge}}, InvokeOptions{}, false)
		synctest.Wait()
		q.close()
		q.wait()
		if len(runs.at) != 1 || time.Since(runs.began) != 0 {
			t.Errorf("runs at %v", runs.at)
		}
		if q.add(event{}, InvokeOptions{}, false) {
			t.Error("a closed queue takes events")
		}
	})
}

func TestInvokeAsync_WithoutConcurrencyGoesToTheDestination(t *testing.T) {
	t.Parallel()
	ended := make(chan AsyncFailure, 1)
	h := setup(t, func(_ *Options, c *FunctionConfig) { c.Async.OnFailure = func(f AsyncFailure) { ended <- f } })
	if err := h.SetReserved("fn", 0); err != nil {
		t.Fatal(err)
	}
	id, err := h.InvokeAsync("fn", []byte(`{"a":1}`), InvokeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := AsyncFailure{Function: "fn", RequestID: id, Payload: []byte(`{"a":1}`), Condition: EventZeroReserved}
	if diff := cmp.Diff(want, <-ended); diff != "" {
		t.Error(diff)
	}
}

func TestInvokeAsync_FailureOfARealFunctionReachesTheDestination(t *testing.T) {
	t.Parallel()
	ended := make(chan AsyncFailure, 1)
	h := setup(t, func(o *Options, c *FunctionConfig) {
		o.AsyncRetries = []time.Duration{time.Millisecond, time.Millisecond}
		c.Async.OnFailure = func(f AsyncFailure) { ended <- f }
	})
	if _, err := h.InvokeAsync("fn", []byte(`{"op":"error","text":"no"}`), InvokeOptions{}); err != nil {
		t.Fatal(err)
	}
	f := <-ended
	if f.Attempts != 3 || f.Condition != EventRetriesExhausted || f.Last.ErrorType != "errorString" || f.Last.RequestID != f.RequestID {
		t.Errorf("got %+v", f)
	}
	if s := h.Stats("fn"); s.Invocations != 3 || s.Errors != 3 {
		t.Errorf("stats %+v", s)
	}
}
