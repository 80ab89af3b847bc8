package provider_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// noon is the fixed clock of case H14.
var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func TestRetryAfter_ReadsEveryFormOfWish(t *testing.T) {
	t.Parallel()
	type header map[string]string
	tests := []struct {
		name string
		in   header
		want time.Duration
	}{
		{"seconds", header{"Retry-After": "7"}, 7 * time.Second},
		{"seconds in spaces", header{"Retry-After": " 7 "}, 7 * time.Second},
		{"fraction", header{"retry-after": "7.25"}, 7250 * time.Millisecond},
		{"fraction that binary floats miss", header{"Retry-After": "0.3"}, 300 * time.Millisecond},
		{"RFC 1123 date", header{"Retry-After": "Sun, 29 Nov 2026 12:00:07 GMT"}, 7 * time.Second},
		{"RFC 850 date", header{"Retry-After": "Sunday, 29-Nov-26 12:00:07 GMT"}, 7 * time.Second},
		{"asctime date", header{"Retry-After": "Sun Nov 29 12:00:07 2026"}, 7 * time.Second},
		{"milliseconds before seconds", header{"retry-after-ms": "350", "Retry-After": "1"}, 350 * time.Millisecond},
		{"bad milliseconds leave the seconds", header{"retry-after-ms": "soon", "Retry-After": "1"}, time.Second},
		{"zero milliseconds leave the seconds", header{"retry-after-ms": "0", "Retry-After": "1"}, time.Second},
		{"AWS milliseconds", header{"x-amz-retry-after": "1500"}, 1500 * time.Millisecond},
		{"past date", header{"Retry-After": "Sun, 29 Nov 2026 11:59:00 GMT"}, 0},
		{"zero", header{"Retry-After": "0"}, 0},
		{"none", header{}, 0},
		{"empty", header{"Retry-After": ""}, 0},
		{"negative", header{"Retry-After": "-5"}, 0},
		{"word", header{"Retry-After": "soon"}, 0},
		{"NaN", header{"Retry-After": "NaN"}, 0},
		{"infinity", header{"Retry-After": "Inf"}, 0},
		{"exponent", header{"Retry-After": "1e400"}, 0},
		{"hexadecimal", header{"Retry-After": "0x10"}, 0},
		{"two points", header{"Retry-After": "1.2.3"}, 0},
		{"lone point", header{"Retry-After": "."}, 0},
		{"digits without end", header{"Retry-After": strings.Repeat("9", 400)}, provider.MaxRetryAfter},
		{"a day", header{"Retry-After": "86400"}, 24 * time.Hour},
		{"centuries", header{"Retry-After": "99999999999999999999"}, provider.MaxRetryAfter},
		{"date in centuries", header{"Retry-After": "Sun, 29 Nov 9999 12:00:07 GMT"}, provider.MaxRetryAfter},
		{"reset in minutes", header{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360 * time.Second},
		{"reset in milliseconds", header{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "17ms"}, 17 * time.Millisecond},
		{"reset with a fraction", header{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2m59.56s"}, 179560 * time.Millisecond},
		{"reset in plain seconds", header{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "60"}, time.Minute},
		{"reset as a timestamp", header{"x-ratelimit-remaining-requests": "0", "anthropic-ratelimit-requests-reset": "2026-11-29T12:00:07Z"}, 7 * time.Second},
		{"reset of tokens", header{"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9s"}, 9 * time.Second},
		{"the longer of two resets", header{
			"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2s",
			"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9s",
		}, 9 * time.Second},
		{"a limit with room does not count", header{
			"x-ratelimit-remaining-requests": "4999", "x-ratelimit-reset-requests": "6m0s",
			"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "2s",
		}, 2 * time.Second},
		{"timestamp of a limit with room", header{"anthropic-ratelimit-input-tokens-remaining": "8000", "anthropic-ratelimit-input-tokens-reset": "2026-11-29T12:00:07Z"}, 0},
		{"timestamp with an offset", header{"anthropic-ratelimit-output-tokens-reset": "2026-11-29T13:00:07+01:00"}, 7 * time.Second},
		{"past timestamp", header{"anthropic-ratelimit-requests-reset": "2026-11-29T11:59:59Z"}, 0},
		{"negative reset", header{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "-1"}, 0},
		{"negative duration", header{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "-6m"}, 0},
		{"unknown rest counts as none", header{"x-ratelimit-remaining-requests": "-1", "x-ratelimit-reset-requests": "3s"}, 3 * time.Second},
		{"Retry-After before resets", header{"Retry-After": "1", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for k, v := range tt.in {
				h.Set(k, v)
			}
			if got := provider.RetryAfter(h, noon); got != tt.want {
				t.Errorf("RetryAfter(%v) = %v, want %v", tt.in, got, tt.want)
			}
		})
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, v := range []string{"7", "7.25", "-5", "1e400", "NaN", "Sun, 29 Nov 2026 12:00:07 GMT", "2m59.56s", "2026-11-29T12:00:07Z", "9223372036854775807", "."} {
		f.Add(v, v, v, v, "0")
	}
	f.Fuzz(func(t *testing.T, ms, after, reset, stamp, remaining string) {
		h := http.Header{}
		h.Set("Retry-After-Ms", ms)
		h.Set("Retry-After", after)
		h.Set("X-Ratelimit-Reset-Tokens", reset)
		h.Set("X-Ratelimit-Remaining-Tokens", remaining)
		h.Set("Anthropic-Ratelimit-Tokens-Reset", stamp)
		if d := provider.RetryAfter(h, noon); d < 0 || d > provider.MaxRetryAfter {
			t.Errorf("RetryAfter(%v) = %v, outside 0..%v", h, d, provider.MaxRetryAfter)
		}
	})
}

// H14: a wait that only the text tells.
func TestSaidWait_ReadsVendorsWords(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"Please try again in 41.724s.":                    41724 * time.Millisecond,
		"Please try again in 1m2.5s. Visit https://x":     62500 * time.Millisecond,
		"Please try again in 120ms":                       120 * time.Millisecond,
		"Please retry after 9 seconds. Please go here":    9 * time.Second,
		"Please retry in 53.016342224s.":                  53016342224,
		"Rate limit is exceeded. Try again in 2 seconds.": 2 * time.Second,
		"try again in 7.":                                 7 * time.Second,
		"Please retry after 99999999 seconds":             provider.MaxRetryAfter,
		"Please try again later":                          0,
		"Please try again in a while":                     0,
		"retry after 1h2h.s seconds":                      0,
		"":                                                0,
	} {
		if got := provider.SaidWait(in); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}
