package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	awsPepper = `arn: "arn:aws:secretsmanager:us-east-1:123456789012:secret:llmq/key-pepper-AbCdEf"`
	apiKey    = `api_key: {arn: "arn:aws:secretsmanager:us-east-1:123456789012:secret:openai-AbCdEf"}`
)

// faultCase is a valid file with one thing made wrong.
type faultCase struct {
	name     string
	file     string // aws or local
	old, new string // replaced in it, once
	env      []string
	want     []string
}

func runFaults(t *testing.T, cases []faultCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			data := read(t, "testdata/"+tc.file+".yaml")
			if strings.Count(data, tc.old) == 0 {
				t.Fatalf("%q is not in the file", tc.old)
			}
			data = strings.Replace(data, tc.old, tc.new, 1)
			_, err := Parse(tc.file, []byte(data), tc.env)
			if diff := cmp.Diff(tc.want, problems(t, err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// problems is an error of Load as its faults' lines.
func problems(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	fs, ok := errors.AsType[Faults](err)
	if !ok || !errors.Is(err, llmq.CodeConfiguration) {
		t.Fatalf("%T is no configuration error: %v", err, err)
	}
	var lines []string
	for _, f := range fs {
		lines = append(lines, f.String())
	}
	return lines
}

func TestFaults_Text(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	for _, tc := range []struct{ name, data, want string }{
		{"empty", "", "f: is empty; it needs at least kind, env, providers and models"},
		{"comments only", "# nothing\n", "f: is empty; it needs at least kind, env, providers and models"},
		{"null", "null\n", "f:1:1: must be settings by name, such as kind: local"},
		{"list", "- a\n", "f:1:1: must be settings by name, such as kind: local"},
		{"tab", "door:\n\twait_secs: 1\n", "f:2:1: a tab indents this line; YAML allows spaces only"},
		{"tab after spaces", "door:\n  \twait_secs: 1\n   x: y\n", "f:2:3: a tab indents this line; YAML allows spaces only"},
		{"syntax", "kind: 'aws\n", "f:2:1: is not YAML, on this line or near it: found unexpected end of stream"},
		{"syntax on line 1", "kind: a: b\n", "f:1:1: is not YAML, on this line or near it: mapping values are not allowed in this context"},
		{"syntax in a second document", "kind: aws\n---\n'\n", "f:3:1: is not YAML, on this line or near it: found unexpected end of stream"},
		{"second document", "kind: aws\n---\nkind: local\n", "f:2:1: a second document begins here; one file holds one environment"},
		{"unknown anchor", "kind: *x\n", "f:1:1: is not YAML, on this line or near it: unknown anchor 'x' referenced"},
		{"control character", "kind: \x01\n", "f:1:1: is not YAML, on this line or near it: control characters are not allowed"},
		{"too deep", strings.Repeat("[", 20000), "f:1:1: is not YAML, on this line or near it: exceeded max depth of 10000"},
		{"nested at the top", deep, "f:1:1: must be settings by name, such as kind: local"},
		{"too large", strings.Repeat("#", 1<<20+1), "f: is larger than 1 MiB; a configuration is a few KiB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f", []byte(tc.data), nil)
			if diff := cmp.Diff([]string{tc.want}, problems(t, err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFaults_Structure(t *testing.T) {
	t.Parallel()
	runFaults(t, []faultCase{
		{
			"unknown key with a near one", "aws", "door: {wait_secs", "door: {wait_sec", nil,
			[]string{`aws:7:8: door.wait_sec: no such key; did you mean wait_secs?`},
		},
		{
			"unknown key with none near", "aws", "door: {", "door: {colour: red, ", nil,
			[]string{`aws:7:8: door.colour: no such key; known here: wait_secs, max_concurrency`},
		},
		{
			"unknown section", "aws", "door:", "dor:", nil,
			[]string{`aws:7:1: dor: no such key; did you mean door?`},
		},
		{
			"unknown key that is no plain text", "aws", "door:", `"a\nb":`, nil,
			[]string{`aws:7:1: "a\nb": no such key; known here: kind, env, region, queues, valkey, storage, door, admin, id_hash_salt, key_pepper, producers, providers, models, jobs, lanes, timing, routing, governor, traces, cassette, limiter, breaker, deploy`},
		},
		{
			"key twice", "aws", "env: dev", "env: dev\nenv: prod", nil,
			[]string{`aws:3:1: env: is given twice, on line 2 first`},
		},
		{
			"model twice", "aws", "  nova:", "  chat-a:", nil,
			[]string{`aws:25:3: models.chat-a: is given twice, on line 20 first`},
		},
		{
			"key is a list", "aws", "door: {", "door: {[a]: b, ", nil,
			[]string{`aws:7:8: door: a name here is no plain text`},
		},
		{
			"anchor", "aws", "queues: {", "queues: &q {", nil,
			[]string{`aws:4:9: queues: anchors (&) and aliases (*) are refused; write the value out`},
		},
		{
			"alias", "aws", "env: dev\nregion: us-east-1", "env: &e dev\nregion: *e", nil,
			[]string{
				`aws:2:6: env: anchors (&) and aliases (*) are refused; write the value out`,
				`aws:3:9: region: anchors (&) and aliases (*) are refused; write the value out`,
			},
		},
		{
			"merge", "aws", "door: {", "door: {<<: {a: b}, ", nil,
			[]string{`aws:7:8: door."<<": no such key; known here: wait_secs, max_concurrency`},
		},
		{
			"tag", "aws", "env: dev", "env: !!binary ZGV2", nil,
			[]string{`aws:2:6: env: tags (!) are refused; write the value alone`},
		},
		{
			"null", "aws", "env: dev", "env:", nil,
			[]string{`aws:2:5: env: has no value; give one or leave the key out`},
		},
		{
			"section is a number", "aws", "door: {wait_secs: 280}", "door: 280", nil,
			[]string{`aws:7:7: door: must be settings by name: wait_secs, max_concurrency`},
		},
		{
			"providers are a list", "local", "providers:\n", "providers: []\nx:\n", nil,
			[]string{
				`local:9:12: providers: must be entries by name`,
				`local:10:1: x: no such key; known here: kind, env, region, queues, valkey, storage, door, admin, id_hash_salt, key_pepper, producers, providers, models, jobs, lanes, timing, routing, governor, traces, cassette, limiter, breaker, deploy`,
				`local:16:38: models.any-model.targets[0].provider: no provider is named "fake"; providers: none`,
				`local:18:38: models.nova.targets[0].provider: no provider is named "bedrock"; providers: none`,
			},
		},
		{
			"targets are a mapping", "local", "targets: [{name: main, provider: fake}]", "targets: {name: main, provider: fake}", nil,
			[]string{`local:15:14: models.any-model.targets: must be a list of entries, each a mapping`},
		},
		{
			"an entry is text and is not shown", "local", "{name: main, provider: fake}", "sk-live-123", nil,
			[]string{`local:15:15: models.any-model.targets[0]: must be settings by name: name, provider, model_id, wires, service_tiers, max_concurrency, limiter_initial, bg_share, lane_max_concurrency, rpm, tpm, rate_window, rate_burst, rt_rate_share, breaker_threshold, breaker_cooldown_secs, attempt_timeout_secs, throttle_retry_attempts, retry_base_secs, retry_multiplier, retry_spread, retry_max_secs, throttle_retry_max_secs`},
		},
		{
			"a provider is text", "aws", "bedrock: {type: bedrock, region: eu-central-1}", "bedrock: aws", nil,
			[]string{`aws:17:12: providers.bedrock: must be settings by name: type, base_url, region, api_key, private, allowed_cidrs, connect_timeout_secs, read_timeout_secs, remote_media, refuses_stream_options, shared_max_concurrency, shared_rpm, shared_tpm, max_concurrency, limiter_initial, bg_share, lane_max_concurrency, rpm, tpm, rate_window, rate_burst, rt_rate_share, breaker_threshold, breaker_cooldown_secs, attempt_timeout_secs, throttle_retry_attempts, retry_base_secs, retry_multiplier, retry_spread, retry_max_secs, throttle_retry_max_secs, timeout_secs, embed_timeout_secs, rt_capacity_wait_secs, routing`},
		},
		{
			"list is text", "aws", "lanes: [rt, bg, bulk]", "lanes: rt", nil,
			[]string{`aws:21:12: models.chat-a.lanes: must be a list, such as [a, b]`},
		},
		{
			"list is empty", "aws", "lanes: [rt, bg, bulk]", "lanes: []", nil,
			[]string{`aws:21:5: models.chat-a.lanes: is empty; name at least one or leave the key out`},
		},
		{
			"word twice", "aws", "lanes: [rt, bg, bulk]", "lanes: [rt, bg, rt]", nil,
			[]string{`aws:21:21: models.chat-a.lanes[2]: "rt" is named twice`},
		},
		{
			"word is a number", "aws", "allowed_cidrs: [10.0.3.0/24]", "allowed_cidrs: [10]", nil,
			[]string{`aws:18:98: providers.local-vllm.allowed_cidrs[0]: must be text; put it in quotes: "10"`},
		},
		{
			"unknown word", "aws", "lanes: [rt, bg, bulk]", "lanes: [rt, bg, bulky]", nil,
			[]string{`aws:21:21: models.chat-a.lanes[2]: must be one of rt, bg, bulk, not "bulky"`},
		},
		{
			"unknown lane", "aws", "lanes:\n  rt:", "lanes:\n  rtt:", nil,
			[]string{`aws:30:3: lanes.rtt: no such lane; did you mean rt?`},
		},
		{
			"required is missing", "aws", "env: dev\n", "", nil,
			[]string{`aws: env: is missing: the environment's name`},
		},
		{
			"required in an entry is missing", "aws", "provider: openai, model_id: gpt-4o-mini", "model_id: gpt-4o-mini", nil,
			[]string{`aws:23:9: models.chat-a.targets[0].provider: is missing: name of a provider`},
		},
		{
			"no targets", "local", "targets: [{name: main, provider: fake}]", "targets: []", nil,
			[]string{`local:15:5: models.any-model.targets: needs at least one entry: places that serve it, in the order in which they are tried`},
		},
	})
}

func TestFaults_Values(t *testing.T) {
	t.Parallel()
	runFaults(t, []faultCase{
		{"text is a number", "aws", "env: dev", "env: 12", nil, []string{`aws:2:6: env: must be text; put it in quotes: "12"`}},
		{"text is empty", "aws", "env: dev", `env: ""`, nil, []string{`aws:2:6: env: is empty`}},
		{
			"pattern", "aws", "env: dev", "env: Dev_1", nil,
			[]string{`aws:2:6: env: must match [a-z0-9-]{1,16}, not "Dev_1": it is part of every Valkey key`},
		},
		{"words", "aws", "kind: aws", "kind: amazon", nil, []string{`aws:1:7: kind: must be one of aws, local, not "amazon"`}},
		{"number is text", "aws", "wait_secs: 280", `wait_secs: "280"`, nil, []string{`aws:7:19: door.wait_secs: must be seconds, not the text "280"`}},
		{"seconds with a unit", "aws", "wait_secs: 280", "wait_secs: 280s", nil, []string{`aws:7:19: door.wait_secs: must be seconds, not the text "280s"`}},
		{
			"seconds as a power", "aws", "wait_secs: 280", "wait_secs: 1e2", nil,
			[]string{`aws:7:19: door.wait_secs: must be a number of seconds such as 2 or 0.5, without a unit, not "1e2"`},
		},
		{
			"seconds not finite", "aws", "wait_secs: 280", "wait_secs: .inf", nil,
			[]string{`aws:7:19: door.wait_secs: must be a number of seconds such as 2 or 0.5, without a unit, not ".inf"`},
		},
		{
			"seconds too many", "aws", "wait_secs: 280", "wait_secs: 291", nil,
			[]string{`aws:7:19: door.wait_secs: must be 1 to 290, not 291: API Gateway cuts a connection that is silent for 300 s`},
		},
		{
			"seconds beyond a duration", "aws", "wait_secs: 280", "wait_secs: 99999999999999999999", nil,
			[]string{`aws:7:19: door.wait_secs: must be 1 to 290, not 99999999999999999999: API Gateway cuts a connection that is silent for 300 s`},
		},
		{
			"seconds negative", "aws", "rt_capacity_wait_secs: 30", "rt_capacity_wait_secs: -0.5", nil,
			[]string{`aws:31:60: timing.rt_capacity_wait_secs: must be 0 to 900, not -0.5: Lambda ends every function after 900 s`},
		},
		{
			"whole seconds", "aws", "function_timeout_secs: 120", "function_timeout_secs: 120.5", nil,
			[]string{`aws:30:109: lanes.rt.function_timeout_secs: must be a whole number of seconds, in plain digits, not "120.5"`},
		},
		{
			"count with underscores", "aws", "inline_max_bytes: 204800", "inline_max_bytes: 204_800", nil,
			[]string{`aws:6:29: storage.inline_max_bytes: must be a whole number, in plain digits, not "204_800"`},
		},
		{
			"count that may be octal", "aws", "inline_max_bytes: 204800", "inline_max_bytes: 0204800", nil,
			[]string{`aws:6:29: storage.inline_max_bytes: must be a whole number, in plain digits, not "0204800"`},
		},
		{
			"inline bytes", "aws", "inline_max_bytes: 204800", "inline_max_bytes: 1048576", nil,
			[]string{`aws:6:29: storage.inline_max_bytes: must be 1024 to 921600, not 1048576: an SQS message holds 1 MiB, and the envelope around the body needs room`},
		},
		{
			"function timeout", "aws", "function_timeout_secs: 120", "function_timeout_secs: 901", nil,
			[]string{`aws:30:109: lanes.rt.function_timeout_secs: must be 30 to 900, not 901: Lambda ends every function after 900 s, and under 30 s no attempt is worth beginning`},
		},
		{
			"batch size", "aws", "batch_size: 10", "batch_size: 11", nil,
			[]string{`aws:30:20: lanes.rt.batch_size: must be 1 to 10, not 11: beyond 10 Lambda wants a batching window, which every message would wait for`},
		},
		{
			"lane concurrency", "aws", "{batch_size: 10, max_concurrency: 20", "{batch_size: 10, max_concurrency: 1", nil,
			[]string{`aws:30:41: lanes.rt.max_concurrency: must be 2 to 1000, not 1: what an SQS event source takes`},
		},
		{
			"target concurrency", "aws", "wires: [openai], max_concurrency: 20", "wires: [openai], max_concurrency: 0", nil,
			[]string{`aws:23:97: models.chat-a.targets[0].max_concurrency: must be 1 to 2000, not 0: leave it out for no cap; pause the queue to stop calls`},
		},
		{
			"true or false as text", "aws", "cluster: true", `cluster: "yes"`, nil,
			[]string{`aws:5:19: valkey.cluster: must be true or false, not the text "yes"`},
		},
		{
			"true or false in capitals", "aws", "cluster: true", "cluster: TRUE", nil,
			[]string{`aws:5:19: valkey.cluster: must be true or false, not "TRUE"`},
		},
	})
}

func TestFaults_ErrorListsAllOfThem(t *testing.T) {
	t.Parallel()
	fs := Faults{{File: "a.yaml", Line: 1, Column: 2, Path: "env", Problem: "is empty"}, {Env: "LLMQ_X", Problem: "no such variable"}}
	if got, want := fs.Error(), "configuration: 2 faults\n  a.yaml:1:2: env: is empty\n  LLMQ_X: no such variable"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestFaults_ListOfKnownNamesIsBounded(t *testing.T) {
	t.Parallel()
	known := make([]string, maxListed+1)
	for i := range known {
		known[i] = fmt.Sprintf("provider-%d", i)
	}
	known[1] = "a\nb"
	got := didYouMean("x", known, "providers")
	if !strings.HasPrefix(got, `; providers: provider-0, "a\nb", provider-2, `) || !strings.HasSuffix(got, fmt.Sprintf(", provider-%d, …", maxListed-1)) {
		t.Errorf("got %s", got)
	}
}

func TestFaults_AreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	_, err := Parse("f", []byte(b.String()), nil)
	if n := len(problems(t, err)); n != maxFaults {
		t.Errorf("%d faults, want %d", n, maxFaults)
	}
}

// Every fault of one thoroughly bad file, as a person sees them.
func TestFaults_AllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Load("testdata/bad.yaml", []string{"LLMQ_DOOR_WAIT_SEC=1", "LLMQ_ATTEMPT_TIMEOUT_SECS=soon", "LLMQ_REDIS_PASSWORD=hunter2"})
	if err == nil {
		t.Fatal("no fault found")
	}
	golden(t, "testdata/bad.golden", []byte(err.Error()+"\n"))
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; make it with -update", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is stale; look at the change, then run with -update: %s", path, diff)
	}
}
