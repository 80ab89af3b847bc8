package provider

import (
	"errors"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter is the longest wish that RetryAfter reports. No request's deadline is that far
// away, so nothing is lost by clipping there, and no sum of times can overflow.
const MaxRetryAfter = 24 * time.Hour

// limitNames are the limits that vendors count, by the middle of their headers' names.
var (
	openAILimits    = []string{"Requests", "Tokens"}
	anthropicLimits = []string{"Requests", "Tokens", "Input-Tokens", "Output-Tokens"}
)

// RetryAfter reads from the header of a refusal how long the provider asks to wait, counted from
// now; 0 when it asks for nothing that can be used. The first of these that holds a positive wait
// decides:
//
//   - Retry-After-Ms (OpenAI, Azure) and X-Amz-Retry-After (AWS), milliseconds. They stand before
//     Retry-After because Azure sends both, and whole seconds waste capacity.
//   - Retry-After: seconds, also with a fraction, or one of HTTP's three date formats.
//   - The reset headers of OpenAI (duration or seconds) and Anthropic (timestamp). They come with
//     every reply and name the time when the limit is full again, so one counts only unless its
//     own "remaining" says that something is left. The longest wins: all limits must have room.
//
// A zero, past, negative or malformed value is no wish: the caller then uses its own backoff, so
// none of them can cause an instant retry loop. Waits over [MaxRetryAfter] are clipped to it.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Amz-Retry-After"} {
		if d := decimal(h.Get(name), time.Millisecond); d > 0 {
			return d
		}
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if d := decimal(value, time.Second); d > 0 {
		return d
	}
	if at, err := http.ParseTime(value); err == nil {
		if d := clip(at.Sub(now)); d > 0 {
			return d
		}
	}
	var longest time.Duration
	for _, limit := range openAILimits {
		if spent(h, "X-Ratelimit-Remaining-"+limit) {
			longest = max(longest, Span(h.Get("X-Ratelimit-Reset-"+limit)))
		}
	}
	for _, limit := range anthropicLimits {
		if !spent(h, "Anthropic-Ratelimit-"+limit+"-Remaining") {
			continue
		}
		if at, err := time.Parse(time.RFC3339, strings.TrimSpace(h.Get("Anthropic-Ratelimit-"+limit+"-Reset"))); err == nil {
			longest = max(longest, clip(at.Sub(now)))
		}
	}
	return longest
}

// saidWait is how vendors word a wait: "Please try again in 1m2.5s" (OpenAI, Groq), "Please retry in 53.01s" (Gemini), "Please
// retry after 9 seconds" (Azure).
var saidWait = regexp.MustCompile(`(?i)\b(?:try again|retry) (?:in|after) ([0-9][0-9.hms]*)( second)?`)

// SaidWait reads from a refusal's text how long the provider asks to wait; 0 where it says nothing of it. A header is the better
// source: texts change.
func SaidWait(message string) time.Duration {
	m := saidWait.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	said := strings.TrimRight(m[1], ".")
	if m[2] != "" {
		said += "s"
	}
	return Span(said)
}

// spent reports whether nothing is left of a limit; a provider that does not say has refused the
// call, which says it well enough.
func spent(h http.Header, name string) bool {
	v := strings.TrimSpace(h.Get(name))
	if v == "" {
		return true
	}
	n, err := strconv.ParseFloat(v, 64)
	return err != nil || n <= 0 // OpenAI-compatible servers write -1 for "not known"
}

// Span reads a duration as OpenAI writes it ("6m0s", "17ms"), or the plain seconds of others. 0 is one that can't be used.
func Span(v string) time.Duration {
	v = strings.TrimSpace(v)
	if d := decimal(v, time.Second); d > 0 {
		return d
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0
	}
	return clip(d)
}

// decimal reads digits with at most one point, so neither sign nor exponent nor "NaN".
func decimal(v string, unit time.Duration) time.Duration {
	v = strings.TrimSpace(v)
	if strings.Trim(v, "0123456789.") != "" {
		return 0
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range is infinite, and clipped as such
		return 0
	}
	if n >= float64(MaxRetryAfter)/float64(unit) {
		return MaxRetryAfter
	}
	return time.Duration(math.Round(n * float64(unit)))
}

func clip(d time.Duration) time.Duration { return max(0, min(d, MaxRetryAfter)) }
