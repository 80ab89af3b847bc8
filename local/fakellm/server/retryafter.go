package server

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RetryForm is a way of telling a client to wait.
type RetryForm string

// The forms of a RetryAfter. An empty one is the wire's own: OpenAI sends RetrySeconds and
// RetryMillis, Bedrock sends nothing.
const (
	RetryNone         RetryForm = "none"
	RetrySeconds      RetryForm = "seconds"       // Retry-After: 7
	RetryFloat        RetryForm = "float"         // Retry-After: 6.532
	RetryDate         RetryForm = "date"          // Retry-After: Sun, 29 Nov 2026 12:00:07 GMT
	RetryMillis       RetryForm = "ms"            // Retry-After-Ms: 6532
	RetryAmz          RetryForm = "amz"           // X-Amz-Retry-After: 6532
	RetryReset        RetryForm = "reset"         // X-Ratelimit-Reset-Requests and -Tokens: 6.532s
	RetryResetSeconds RetryForm = "reset_seconds" // the same as 6.532, as Azure has it
)

func retryForms() []RetryForm {
	return []RetryForm{RetryNone, RetrySeconds, RetryFloat, RetryDate, RetryMillis, RetryAmz, RetryReset, RetryResetSeconds}
}

// RetryAfter is how a throttled call is told to wait, truly or not.
type RetryAfter struct {
	Form RetryForm
	// Value is sent as it is, for what no client should believe: "-1", "NaN", "99999999999", "soon".
	Value string
	// Fixed is told in place of the true wait.
	Fixed time.Duration
}

func (ra RetryAfter) validate() error {
	if ra.Form != "" && !slices.Contains(retryForms(), ra.Form) {
		return at("form", fmt.Errorf("%q: want one of %v", ra.Form, retryForms()))
	}
	if ra.Value != "" && (ra.Form == "" || ra.Form == RetryNone) {
		return at("value", fmt.Errorf("%q: needs a form that has a value", ra.Value))
	}
	if strings.ContainsAny(ra.Value, "\r\n\x00") {
		return at("value", fmt.Errorf("%q: can't be in a header", ra.Value))
	}
	if ra.Fixed < 0 {
		return at("fixed_ms", fmt.Errorf("%v: want 0 or more; Value can say less", ra.Fixed))
	}
	return nil
}

// tell sets the headers for a wait that begins now.
func (ra RetryAfter) tell(h http.Header, wi wire, now time.Time, wait time.Duration) {
	if ra.Fixed > 0 {
		wait = ra.Fixed
	}
	text := func(own string) string {
		if ra.Value != "" {
			return ra.Value
		}
		return own
	}
	float := strconv.FormatFloat(wait.Seconds(), 'f', -1, 64)
	switch ra.Form {
	case RetryNone:
	case RetrySeconds:
		h.Set("Retry-After", text(wholeSeconds(wait)))
	case RetryFloat:
		h.Set("Retry-After", text(float))
	case RetryDate:
		due := now.Add(wait)
		if rounded := due.Truncate(time.Second); rounded.Before(due) {
			due = rounded.Add(time.Second)
		}
		h.Set("Retry-After", text(due.UTC().Format(http.TimeFormat)))
	case RetryMillis:
		h.Set("Retry-After-Ms", text(millisCeil(wait)))
	case RetryAmz:
		h.Set("X-Amz-Retry-After", text(millisCeil(wait)))
	case RetryReset, RetryResetSeconds:
		own := resetText(wait)
		if ra.Form == RetryResetSeconds {
			own = float
		}
		h.Set("X-Ratelimit-Reset-Requests", text(own))
		h.Set("X-Ratelimit-Reset-Tokens", text(own))
	default: // empty
		wi.tellWait(h, wait)
	}
}

func wholeSeconds(d time.Duration) string { return itoa(int(math.Ceil(d.Seconds()))) }

func millisCeil(d time.Duration) string {
	return itoa(int((d + time.Millisecond - 1) / time.Millisecond))
}

// resetText is a duration as OpenAI writes it: 12ms, 1s, 6m0s.
func resetText(d time.Duration) string {
	if rest := d % time.Millisecond; rest > 0 {
		d += time.Millisecond - rest
	}
	return d.String()
}
