package lambda

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAccount_FunctionsShareWhatIsUnreserved(t *testing.T) {
	t.Parallel()
	a := &account{limit: 1000}
	if err := a.change(0, 900); err != nil {
		t.Fatal(err)
	}
	if err := a.change(0, 1); err == nil {
		t.Error("99 would have stayed unreserved")
	}
	taken := 0
	for a.take() {
		taken++
	}
	a.give()
	if taken != 100 || !a.take() || a.take() {
		t.Errorf("%d could be taken", taken)
	}
	if err := a.change(900, 0); err != nil || !a.take() {
		t.Errorf("after the reservation was given up: %v", err)
	}
	small := &account{limit: 10}
	if err := small.change(0, 1); err == nil {
		t.Error("a new account can reserve nothing")
	}
}

// Each invocation is counted once, whatever reservation the function has when it ends.
func TestReserved_ChangesWhileInvocationsRun(t *testing.T) {
	t.Parallel()
	h := setup(t, func(o *Options, c *FunctionConfig) { o.AccountConcurrency, c.Concurrency = 200, 0 })
	used := func() int {
		h.account.mu.Lock()
		defer h.account.mu.Unlock()
		return h.account.used
	}
	g := newGate(t)
	running := make(chan Result, 2)
	begin := func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }
	go begin()
	first := g.accept()
	if err := h.SetReserved("fn", 5); err != nil {
		t.Fatal(err)
	}
	go begin()
	second := g.accept()
	if n := used(); n != 1 {
		t.Errorf("%d of the account used, want the one that began without a reservation", n)
	}
	send(t, first, "c")
	<-running
	if err := h.ClearReserved("fn"); err != nil {
		t.Fatal(err)
	}
	send(t, second, "c")
	<-running
	if n := used(); n != 0 || h.Stats("fn").InFlight != 0 {
		t.Errorf("%d of the account used, %d in flight, want none", n, h.Stats("fn").InFlight)
	}
	if err := h.SetReserved("fn", -2); !errors.Is(err, CodeInvalidConfig) {
		t.Errorf("got %v", err)
	}
	if err := h.SetReserved("nobody", 1); !errors.Is(err, CodeNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestInvoke_ColdStartsAreLimited(t *testing.T) {
	t.Parallel()
	h := setup(t, func(o *Options, c *FunctionConfig) { o.ScaleUp, c.Concurrency = 2, 0 })
	g := newGate(t)
	running := make(chan Result, 2)
	for range 2 {
		go func() { running <- invoke(t, h, map[string]any{"op": "wait", "gate": g.addr()}) }()
	}
	first, second := g.accept(), g.accept()
	_, err := h.Invoke(t.Context(), "fn", nil, InvokeOptions{})
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeThrottled || e.Throttle != ThrottleRate {
		t.Errorf("got %v", err)
	}
	send(t, first, "c")
	send(t, second, "c")
	<-running
	<-running
	invoke(t, h, map[string]any{"op": "echo"}) // a warm instance is no cold start
}

func TestInvoke_RequestRateIsTenTimesTheConcurrency(t *testing.T) {
	t.Parallel()
	h := setup(t, func(o *Options, _ *FunctionConfig) { o.RequestRate = true })
	var reasons []string
	for range 30 {
		_, err := h.Invoke(t.Context(), "fn", nil, InvokeOptions{})
		var e *Error
		if errors.As(err, &e) {
			reasons = append(reasons, e.Throttle)
		}
	}
	if len(reasons) < 10 || reasons[0] != ThrottleRateReserved {
		t.Errorf("30 calls at once met %d throttles, %v", len(reasons), reasons)
	}
}

func TestBucket_RefillsEvenly(t *testing.T) {
	t.Parallel()
	b := bucket{per: 1000, window: 10 * time.Second}
	now := time.Now()
	drain := func() (n int) {
		for b.take(now) {
			n++
		}
		return n
	}
	got := []int{drain()}
	for _, wait := range []time.Duration{time.Second, 10 * time.Millisecond, time.Hour} {
		now = now.Add(wait)
		got = append(got, drain())
	}
	if diff := cmp.Diff([]int{1000, 100, 1, 1000}, got); diff != "" {
		t.Error(diff)
	}
	if none := (bucket{}); !none.take(now) {
		t.Error("the zero bucket has a limit")
	}
}

func TestNew_RefusesBadOptions(t *testing.T) {
	t.Parallel()
	tests := []func(*Options){
		func(o *Options) { o.Region = "" },
		func(o *Options) { o.InitTimeout = 0 },
		func(o *Options) { o.StopGrace = -1 },
		func(o *Options) { o.IdleTimeout = -1 },
		func(o *Options) { o.AccountConcurrency = 0 },
		func(o *Options) { o.ScaleUp = -1 },
		func(o *Options) { o.AsyncRetries = make([]time.Duration, 3) },
	}
	for i, edit := range tests {
		opts := DefaultOptions()
		edit(&opts)
		if _, err := New(opts); err == nil {
			t.Errorf("%d: accepted", i)
		}
	}
	h, err := New(DefaultOptions())
	if err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	h.Close(t.Context())
}
