package config

import "testing"

// limitsExample is a file with each kind of limit.
const limitsExample = `kind: local
env: local
valkey: {cluster: false, tls: false}
storage: {state_bucket: llmq-state}
key_pepper: {env: LLMQ_DEV_PEPPER}
providers:
  openai:
    type: openai
    base_url: https://api.openai.com/v1
    api_key: {env: OPENAI_API_KEY}
    shared_max_concurrency: 40     # all its targets together
models:
  chat:
    default_max_tokens: 800        # of calls that name none: fewer tokens are reserved
    targets:
      - name: main
        provider: openai
        model_id: gpt-4o-mini
        max_concurrency: 20        # calls in flight, over all workers
        lane_max_concurrency: {bulk: 5}
        rpm: 600
        tpm: 200000
        rate_burst: 60             # calls at once; the same tenth of tpm, 20000 tokens
        rt_rate_share: 0.2         # of both budgets, for rt alone
`

func TestDocs_LimitsExampleLoads(t *testing.T) {
	t.Parallel()
	c, err := Parse("CONFIG.md", []byte(limitsExample), []string{"LLMQ_DEV_PEPPER=x"})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); w != nil {
		t.Error(w)
	}
}

// tryLimits is the page's part on limits by example.
func tryLimits() string {
	return `
### Limits by example

` + "```yaml\n" + limitsExample + "```" + `

A call takes its input and its maximum of output off ` + "`tpm`" + ` before it starts, and gets back what it didn't use. So it can never
need more than the burst: a tenth of ` + "`tpm`" + `, or the part that ` + "`rate_burst`" + ` is of ` + "`rpm`" + `, or with
` + "`rate_window: fixed`" + ` the whole; bg and bulk have what ` + "`rt_rate_share`" + ` leaves of it. One that needs more is refused
at once. A call that names no maximum of output is reserved with ` + "`default_max_tokens`" + `, else with 1000.
` + "`make run`" + ` warns where such calls don't fit.

### Try it

` + "`make run`" + ` makes its own file, so limits come by variables there. A fake provider that takes a second a call, behind a cap of 3:

` + "```sh" + `
` + tryShell + "```" + `

It shows ` + "`\"caps\":{\"target\":3},\"in_use\":3`" + `, and 60 answers of 200 after 20 to 23 s: three at a time, a second each. With
` + "`\"rpm\": 120`" + ` beside the cap, ` + "`caps`" + ` shows that too, and two calls a second start after a burst of 12. What can't start within
` + "`timing.rt_capacity_wait_secs`" + ` is answered with 429 in rt; bg and bulk (` + "`X-LLMQ-Lane`" + `) wait until their deadline.

With OPENAI_BASE_URL there is one alias, ` + "`default`" + `, for every name, and its limits are for all of them together; it has none but those that
you set. Without it the aliases are chat-a, emb-a and conv-a, each with one target, main, at the providers fake-openai and fake-bedrock, and each with
` + "`max_concurrency` 20" + ` unless you set another.
`
}

const tryShell = `# in one shell: a fake provider that takes a second a call. The export line that it prints is for calls
# without llmq before it: paste it nowhere
go run ./local/fakellm -addr 127.0.0.1:8090 -key k -latency 1s

# in another: llmq before it, with a cap of 3 calls in flight
OPENAI_BASE_URL=http://127.0.0.1:8090/v1 OPENAI_API_KEY=k LLMQ_SETTINGS='{"models": {"default": {"max_concurrency": 3}}}' make run

# in a third, with both export lines pasted that make run has printed: 60 calls at once
time (seq 60 | xargs -P 60 -I{} curl -s -o /dev/null -w '%{http_code}\n' $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" \
  -H 'Content-Type: application/json' -d '{"model":"any-name","messages":[{"role":"user","content":"call {}"}]}' | sort | uniq -c) &
sleep 5; curl -s -H "Authorization: Bearer $LLMQ_ADMIN_KEY" $LLMQ_ADMIN_URL/status | jq -c '.targets[] | {target, caps, in_use, waiting, ended}'
`
