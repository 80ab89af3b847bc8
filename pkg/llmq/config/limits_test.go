package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/pkg/llmq"
)

const limited = `kind: local
env: local
storage: {state_bucket: llmq-state}
key_pepper: {env: LLMQ_DEV_PEPPER}
limiter: {bg_share: 0.7, rt_rate_share: 0.3, rate_window: fixed, lease_ttl_secs: 90}
breaker: {threshold: 7, window_secs: 20}
providers:
  p:
    {type: openai, base_url: "http://127.0.0.1:9", private: true, allowed_cidrs: [127.0.0.1/32], shared_max_concurrency: 8, shared_rpm: 800,
     max_concurrency: 30, rpm: 500, rt_rate_share: 0, lane_max_concurrency: {bulk: 5}, breaker_cooldown_secs: 2}
models:
  a:
    rpm: 300
    burndown: 5
    default_max_tokens: 512
    lane_max_concurrency: {bulk: 3, bg: 4}
    targets:
      - {name: x, provider: p, model_id: m, tpm: 9000, rate_window: smooth, rate_burst: 9, max_concurrency: 20, bg_share: 1}
      - {name: y, provider: p, model_id: n, limiter_initial: 5}
`

func limitsOf(t *testing.T, text string, env ...string) map[string]llmq.Target {
	t.Helper()
	c, err := Parse("x", []byte(text), append(env, "LLMQ_DEV_PEPPER=x"))
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]llmq.Target{}
	for _, m := range c.Catalogue().Models() {
		for _, target := range m.Targets {
			of[target.Name] = target
		}
	}
	return of
}

// C4 to C7: the setting nearest to the target wins, and 0 is a setting where it may be one.
func TestLimits_TheNearestWins(t *testing.T) {
	t.Parallel()
	got := limitsOf(t, limited)
	breaker := llmq.Breaker{Threshold: 7, Window: 20 * time.Second, Cooldown: 2 * time.Second}
	shared := llmq.SharedLimits{MaxConcurrency: 8, Rates: llmq.Rates{RPM: 800, Fixed: true}}
	lanes := map[llmq.Lane]int{llmq.LaneBulk: 3, llmq.LaneBG: 4}
	tokens := llmq.TokenRule{Burndown: 5, DefaultMaxTokens: 512}
	want := map[string]llmq.Target{
		"x": {
			Model: "a", Name: "x", Provider: "p", ModelID: "m", Wires: []llmq.Wire{llmq.WireOpenAI}, MaxConcurrency: 20, Shared: shared, Tokens: tokens,
			Limits: llmq.Limits{BackgroundShare: 1, Lanes: lanes, Breaker: breaker, Rates: llmq.Rates{RPM: 300, TPM: 9000, Burst: 9}},
		},
		"y": {
			Model: "a", Name: "y", Provider: "p", ModelID: "n", Wires: []llmq.Wire{llmq.WireOpenAI}, MaxConcurrency: 30, Shared: shared, Tokens: tokens,
			Limits: llmq.Limits{Initial: 5, BackgroundShare: 0.7, Lanes: lanes, Breaker: breaker, Rates: llmq.Rates{RPM: 300, Fixed: true}},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(llmq.Target{}, "Pace")); diff != "" {
		t.Error(diff)
	}
}

func TestLimits_VariablesWin(t *testing.T) {
	t.Parallel()
	got := limitsOf(t, limited, `LLMQ_AC_INITIAL={"a": 11, "a@y": 12}`, `LLMQ_AC_MAX_BY_MODEL={"a@x": 13}`, "LLMQ_AC_BG_SHARE=0.5", "LLMQ_RT_RATE_SHARE=0.1", "LLMQ_CB_COOLDOWN_SECS=9", "LLMQ_RATE_WINDOW=smooth")
	x, y := got["x"], got["y"]
	if x.Limits.Initial != 11 || y.Limits.Initial != 12 || x.MaxConcurrency != 13 || y.MaxConcurrency != 30 || y.Limits.BackgroundShare != 0.5 || y.Limits.Rates.Fixed {
		t.Errorf("x %+v, y %+v", x, y)
	}
}

func TestLimits_WrittenAndReadAgain(t *testing.T) {
	t.Parallel()
	c, err := Parse("x", []byte(limited), []string{"LLMQ_DEV_PEPPER=x"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("y", text, []string{"LLMQ_DEV_PEPPER=x"})
	if diff := cmp.Diff(c, again, cmpopts.IgnoreUnexported(Config{})); err != nil || diff != "" {
		t.Errorf("%v %s\n%s", err, diff, text)
	}
}

func TestLimits_FaultsAreTold(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ old, with, want string }{
		{"bg_share: 0.7", "bg_share: 0", "limiter.bg_share: must be 0.01 to 1, not 0"},
		{"bg_share: 0.7", "bg_share: 80%", "limiter.bg_share: must be a part of 1"},
		{"rt_rate_share: 0.3", "rt_rate_share: 1", "limiter.rt_rate_share: must be 0 to 0.99, not 1: the other lanes need some"},
		{"rpm: 300", "rpm: 0", "models.a.rpm: must be 1 to 10000000, not 0"},
		{"burndown: 5", "burndown: 0.0001", "models.a.burndown: must be 0.1 to 100, not 0.0001"},
		{"rate_window: smooth", "rate_window: daily", "models.a.targets[0].rate_window: must be one of smooth, fixed"},
		{"{bulk: 3, bg: 4}", "{bulk: 3, bgg: 4}", "models.a.lane_max_concurrency.bgg: no such key; did you mean bg?"},
		{"rate_burst: 9", "rate_burst: 301", "models.a.targets[0].rate_burst: must be at most rpm, 300"},
		{"    rpm: 300\n", "    rate_burst: 3\n", ""},
		{"rpm: 500, ", "rate_burst: 3, ", ""},
	} {
		_, err := Parse("x", []byte(strings.Replace(limited, tc.old, tc.with, 1)), []string{"LLMQ_DEV_PEPPER=x"})
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.with, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.with, err, tc.want)
		}
	}
}
