package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustLoad(t *testing.T, path string, env ...string) *Config {
	t.Helper()
	c, err := Load(path, env)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLoad_AWSFileIsReadWhole(t *testing.T) {
	t.Parallel()
	got := mustLoad(t, "testdata/aws.yaml")
	openai := []llmq.Wire{llmq.WireOpenAI}
	want := &Config{
		Kind: KindAWS, Env: "dev", Region: "us-east-1",
		Queues:    Queues{Prefix: "llm-dev", MaxMessageBytes: 1 << 20},
		Valkey:    Valkey{Cluster: true, TLS: true, Network: "public", CommandTimeout: 500 * time.Millisecond, DialTimeout: 2 * time.Second, MaxConnections: 32},
		Storage:   Storage{InlineMaxBytes: 204800},
		Door:      Door{Wait: 280 * time.Second, MaxConcurrency: 1000},
		KeyPepper: Secret{ARN: "arn:aws:secretsmanager:us-east-1:123456789012:secret:llmq/key-pepper-AbCdEf"},
		Providers: []Provider{
			{
				Name: "openai", Type: ProviderOpenAI, BaseURL: "https://api.openai.com/v1",
				APIKey:         Secret{ARN: "arn:aws:secretsmanager:us-east-1:123456789012:secret:openai-AbCdEf"},
				ConnectTimeout: 10 * time.Second, ReadTimeout: 300 * time.Second, RemoteMedia: "refuse",
			},
			{Name: "bedrock", Type: ProviderBedrock, Region: "eu-central-1", ConnectTimeout: 10 * time.Second, ReadTimeout: 300 * time.Second, RemoteMedia: "refuse"},
			{
				Name: "local-vllm", Type: ProviderOpenAI, BaseURL: "http://10.0.3.7:8000/v1", Private: true, AllowedCIDRs: []string{"10.0.3.0/24"},
				ConnectTimeout: 10 * time.Second, ReadTimeout: 300 * time.Second, RemoteMedia: "refuse",
			},
		},
		Models: []Model{
			{Alias: "chat-a", Lanes: llmq.Lanes(), Targets: []Target{
				{Name: "main", Provider: "openai", ModelID: "gpt-4o-mini", Wires: openai, MaxConcurrency: 20},
				{Name: "own", Provider: "local-vllm", ModelID: "Qwen/Qwen3-8B", Wires: openai},
			}},
			{Alias: "nova", Lanes: []llmq.Lane{llmq.LaneRT, llmq.LaneBG}, Targets: []Target{
				{Name: "eu", Provider: "bedrock", ModelID: "eu.amazon.nova-lite-v1:0", Wires: []llmq.Wire{llmq.WireConverse, llmq.WireInvoke}},
			}},
		},
		Lanes: map[llmq.Lane]Lane{
			llmq.LaneRT:   {FunctionTimeout: 120 * time.Second, Timeout: 90 * time.Second, MaxTimeout: 300 * time.Second, BatchSize: 10, MaxConcurrency: 20, MemoryMB: 256},
			llmq.LaneBG:   {FunctionTimeout: 330 * time.Second, Timeout: 300 * time.Second, MaxTimeout: time.Hour, BatchSize: 10, MaxConcurrency: 10, MemoryMB: 256},
			llmq.LaneBulk: {FunctionTimeout: 900 * time.Second, Timeout: 900 * time.Second, MaxTimeout: 12 * time.Hour, BatchSize: 10, MaxConcurrency: 10, MemoryMB: 256},
		},
		Limiter: Limiter{
			Max: 2000, BackgroundShare: Share{Of: 0.8, Given: true}, RateWindow: RateSmooth, RTRateShare: Share{Of: 0.2, Given: true},
			Window: time.Second, MinThrottles: 2, LossTolerance: Share{Of: 0.05, Given: true}, PauseRatio: Share{Of: 0.5, Given: true},
			Pause: time.Second, Lease: time.Minute,
		},
		Breaker:  Breaker{Threshold: 5, Window: time.Minute, Cooldown: 30 * time.Second},
		Governor: Governor{Enabled: true},
		Deploy:   Deploy{LambdaConcurrency: 1000, NAT: NATNone, Endpoints: true},
		IDSalt:   Secret{ARN: "arn:aws:secretsmanager:us-east-1:111122223333:secret:llmq/dev/id-salt-MnOpQr"},
		Timing: Timing{
			AttemptTimeout: 180 * time.Second, FirstContent: 120 * time.Second, StreamStall: time.Minute, RTCapacityWait: 30 * time.Second, SQSSendTimeout: 5 * time.Second, SQSBatchWait: 20 * time.Millisecond, Drain: 90 * time.Second,
			SQSTimeoutsToFailover: 3, SQSFailover: 300 * time.Second, ValkeyWait: 10 * time.Second,
			RetryAttempts: 3, MaxReceives: 10, ThrottleRetryAttempts: 6, RetryBase: time.Second, RetryMultiplier: 4, RetrySpread: 2.5, RetryMax: 30 * time.Second,
			ThrottleRetryMax: 10 * time.Second, Reload: 30 * time.Second,
		},
		Routing: Routing{Direct: DirectOutage, RT: RoutingQueue, RTQueuePercent: Number{Given: true}},
		Traces:  Traces{SampleRatio: Share{Of: 1, Given: true}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Error(diff)
	}
}

func TestLoad_LocalLoopbackProviderBecomesPrivate(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/local.yaml")
	for _, p := range c.Providers {
		if diff := cmp.Diff([]string{"127.0.0.0/8", "::1/128"}, p.AllowedCIDRs); !p.Private || diff != "" {
			t.Errorf("%s: private %v, CIDRs %s", p.Name, p.Private, diff)
		}
	}
	if got, want := c.Providers[0].BaseURL, "http://localhost:8090/v1"; got != want {
		t.Errorf("base URL %q, want %q: no trailing slash", got, want)
	}
	if got, want := c.Providers[1].Region, "us-east-1"; got != want {
		t.Errorf("region of bedrock %q, want the environment's, %q", got, want)
	}
	if c.Timing.RTCapacityWait != 0 {
		t.Errorf("a zero that was given became %v", c.Timing.RTCapacityWait)
	}
}

func TestLoad_VariablesWinOverTheFile(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/local.yaml",
		"LLMQ_AWS_REGION=eu-west-1", "LLMQ_SQS_ENDPOINT_URL=http://sqs:9324", "LLMQ_REDIS_HOST=valkey", "LLMQ_REDIS_PORT=7000",
		"LLMQ_REDIS_USERNAME=worker", "LLMQ_REDIS_PASSWORD=hunter2", "LLMQ_REDIS_SSL=true", "LLMQ_REDIS_SOCKET_TIMEOUT_SECS=0.75",
		"LLMQ_REDIS_CONNECT_TIMEOUT_SECS=3", "LLMQ_S3_OFFLOAD_BUCKET=other", "LLMQ_S3_ENDPOINT_URL=http://s3:9000", "LLMQ_INLINE_MAX_BYTES=2048",
		"LLMQ_DOOR_WAIT_SECS=10", "LLMQ_TIMEOUT_RT_SECS=11", "LLMQ_TIMEOUT_BG_SECS=12", "LLMQ_TIMEOUT_BULK_SECS=13.5",
		"LLMQ_ATTEMPT_TIMEOUT_SECS=14", "LLMQ_FIRST_CONTENT_TIMEOUT_SECS=21", "LLMQ_STREAM_STALL_TIMEOUT_SECS=20", "LLMQ_RT_CAPACITY_WAIT_SECS=15", "LLMQ_SQS_SEND_TIMEOUT_SECS=16", "LLMQ_SQS_BATCH_WAIT_SECS=0", "LLMQ_CONSUMER_DRAIN_SECS=19",
		"LLMQ_PROVIDER_READ_TIMEOUT_SECS=17", "LLMQ_PROVIDER_CONNECT_TIMEOUT_SECS=18",
		`LLMQ_AC_MAX_BY_MODEL={"nova@main": 7, "nova": 6, "any-model": 5}`,
		"LLMQ_CONFIG=x", "LLMQ_LOCAL_PORT=8080", "LLMQ_DEV_PEPPER=secret", "PATH=/bin", "MALFORMED")
	lane := func(l llmq.Lane) time.Duration { return c.Lanes[l].Timeout }
	got := []any{
		c.Region, c.Queues.Endpoint, c.Valkey.Address, c.Valkey.Username, c.Valkey.Password, c.Valkey.TLS, c.Valkey.CommandTimeout,
		c.Valkey.DialTimeout, c.Storage.Bucket, c.Storage.Endpoint, c.Storage.InlineMaxBytes,
		c.Door.Wait, lane(llmq.LaneRT), lane(llmq.LaneBG), lane(llmq.LaneBulk),
		c.Timing.AttemptTimeout, c.Timing.FirstContent, c.Timing.StreamStall, c.Timing.RTCapacityWait, c.Timing.SQSSendTimeout, c.Timing.SQSBatchWait, c.Timing.Drain,
		c.Providers[0].ReadTimeout, c.Providers[1].ReadTimeout, c.Providers[0].ConnectTimeout,
		c.Models[1].Targets[0].MaxConcurrency, c.Models[0].Targets[0].MaxConcurrency,
	}
	s := time.Second
	want := []any{
		"eu-west-1", "http://sqs:9324", "valkey:7000", "worker",
		Secret{Env: "LLMQ_REDIS_PASSWORD"},
		true, 750 * time.Millisecond,
		3 * s, "other", "http://s3:9000", 2048,
		10 * s, 11 * s, 12 * s, 13500 * time.Millisecond,
		14 * s, 21 * s, 20 * s, 15 * s, 16 * s, time.Duration(0), 19 * s,
		17 * s, 17 * s, 18 * s,
		7, 5,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoad_VariablesOfSecretsAreKnown(t *testing.T) {
	t.Parallel()
	data := strings.NewReplacer("kind: local", "kind: local\nadmin: {key: {env: LLMQ_A}}", "{env: LLMQ_REDIS_PASSWORD}", "{env: LLMQ_B}",
		"env: LLMQ_DEV_PEPPER", "env: LLMQ_C", `fake: {`, `fake: {api_key: {env: LLMQ_D}, `).Replace(read(t, "testdata/local.yaml"))
	if _, err := Parse("x", []byte(data), []string{"LLMQ_A=1", "LLMQ_B=2", "LLMQ_C=3", "LLMQ_D=4"}); err != nil {
		t.Error(err)
	}
}

func TestLoad_RedisVariables(t *testing.T) {
	t.Parallel()
	type valkey struct {
		Address, Username string
		TLS               bool
	}
	for _, tc := range []struct {
		name string
		env  []string
		want valkey
	}{
		{"URL with TLS and user", []string{"LLMQ_REDIS_URL=rediss://bob@cache:7001/0"}, valkey{"cache:7001", "bob", true}},
		{"URL without port", []string{"LLMQ_REDIS_URL=redis://cache"}, valkey{"cache:6379", "", false}},
		{"host alone keeps the port", []string{"LLMQ_REDIS_HOST=cache"}, valkey{"cache:6379", "", false}},
		{"port alone keeps the host", []string{"LLMQ_REDIS_PORT=7001"}, valkey{"127.0.0.1:7001", "", false}},
		{"host is an IPv6 address", []string{"LLMQ_REDIS_HOST=::1"}, valkey{"[::1]:6379", "", false}},
		{"empty is unset", []string{"LLMQ_REDIS_URL=", "LLMQ_REDIS_HOST="}, valkey{"127.0.0.1:6379", "", false}},
		{"last of a name wins", []string{"LLMQ_REDIS_PORT=1", "LLMQ_REDIS_PORT=2"}, valkey{"127.0.0.1:2", "", false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := mustLoad(t, "testdata/local.yaml", tc.env...).Valkey
			if diff := cmp.Diff(tc.want, valkey{v.Address, v.Username, v.TLS}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoad_LocalAddressHasADefault(t *testing.T) {
	t.Parallel()
	data := strings.Replace(read(t, "testdata/local.yaml"), `address: "127.0.0.1:6379", `, "", 1)
	c, err := Parse("x", []byte(data), nil)
	if err != nil || c.Valkey.Address != "localhost:6379" {
		t.Errorf("address %v, error %v", c, err)
	}
}

func TestLoad_AWSFunctionTakesAddressesFromItsDeployment(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/aws.yaml", "LAMBDA_TASK_ROOT=/var/task",
		"LLMQ_REDIS_HOST=dev.serverless.use1.cache.amazonaws.com", "LLMQ_S3_OFFLOAD_BUCKET=dev-data",
		"LLMQ_S3_STATE_BUCKET=dev-state", "LLMQ_KEY_PEPPER_ARN=arn:aws:secretsmanager:us-east-1:111122223333:secret:p-AbCdEf",
		"LLMQ_SQS_URL_BASE=https://sqs.us-east-1.amazonaws.com/111122223333", "LLMQ_REDIS_CACHE_NAME=llmq-dev",
		"LLMQ_SQS_SENDER_IDS=AROADOOR00000001,AROAADMIN0000001", "LLMQ_SQS_WORKER_IDS=AROAWORKER000001")
	if got, want := c.Valkey.Address, "dev.serverless.use1.cache.amazonaws.com:6379"; got != want {
		t.Errorf("address %q, want %q", got, want)
	}
	if c.Storage.StateBucket != "dev-state" || c.KeyPepper != (Secret{ARN: "arn:aws:secretsmanager:us-east-1:111122223333:secret:p-AbCdEf"}) {
		t.Errorf("keys lie in %q under %+v", c.Storage.StateBucket, c.KeyPepper)
	}
}

func TestLoad_LocalKindRunsWhereLambdaIsPlayed(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{
		{"LAMBDA_TASK_ROOT=/var/task", "AWS_SAM_LOCAL=true"},
		{"LAMBDA_TASK_ROOT=/tmp/llmq/worker"},
	} {
		mustLoad(t, "testdata/local.yaml", env...)
	}
}

func TestLoad_UnreadableFileKeepsItsCause(t *testing.T) {
	t.Parallel()
	_, err := Load("testdata/none.yaml", nil)
	if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, llmq.CodeConfiguration) {
		t.Errorf("causes are missing from %v", err)
	}
	if got, want := err.Error(), "configuration: testdata/none.yaml: can't be read: no such file or directory"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestPath_VariableThenTaskRootThenHere(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		env  []string
		want string
	}{
		{nil, "llmq.yaml"},
		{[]string{"LAMBDA_TASK_ROOT=/var/task"}, "/var/task/llmq.yaml"},
		{[]string{"LAMBDA_TASK_ROOT=/var/task", "LLMQ_CONFIG=/etc/llmq/prod.yaml"}, "/etc/llmq/prod.yaml"},
	} {
		if got := Path(tc.env); got != tc.want {
			t.Errorf("Path(%q) = %q, want %q", tc.env, got, tc.want)
		}
	}
}

func TestDefault_HoldsEveryDefault(t *testing.T) {
	t.Parallel()
	got := Default(KindAWS)
	want := mustLoad(t, "testdata/aws.yaml")
	want.Env, want.Region, want.Queues.Prefix, want.KeyPepper, want.IDSalt, want.Providers, want.Models = "", "", "llm", Secret{}, Secret{}, nil, nil
	rt := want.Lanes[llmq.LaneRT]
	rt.MaxConcurrency = 10
	want.Lanes[llmq.LaneRT] = rt
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Error(diff)
	}
	if got := Default(KindLocal).Valkey.Address; got != "localhost:6379" {
		t.Errorf("local address %q", got)
	}
}

func TestMarshal_LoadReadsTheSameBack(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"testdata/aws.yaml", "testdata/local.yaml"} {
		c := mustLoad(t, path, "LLMQ_REDIS_HOST=valkey", "LLMQ_S3_OFFLOAD_BUCKET=data", "LLMQ_TIMEOUT_RT_SECS=1.000000001")
		file := filepath.Join(t.TempDir(), "llmq.yaml")
		if err := c.WriteFile(file); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, mustLoad(t, file), cmpopts.IgnoreUnexported(Config{})); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, error %v", info.Mode(), err)
		}
	}
}

func TestMarshal_FillsAConfigBuiltInCode(t *testing.T) {
	t.Parallel()
	c := Default(KindLocal)
	c.Env = "test"
	c.KeyPepper, c.Storage.StateBucket = Secret{Env: "LLMQ_DEV_PEPPER"}, "llmq-state"
	c.Providers = []Provider{{Name: "fake", Type: ProviderOpenAI, BaseURL: "http://127.0.0.1:1/v1"}}
	c.Models = []Model{{Alias: "m", Targets: []Target{{Name: "main", Provider: "fake", ModelID: "x"}}}}
	b, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("x", b, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Limiter.Max != 2000 || got.Providers[0].ReadTimeout != 300*time.Second || len(got.Models[0].Lanes) != 3 {
		t.Errorf("defaults are missing: %+v", got)
	}
}

func TestMarshal_RefusesWhatLoadWould(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/local.yaml")
	c.Models[0].Targets[0].Provider = "fakr"
	_, err := c.Marshal()
	if !errors.Is(err, llmq.CodeConfiguration) || !strings.Contains(err.Error(), "did you mean fake?") {
		t.Errorf("got %v", err)
	}
}

func TestConfig_CatalogueAndQueuesAreThoseOfTheFile(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/aws.yaml")
	if diff := cmp.Diff([]queue.Name{"llm-dev-chat-a-rt", "llm-dev-chat-a", "llm-dev-chat-a-bulk", "llm-dev-nova-rt", "llm-dev-nova"}, c.QueueNames()); diff != "" {
		t.Error(diff)
	}
	m, targets, err := c.Catalogue().Resolve(llmq.ModelRef{Alias: "chat-a", Target: "own"}, llmq.WireOpenAI)
	want := []llmq.Target{{
		Model: "chat-a", Name: "own", Provider: "local-vllm", ModelID: "Qwen/Qwen3-8B", Wires: []llmq.Wire{llmq.WireOpenAI},
		Limits: llmq.Limits{BackgroundShare: 0.8, Breaker: llmq.Breaker{Threshold: 5, Window: time.Minute, Cooldown: 30 * time.Second}},
	}}
	if diff := cmp.Diff(want, targets, cmpopts.IgnoreFields(llmq.Target{}, "Pace")); err != nil || m.Alias != "chat-a" || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

// The longest names that the patterns allow must fit SQS, for no rule checks them.
func TestQueueNames_LongestFitSQS(t *testing.T) {
	t.Parallel()
	c := &Config{Queues: Queues{Prefix: strings.Repeat("p", 20)}, Models: []Model{{Alias: strings.Repeat("a", 40), Lanes: llmq.Lanes()}}}
	if !prefixPattern.MatchString(c.Queues.Prefix) || prefixPattern.MatchString(c.Queues.Prefix+"p") ||
		!aliasPattern.MatchString(c.Models[0].Alias) || aliasPattern.MatchString(c.Models[0].Alias+"a") {
		t.Fatal("these are not the longest names")
	}
	for _, n := range c.QueueNames() {
		if len(n.DLQ()) > 80 {
			t.Errorf("%s has %d characters", n.DLQ(), len(n.DLQ()))
		}
	}
}

func read(t testing.TB, path string) string { return string(mustRead(t, path)) }

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
