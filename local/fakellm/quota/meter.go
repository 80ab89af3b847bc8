package quota

import (
	"math"
	"time"
)

// Cause names the quota that refused a call.
type Cause string

// The causes of a refusal.
const (
	Concurrency Cause = "concurrency"
	Requests    Cause = "requests"
	Tokens      Cause = "tokens"
)

// Refusal says why a call was not let in.
type Refusal struct {
	Cause Cause
	// After is when the call would be let in if no other came: exact for rates, and a second for
	// Concurrency, where nobody knows.
	After time.Duration
	// Never is set if the call asks for more than the quota ever has.
	Never bool
	// Limit, Used and Requested are in calls or tokens. Limit is a minute's quota, and Used what of it
	// is not there, so that Used and Requested are together above Limit, also where a small burst is
	// what refuses. If Never is set, Limit is the most that one call may ask for.
	Limit, Used, Requested float64
}

// Grant is what a call holds between Start and End.
type Grant struct {
	// Reserved tokens; 0 where tokens are not limited.
	Reserved float64
	at       time.Time
	renewals int
}

// Meter counts what is used of one set of limits. Its zero value is unused. It is not safe for
// concurrent use, and times must not go back by more than a clock's adjustments.
type Meter struct {
	inFlight         int
	renewals         int
	requests, tokens window
}

// InFlight is the number of calls between Start and End.
func (m *Meter) InFlight() int { return m.inFlight }

// Renew forgets what rates have counted, as if no call had come. Calls in flight stay so, and settle
// nothing when they end: what they had reserved was of the old rates.
func (m *Meter) Renew() {
	m.requests, m.tokens = window{}, window{}
	m.renewals++
}

// Start lets a call in, or says why not. Nothing is charged for a refused call, unless the rate
// has CountRefused.
func (m *Meter) Start(now time.Time, l Limits, n Need) (Grant, *Refusal) {
	m.advance(now, l)
	refusal := m.refuse(now, l, n)
	if refusal != nil {
		if l.Requests.PerMinute > 0 && l.Requests.CountRefused {
			m.requests.waste(now)
		}
		return Grant{}, refusal
	}
	m.inFlight++
	if l.Requests.PerMinute > 0 {
		m.requests.take(now, 1)
	}
	g := Grant{at: now, renewals: m.renewals}
	if l.Tokens.PerMinute > 0 {
		g.Reserved = l.reserve(n)
		m.tokens.take(now, g.Reserved)
	}
	return g, nil
}

func (m *Meter) advance(now time.Time, l Limits) {
	if l.Requests.PerMinute > 0 {
		m.requests.advance(now, l.Requests)
	}
	if l.Tokens.PerMinute > 0 {
		m.tokens.advance(now, l.Tokens)
	}
}

func (m *Meter) refuse(now time.Time, l Limits, n Need) *Refusal {
	if l.Concurrency > 0 && m.inFlight >= l.Concurrency {
		return &Refusal{Cause: Concurrency, After: time.Second, Limit: float64(l.Concurrency), Used: float64(m.inFlight), Requested: 1}
	}
	for _, q := range []struct {
		cause  Cause
		rate   Rate
		window *window
		amount float64
	}{{Requests, l.Requests, &m.requests, 1}, {Tokens, l.Tokens, &m.tokens, l.reserve(n)}} {
		if q.rate.PerMinute <= 0 {
			continue
		}
		r := Refusal{Cause: q.cause, Limit: q.rate.PerMinute, Requested: q.amount}
		r.Used = math.Max(0, q.rate.PerMinute-q.window.room(q.rate))
		if q.amount > q.rate.capacity()+tiny {
			r.Never, r.Limit = true, q.rate.capacity()
			return &r
		}
		if r.After = q.window.wait(now, q.rate, q.amount); r.After > 0 {
			return &r
		}
	}
	return nil
}

// End lets a call out and settles its tokens. It returns what the call costs in tokens; 0 where
// tokens are not limited.
func (m *Meter) End(now time.Time, l Limits, g Grant, u Used) (charged float64) {
	m.inFlight--
	m.advance(now, l)
	if g.Reserved == 0 {
		return 0
	}
	charged = l.charged(g.Reserved, u)
	if l.Tokens.PerMinute > 0 && g.renewals == m.renewals {
		m.tokens.settle(now, g.at, l.Tokens, g.Reserved-charged)
	}
	return charged
}

// Left is the state of one rate as providers tell it in headers.
type Left struct {
	Limit, Remaining float64
	// Full is how long it takes until nothing is used any more.
	Full time.Duration
}

// Left tells of both rates. A rate that is not limited is the zero Left.
func (m *Meter) Left(now time.Time, l Limits) (requests, tokens Left) {
	m.advance(now, l)
	of := func(w *window, r Rate) Left {
		if r.PerMinute <= 0 {
			return Left{}
		}
		return Left{Limit: r.PerMinute, Remaining: math.Max(0, math.Floor(w.room(r)+tiny)), Full: w.full(now, r)}
	}
	return of(&m.requests, l.Requests), of(&m.tokens, l.Tokens)
}
