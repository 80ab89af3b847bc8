package lambda

import (
	"fmt"
	"sync"
	"time"
)

// The reasons of a throttle, as AWS spells them.
const (
	ThrottleReserved     = "ReservedFunctionConcurrentInvocationLimitExceeded"
	ThrottleAccount      = "ConcurrentInvocationLimitExceeded"
	ThrottleRateReserved = "ReservedFunctionInvocationRateLimitExceeded"
	ThrottleRate         = "FunctionInvocationRateLimitExceeded"
)

func throttled(function, reason string) *Error {
	return &Error{Code: CodeThrottled, Function: function, Reason: "Rate Exceeded.", Throttle: reason}
}

// account is the concurrency that all functions share.
type account struct {
	limit int

	mu       sync.Mutex // guards what follows; taken last
	reserved int        // by all functions together
	used     int        // by functions without a reservation
}

// take asks for one invocation of what is unreserved.
func (a *account) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used >= a.limit-a.reserved {
		return false
	}
	a.used++
	return true
}

func (a *account) give() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used--
}

// change replaces one reservation by another, unless too little would stay unreserved.
func (a *account) change(from, to int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	reserved, least := a.reserved-from+to, min(minUnreserved, a.limit)
	if to > from && a.limit-reserved < least {
		return fmt.Errorf("reserving %d decreases the account's unreserved concurrency below its minimum value of %d", to, least)
	}
	a.reserved = reserved
	return nil
}

// bucket is a token bucket: per tokens within window, refilled evenly. The zero bucket has no limit. Its user guards it.
type bucket struct {
	per    int
	window time.Duration
	tokens float64
	at     time.Time // of tokens; zero: full
}

func (b *bucket) take(now time.Time) bool {
	if b.per == 0 {
		return true
	}
	if b.at.IsZero() {
		b.tokens = float64(b.per)
	} else {
		refill := float64(b.per) * now.Sub(b.at).Seconds() / b.window.Seconds()
		b.tokens = min(float64(b.per), b.tokens+refill)
	}
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// SetReserved reserves concurrency for a function, as PutFunctionConcurrency does; 0 lets it run no more. It fails with
// CodeNotFound, and with CodeInvalidConfig when too little would stay for the others.
func (h *Host) SetReserved(name string, n int) error { return h.reserve(name, n) }

// ClearReserved makes a function share what is unreserved, as DeleteFunctionConcurrency does.
func (h *Host) ClearReserved(name string) error { return h.reserve(name, noReservation) }

// Reserved returns a function's reserved concurrency; ok is false when it has none.
func (h *Host) Reserved(name string) (n int, ok bool, err error) {
	f, err := h.function(name)
	if err != nil {
		return 0, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(0, f.reserved), f.reserved != noReservation, nil
}

// noReservation is what function.reserved is without one.
const noReservation = -1

func (h *Host) reserve(name string, n int) error {
	f, err := h.function(name)
	if err != nil {
		return err
	}
	if n < noReservation {
		return &Error{Code: CodeInvalidConfig, Function: name, Reason: fmt.Sprintf("reserved concurrency %d is below 0", n)}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := h.account.change(max(0, f.reserved), max(0, n)); err != nil {
		return &Error{Code: CodeInvalidConfig, Function: name, Reason: err.Error()}
	}
	f.reserved = n
	f.rate = f.newRate()
	return nil
}
