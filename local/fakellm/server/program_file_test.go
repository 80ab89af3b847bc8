package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/quota"
	"github.com/llm-queue/llmq/local/fakellm/server"
)

const wholeProgram = `
# A model of Bedrock that halves its quota for a while, and one of OpenAI.
rules:
  - model: claude
    region: us-east-1
    per: [model, region, key]
    seed: 7
    loop: true
    phases:
      - &steady
        for_ms: 60000
        concurrency: 50
        rpm: 600
        tpm: {quota: 1.2e6, window: minute, skew_ms: 700}
        burndown: 5
        default_max_tokens: 4096
        throttle_share: 0.02
        latency: {distribution: lognormal, mean_ms: 300, deviation_ms: 90, speed: 80, speed_deviation: 16, input_speed: 20000}
        output_tokens: {distribution: lognormal, mean: 250, deviation: 250, max: 4096}
        context_tokens: 200000
        faults:
          - {share: 0.01, fail: reset, after: 3}
      - <<: *steady
        for_ms: 30000
        scale: [0.5, 1]
        retry_after: {form: date, fixed_ms: 30000}
        refuse_delay_ms: 20
        throttle: {code: ServiceQuotaExceededException}
  - key: sk-of-a-tenant
    phases:
      - rpm: {quota: 60, window: sliding, count_refused: true}
        charge: estimate
queue:
  - model: gpt
    replies:
      - {status: 429, headers: {retry-after: "7"}, times: 2}
      - {text: hello, delay_ms: 1.5}
      - {tool_calls: [{name: run, arguments: "{}"}]}
      - {chunks_base64: ["5pc=", "pQ=="], hang: true}
`

func TestParseProgram_Whole(t *testing.T) {
	t.Parallel()
	hello := "hello"
	steady := server.Phase{
		For: time.Minute,
		Limits: quota.Limits{
			Concurrency: 50, Requests: quota.Rate{PerMinute: 600},
			Tokens:   quota.Rate{PerMinute: 1.2e6, Window: quota.Minute, Skew: 700 * time.Millisecond},
			Burndown: 5, DefaultMaxTokens: 4096,
		},
		ThrottleShare: 0.02,
		Latency: server.Latency{
			Distribution: server.Lognormal, Mean: 300 * time.Millisecond, Deviation: 90 * time.Millisecond, Speed: 80, SpeedDeviation: 16, InputSpeed: 20000,
		},
		OutputTokens:  server.Spread{Distribution: server.Lognormal, Mean: 250, Deviation: 250, Max: 4096},
		ContextTokens: 200_000,
		Faults:        []server.Fault{{Share: 0.01, Reply: server.Reply{Fail: server.FailReset, After: 3}}},
	}
	half := steady
	half.For, half.From, half.To, half.RefuseDelay = 30*time.Second, 0.5, 1, 20*time.Millisecond
	half.RetryAfter = server.RetryAfter{Form: server.RetryDate, Fixed: 30 * time.Second}
	half.Throttle = server.Reply{Code: "ServiceQuotaExceededException"}
	want := server.Program{
		Rules: []server.Rule{
			{
				Match: server.Match{Model: "claude", Region: "us-east-1"}, Per: []server.Dimension{"model", "region", "key"},
				Seed: 7, Loop: true, Phases: []server.Phase{steady, half},
			},
			{Match: server.Match{Key: "sk-of-a-tenant"}, Phases: []server.Phase{{Limits: quota.Limits{
				Charge: quota.Estimate, Requests: quota.Rate{PerMinute: 60, Window: quota.Sliding, CountRefused: true},
			}}}},
		},
		Queue: []server.Queued{{Match: server.Match{Model: "gpt"}, Replies: []server.Reply{
			{Status: 429, Header: http.Header{"Retry-After": {"7"}}, Times: 2},
			{Text: &hello, Delay: 1500 * time.Microsecond},
			{ToolCalls: []server.ToolCall{{Name: "run", Arguments: "{}"}}},
			{Chunks: [][]byte{[]byte("\xe6\x97"), []byte("\xa5")}, Hang: true},
		}}},
	}
	got, err := server.ParseProgram([]byte(wholeProgram))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("program (-want +got):\n%s", diff)
	}
	if err := newServer(t, nil).Load(got); err != nil {
		t.Error(err)
	}
}

func TestParseProgram_ErrorsHaveAPlace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, program, want string }{
		{"empty", "", "empty"},
		{"no YAML", "rules: [", "line 1"},
		{"JSON", `{"rules":[{"phases":[{"rpm":-1}]}]}`, "line 1:23: rules[0].phases[0].rpm: quota -1: want 0 to 1e15"},
		{"two documents", "rules: []\n---\nqueue: []\n", "more than one document"},
		{"unknown field", "rules:\n  - model: m\n    phasez: []\n", "line 3:5: rules[0].phasez: there is no such field"},
		{"unknown in a rate", "rules:\n  - phases:\n      - rpm:\n          quotta: 1\n", "line 4:11: rules[0].phases[0].rpm.quotta: there is no such field"},
		{"wrong type", "rules:\n  - phases:\n      - concurrency: many\n", "line 3:9: rules[0].phases[0].concurrency: a text: want a whole number"},
		{"calls in words", "rules:\n  - phases:\n      - rpm: lots\n", "line 3:9: rules[0].phases[0].rpm: a text: want a number of calls per minute"},
		{"tokens in words", "rules:\n  - phases:\n      - tpm: [1]\n", "line 3:9: rules[0].phases[0].tpm: a list: want a number of tokens per minute"},
		{"quota in words", "rules:\n  - phases:\n      - rpm: {quota: many}\n", "line 3:15: rules[0].phases[0].rpm.quota: a text: want a number"},
		{"latency in words", "rules:\n  - phases:\n      - latency: 3s\n", "line 3:9: rules[0].phases[0].latency: a text: want {mean_ms: milliseconds"},
		{"time in words", "rules:\n  - phases:\n      - latency: {mean_ms: 3s}\n", "line 3:19: rules[0].phases[0].latency.mean_ms: a text: want milliseconds as a number"},
		{"half a number", "rules:\n  - phases:\n      - concurrency: 1.5\n", "line 3:9: rules[0].phases[0].concurrency: 1.5: want a whole number"},
		{"no list", "rules: {}\n", "line 1:1: rules: fields: want a list"},
		{"no quota", "rules:\n  - phases:\n      - rpm: {burst: 3}\n", "line 3:9: rules[0].phases[0].rpm: limits nothing without a quota"},
		{"no fault", "rules:\n  - phases:\n      - faults: [{share: 1}]\n", "line 3:18: rules[0].phases[0].faults[0]: nothing goes wrong"},
		{"no share", "rules:\n  - phases:\n      - faults: [{status: 503}]\n", "line 3:18: rules[0].phases[0].faults[0]: want a share"},
		{"hang and reset", "queue:\n  - replies:\n      - {hang: true, reset: true}\n", "line 3:22: queue[0].replies[0].reset: with hang"},
		{"answer and reset", "queue:\n  - replies:\n      - {status: 503, reset: true}\n", "line 3:23: queue[0].replies[0].reset: nothing is answered"},
		{"bad value", "rules:\n  - phases:\n      - for_ms: 1\n      - retry_after: {form: later}\n", "line 4:23: rules[0].phases[1].retry_after.form: \"later\""},
		{"two faults", "rules:\n  - phases: [{throttle_share: 2}]\n  - phases: []\n", "line 3:5: rules[1].phases: want 1 to 1000"},
		{"in a merge", "rules:\n  - phases:\n      - &a\n        for_ms: 5\n        throttle_share: 7\n      - <<: *a\n        for_ms: 0\n", "line 5:9: rules[0].phases[1].throttle_share: 7: want 0 to 1"},
		{"endless in the middle", "rules:\n  - phases: [{}, {}]\n", "line 2:14: rules[0].phases[0].for_ms: 0s: want more than 0"},
		{"reply", "queue:\n  - replies:\n      - {status: 99}\n", "line 3:10: queue[0].replies[0].status: 99: want 0 or 200 to 599"},
		{"no replies", "queue:\n  - model: m\n", "line 2:5: queue[0].replies: want at least one"},
		{"two bodies", "queue:\n  - replies:\n      - {body: a, body_base64: YQ==}\n", "line 3:10: queue[0].replies[0].body: body and body_base64"},
		{"no finite number", "rules:\n  - phases:\n      - burndown: .inf\n", "line 3:9: rules[0].phases[0].burndown: +Inf"},
		{"odd key", "1: 2\n", "want names"},
	} {
		_, err := server.ParseProgram([]byte(tc.program))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestAdmin_ProgramAndRules(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	put := func(path, body string, want int) string {
		t.Helper()
		got := admin(t, s, http.MethodPut, path, body)
		if got.Code != want {
			t.Errorf("PUT %s: %d %s", path, got.Code, got.Body)
		}
		return got.Body.String()
	}
	put("/program", `{"rules":[{"model":"m","phases":[{"rpm":2}]}],"queue":[{"model":"n","replies":[{"status":500}]}]}`, 200)
	if n, _ := let(t, s, "m"); n != 2 {
		t.Errorf("%d calls let in, want 2", n)
	}
	quotas := decode[map[string][]map[string]any](t, admin(t, s, "GET", "/quotas", "").Body.Bytes())["quotas"]
	if len(quotas) != 1 || quotas[0]["model"] != "m" || quotas[0]["rpm"] == nil || quotas[0]["tpm"] != nil {
		t.Errorf("quotas %v", quotas)
	}
	put("/rules", `{"rules":[{"phases":[{"throttle_share":1}]}]}`, 200)
	if got := chat(t, s, "n").Code; got != 500 {
		t.Errorf("status %d, want the queued 500", got)
	}
	if got := chat(t, s, "n").Code; got != 429 {
		t.Errorf("status %d, want 429", got)
	}
	if got := put("/rules", `{"rules":[{"phases":[{"rpm":{"quotta":1}}]}]}`, 400); !strings.Contains(got, "rules[0].phases[0].rpm.quotta: there is no such field") {
		t.Errorf("got %s", got)
	}
	if got := put("/program", `rules: [{phases: []}]`, 400); !strings.Contains(got, "line 1:10: rules[0].phases") {
		t.Errorf("got %s", got)
	}
	if got := admin(t, s, "POST", "/reset", `{"counters":true}`).Code; got != 200 || s.Stats().All.Calls != 0 || chat(t, s, "m").Code != 429 {
		t.Errorf("reset of the counters: %d", got)
	}
	if got := admin(t, s, "POST", "/reset", "").Code; got != 200 || chat(t, s, "m").Code != 200 {
		t.Errorf("reset: %d", got)
	}
}

func FuzzParseProgram(f *testing.F) {
	for _, seed := range []string{wholeProgram, "", "rules:", "a: &a [*a]", "? [x]\n: 1", "rules: [{phases: [{rpm: .nan}]}]", `{"queue":[{"replies":[{}]}]}`, "<<: 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := server.ParseProgram([]byte(text))
		if err != nil {
			return
		}
		s, err := server.New(server.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Load(p); err != nil {
			t.Fatalf("parsed, but not taken: %v", err)
		}
	})
}
