package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// D2, D7: retries by variables, fallback by the file; both survive being written.
func TestLoad_RetriesAndFallback(t *testing.T) {
	t.Parallel()
	data := strings.Replace(read(t, "testdata/local.yaml"), "models:\n", `models:
  first:
    fallback: [{model: second, require_headroom: true}, {model: third}]
    skip_targets: [b]
    targets:
      - {name: a, provider: fake, model_id: x}
      - {name: b, provider: fake, model_id: y}
  second: {targets: [{name: a, provider: fake, model_id: z}]}
  third: {targets: [{name: a, provider: fake, model_id: w}]}
`, 1)
	c, err := Parse("local", []byte(data), []string{
		"LLMQ_RETRY_ATTEMPTS=2", "LLMQ_MAX_RECEIVES=4", "LLMQ_THROTTLE_RETRY_ATTEMPTS=5", "LLMQ_RETRY_BASE_SECS=0.2", "LLMQ_RETRY_MULTIPLIER=3", "LLMQ_RETRY_SPREAD=1.5",
		"LLMQ_RETRY_MAX_SECS=6", "LLMQ_THROTTLE_RETRY_MAX_SECS=2", "LLMQ_RETRY_FULL_JITTER=true",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Timing{
		AttemptTimeout: c.Timing.AttemptTimeout, FirstContent: c.Timing.FirstContent, StreamStall: c.Timing.StreamStall, RTCapacityWait: c.Timing.RTCapacityWait, SQSSendTimeout: c.Timing.SQSSendTimeout, SQSBatchWait: c.Timing.SQSBatchWait, Drain: c.Timing.Drain,
		SQSTimeoutsToFailover: 3, SQSFailover: 300 * time.Second, ValkeyWait: 10 * time.Second,
		RetryAttempts: 2, MaxReceives: 4, ThrottleRetryAttempts: 5, RetryBase: 200 * time.Millisecond, RetryMultiplier: 3, RetrySpread: 1.5,
		RetryMax: 6 * time.Second, ThrottleRetryMax: 2 * time.Second, RetryFullJitter: true, Reload: 30 * time.Second,
	}
	if diff := cmp.Diff(want, c.Timing); diff != "" {
		t.Errorf("timing (-want +got):\n%s", diff)
	}
	first := c.Models[0]
	if diff := cmp.Diff([]FallbackModel{{Model: "second", RequireHeadroom: true}, {Model: "third"}}, first.Fallback); diff != "" {
		t.Errorf("fallback (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b"}, first.SkipTargets); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	written, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again", written, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, again, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Errorf("written and read (-want +got):\n%s", diff)
	}
}

func TestFaults_RetriesAndFallback(t *testing.T) {
	t.Parallel()
	const timing, model = "timing: {attempt_timeout_secs: 180", "    lanes: [rt, bg, bulk]\n"
	fallback := func(name, add string, want ...string) faultCase {
		return faultCase{name, "aws", model, model + "    " + add + "\n", nil, want}
	}
	runFaults(t, []faultCase{
		{
			"a curve that begins above its end", "aws", timing, "timing: {retry_base_secs: 31, attempt_timeout_secs: 180", nil,
			[]string{`aws:31:1: timing.retry_max_secs: must be at least timing.retry_base_secs, 31: no wait is shorter`},
		},
		{
			"a multiplier that shrinks", "aws", timing, "timing: {retry_multiplier: 0.5, attempt_timeout_secs: 180", nil,
			[]string{`aws:31:28: timing.retry_multiplier: must be 1 to 100, not 0.5: outside it no deadline is met, or none is waited for`},
		},
		{
			"a spread that is no number", "aws", timing, "timing: {retry_spread: 1e1, attempt_timeout_secs: 180", nil,
			[]string{`aws:31:24: timing.retry_spread: must be a number such as 2 or 0.5, not "1e1"`},
		},
		fallback("unknown model", "fallback: [{model: novva}]", `aws:22:24: models.chat-a.fallback[0].model: no model is named "novva"; did you mean nova?`),
		fallback("the model itself", "fallback: [{model: chat-a}]", `aws:22:24: models.chat-a.fallback[0].model: is the model itself; its own targets are tried anyhow`),
		fallback("no common wire", "fallback: [{model: nova}]",
			`aws:22:24: models.chat-a.fallback[0].model: speaks converse, invoke and chat-a speaks openai: a body is never translated, so it can't stand in`),
		fallback("a model twice", "fallback: [{model: nova}, {model: nova}]",
			`aws:22:24: models.chat-a.fallback[0].model: speaks converse, invoke and chat-a speaks openai: a body is never translated, so it can't stand in`,
			`aws:22:39: models.chat-a.fallback[1].model: "nova" is fallback[0] already`),
		{
			"no common wire but invoke, whose body no other model takes", "aws",
			"      - {name: main, provider: openai, model_id: gpt-4o-mini, wires: [openai], max_concurrency: 20}\n      - {name: own, provider: local-vllm, model_id: Qwen/Qwen3-8B}\n",
			"      - {name: main, provider: bedrock, model_id: x, wires: [invoke]}\n    fallback: [{model: nova}]\n", nil,
			[]string{`aws:24:24: models.chat-a.fallback[0].model: has no wire in common with chat-a but invoke, whose body is its model's own, so it can't stand in`},
		},
		fallback("no model", "fallback: [{require_headroom: true}]", `aws:22:16: models.chat-a.fallback[0].model: is missing: alias of another model`),
		fallback("unknown target", "skip_targets: [mian]", `aws:22:20: models.chat-a.skip_targets[0]: no target of chat-a is named "mian"; did you mean main?`),
		fallback("no target left", "skip_targets: [main, own]", `aws:22:5: models.chat-a.skip_targets: leaves no target to serve chat-a, and no other model stands in for it`),
		fallback("no target left, but another model", "skip_targets: [main, own]\n    fallback: [{model: nova}]",
			`aws:23:24: models.chat-a.fallback[0].model: speaks converse, invoke and chat-a speaks openai: a body is never translated, so it can't stand in`),
	})
}
