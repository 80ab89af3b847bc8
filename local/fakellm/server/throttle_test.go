package server_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/quota"
	"github.com/llm-queue/llmq/local/fakellm/server"
)

func TestRule_BedrockThrottleSaysNoTime(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for cause, tc := range map[string]struct {
		limits  quota.Limits
		message string
	}{
		"requests": {quota.Limits{Requests: quota.Rate{PerMinute: 60, Burst: 1}}, "Too many requests, please wait before trying again."},
		"tokens":   {quota.Limits{Tokens: quota.Rate{PerMinute: 60, Burst: 1}}, "Too many tokens, please wait before trying again."},
	} {
		setRules(t, s, server.Rule{Match: server.Match{Model: cause}, Phases: []server.Phase{{Limits: tc.limits}}})
		converse(t, s, cause, "r", converseBody)
		got := converse(t, s, cause, "r", converseBody)
		checkException(t, got, 429, "ThrottlingException", tc.message)
		for name := range got.Header() {
			if name == "Retry-After" || name == "X-Ratelimit-Remaining-Requests" {
				t.Errorf("Bedrock sent %s", name)
			}
		}
	}
}

func TestRule_OpenAIThrottleTellsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // at midnight
		s := newServer(t, nil)
		setRules(t, s, onePhase(server.Phase{Limits: quota.Limits{
			Requests: quota.Rate{PerMinute: 3}, Tokens: quota.Rate{PerMinute: 1000, Window: quota.Minute},
		}}))
		first := chat(t, s, "m")
		for name, want := range map[string]string{
			"X-Ratelimit-Limit-Requests": "3", "X-Ratelimit-Remaining-Requests": "2", "X-Ratelimit-Reset-Requests": "20s",
			"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "999", "X-Ratelimit-Reset-Tokens": "1m0s",
		} {
			if got := first.Header().Get(name); got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
		time.Sleep(500 * time.Millisecond) // bubble time
		n, refused := let(t, s, "m")
		if n != 2 {
			t.Fatalf("%d more calls came through, want 2", n)
		}
		checkOpenAIError(t, refused.Code, refused.Body.Bytes(), 429, "requests", "", "rate_limit_exceeded",
			"Rate limit reached for m in organization org-fakellm on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 19.5s.")
		if s, ms := refused.Header().Get("Retry-After"), refused.Header().Get("Retry-After-Ms"); s != "20" || ms != "19500" {
			t.Errorf("Retry-After %q, Retry-After-Ms %q", s, ms)
		}
		time.Sleep(19500 * time.Millisecond) // bubble time
		if n, _ := let(t, s, "m"); n != 1 {
			t.Errorf("%d calls came through when it was told, want 1", n)
		}
		big := post(t, s, "/v1/chat/completions", `{"model":"big","max_tokens":1001,"messages":[{"role":"user","content":"x"}]}`)
		checkOpenAIError(t, big.Code, big.Body.Bytes(), 429, "tokens", "", "rate_limit_exceeded", "Request too large for big")
	})
}

// Used and requested are above the limit in every refusal, or nobody understands it.
func TestRule_OpenAIThrottleAddsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for want, tc := range map[string]struct {
			rpm, tpm quota.Rate
			wait     time.Duration
		}{
			"Limit 3, Used 3, Requested 1. Please try again in 20s":   {rpm: quota.Rate{PerMinute: 3, Burst: 2}},
			"Limit 3, Used 3, Requested 1. Please try again in 10s":   {rpm: quota.Rate{PerMinute: 3}, wait: 10 * time.Second},
			"Limit 60, Used 60, Requested 1. Please try again in 1s":  {rpm: quota.Rate{PerMinute: 60, Window: quota.Bucket, Burst: 1}},
			"Limit 40, Used 40, Requested 1. Please try again in 1.5": {tpm: quota.Rate{PerMinute: 40, Burst: 2}},
		} {
			s := newServer(t, nil)
			setRules(t, s, onePhase(server.Phase{Limits: quota.Limits{Requests: tc.rpm, Tokens: tc.tpm}}))
			_, refused := let(t, s, "m")
			if tc.wait > 0 {
				time.Sleep(tc.wait) // bubble time
				refused = chat(t, s, "m")
			}
			if refused == nil || !strings.Contains(refused.Body.String(), want) {
				t.Errorf("%s, want %q", refused.Body, want)
			}
		}
		s := newServer(t, nil)
		setRules(t, s, onePhase(server.Phase{Limits: quota.Limits{Tokens: quota.Rate{PerMinute: 60, Burst: 10}}}))
		big := post(t, s, "/v1/chat/completions", `{"model":"m","max_tokens":20,"messages":[{"role":"user","content":"x"}]}`)
		if !strings.Contains(big.Body.String(), "Limit 10, Requested 20") {
			t.Errorf("%s, want what one call may have", big.Body)
		}
	})
}

func TestRule_ThrottleInOtherWords(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	throttle := func(r server.Reply) {
		setRules(t, s, onePhase(server.Phase{ThrottleShare: 1, Throttle: r}))
	}
	throttle(server.Reply{Code: "ServiceQuotaExceededException"})
	checkException(t, post(t, s, conversePath("m"), converseBody), 400, "ServiceQuotaExceededException", "")
	throttle(server.Reply{Code: "ModelNotReadyException"})
	checkException(t, post(t, s, conversePath("m"), converseBody), 429, "ModelNotReadyException", "not ready")
	throttle(server.Reply{Status: 503, Message: "slow down", Header: http.Header{"x-more": {"1"}}})
	got := chat(t, s, "m")
	checkOpenAIError(t, got.Code, got.Body.Bytes(), 503, "server_error", "", "", "slow down")
	if got.Header().Get("X-More") != "1" || s.Stats().All.Throttled != 3 {
		t.Errorf("headers %v, %d throttled", got.Header(), s.Stats().All.Throttled)
	}
}

func TestRule_RetryAfterInEveryForm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, tc := range []struct {
			retry server.RetryAfter
			want  map[string]string
		}{
			{server.RetryAfter{}, map[string]string{"Retry-After": "20", "Retry-After-Ms": "20000"}},
			{server.RetryAfter{Form: server.RetryNone}, map[string]string{}},
			{server.RetryAfter{Form: server.RetrySeconds}, map[string]string{"Retry-After": "20"}},
			{server.RetryAfter{Form: server.RetryFloat, Fixed: 6532 * time.Millisecond}, map[string]string{"Retry-After": "6.532"}},
			{server.RetryAfter{Form: server.RetrySeconds, Fixed: 6001 * time.Millisecond}, map[string]string{"Retry-After": "7"}},
			{server.RetryAfter{Form: server.RetryDate, Fixed: 6500 * time.Millisecond}, map[string]string{"Retry-After": now.Add(7 * time.Second).UTC().Format(http.TimeFormat)}},
			{server.RetryAfter{Form: server.RetryMillis}, map[string]string{"Retry-After-Ms": "20000"}},
			{server.RetryAfter{Form: server.RetryAmz}, map[string]string{"X-Amz-Retry-After": "20000"}},
			{server.RetryAfter{Form: server.RetrySeconds, Value: "-1"}, map[string]string{"Retry-After": "-1"}},
			{server.RetryAfter{Form: server.RetryDate, Value: "soon"}, map[string]string{"Retry-After": "soon"}},
			{server.RetryAfter{Form: server.RetrySeconds, Value: "99999999999999999999"}, map[string]string{"Retry-After": "99999999999999999999"}},
		} {
			s := newServer(t, nil)
			setRules(t, s, onePhase(server.Phase{Limits: quota.Limits{Requests: quota.Rate{PerMinute: 3}}, RetryAfter: tc.retry}))
			_, refused := let(t, s, "m")
			got := map[string]string{}
			for _, name := range []string{"Retry-After", "Retry-After-Ms", "X-Amz-Retry-After"} {
				if v := refused.Header().Get(name); v != "" {
					got[name] = v
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", tc.retry, diff)
			}
		}
		for form, want := range map[server.RetryForm]string{server.RetryReset: "20s", server.RetryResetSeconds: "20"} {
			s := newServer(t, nil)
			setRules(t, s, onePhase(server.Phase{Limits: quota.Limits{Requests: quota.Rate{PerMinute: 3}}, RetryAfter: server.RetryAfter{Form: form}}))
			if _, refused := let(t, s, "m"); refused.Header().Get("X-Ratelimit-Reset-Requests") != want || refused.Header().Get("Retry-After") != "" {
				t.Errorf("%s: %v", form, refused.Header())
			}
		}
	})
}
