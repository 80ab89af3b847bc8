package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFaults_Place(t *testing.T) {
	t.Parallel()
	runFaults(t, []faultCase{
		{
			"local inside Lambda", "local", "kind: local", "kind: local",
			[]string{"LAMBDA_TASK_ROOT=/var/task"},
			[]string{`local:1:7: kind: local is refused inside Lambda: it allows plain text and stand-ins for AWS; deploy a kind: aws file`},
		},
		{
			"no addresses inside Lambda", "aws", "kind: aws", "kind: aws",
			[]string{"LAMBDA_TASK_ROOT=/var/task"},
			[]string{
				`aws:4:1: queues.url_base: is missing inside Lambda; the deployment sets LLMQ_SQS_URL_BASE`,
				`aws:4:1: queues.sender_ids: is missing inside Lambda; the deployment sets LLMQ_SQS_SENDER_IDS`,
				`aws:4:1: queues.worker_ids: is missing inside Lambda; the deployment sets LLMQ_SQS_WORKER_IDS`,
				`aws:5:1: valkey.address: is missing inside Lambda; the deployment sets LLMQ_REDIS_HOST and LLMQ_REDIS_PORT`,
				`aws:5:1: valkey.cache_name: is missing inside Lambda; the deployment sets LLMQ_REDIS_CACHE_NAME`,
				`aws:6:1: storage.bucket: is missing inside Lambda; the deployment sets LLMQ_S3_OFFLOAD_BUCKET`,
				`aws:6:1: storage.state_bucket: is missing inside Lambda; the deployment sets LLMQ_S3_STATE_BUCKET`,
			},
		},
		{
			"no TLS on aws", "aws", "cluster: true", "tls: false", nil,
			[]string{`aws:5:15: valkey.tls: must be true on aws: plain text is for kind: local only`},
		},
		{
			"no TLS on aws by a variable", "aws", "kind: aws", "kind: aws",
			[]string{"LLMQ_REDIS_URL=redis://cache:6379"},
			[]string{`LLMQ_REDIS_URL: valkey.tls: must be true on aws: plain text is for kind: local only`},
		},
		{
			"SEC30 built-in salt on aws", "aws", "id_hash_salt: {arn: \"arn:aws:secretsmanager:us-east-1:111122223333:secret:llmq/dev/id-salt-MnOpQr\"}", "", nil,
			[]string{`aws: id_hash_salt: is missing; on aws the built-in salt is refused, for everybody knows it: give {arn: ...} of Secrets Manager`},
		},
		{
			"SEC30 salt in a variable on aws", "aws", "kind: aws", "kind: aws",
			[]string{"LLMQ_ID_HASH_SALT=salted-enough"},
			[]string{`LLMQ_ID_HASH_SALT: id_hash_salt.env: is refused on aws: a function's variables are readable; use {arn: ...} of Secrets Manager`},
		},
		{
			"admin key on aws", "aws", "kind: aws", "kind: aws\nadmin: {key: {arn: \"arn:aws:secretsmanager:eu-west-1:111122223333:secret:k\"}}", nil,
			[]string{`aws:2:9: admin.key: is refused on aws: IAM signs operators in, with no key to lose`},
		},
		{
			"plain queue URLs on aws", "aws", "kind: aws", "kind: aws",
			[]string{"LLMQ_SQS_URL_BASE=http://sqs.eu-west-1.amazonaws.com/111122223333"},
			[]string{`LLMQ_SQS_URL_BASE: queues.url_base: must be https on aws`},
		},
		{
			"password on aws", "aws", "cluster: true", "password: {env: PW}", nil,
			[]string{`aws:5:10: valkey.password: is refused on aws: IAM signs in, with no password to lose`},
		},
		{
			"queue endpoint on aws", "aws", "prefix: llm-dev", `endpoint_url: "http://127.0.0.1:1"`, nil,
			[]string{`aws:4:24: queues.endpoint_url: is refused on aws: endpoints of stand-ins are for kind: local only`},
		},
		{
			"store endpoint on aws by a variable", "aws", "kind: aws", "kind: aws",
			[]string{"LLMQ_S3_ENDPOINT_URL=http://127.0.0.1:1"},
			[]string{`LLMQ_S3_ENDPOINT_URL: storage.endpoint_url: is refused on aws: endpoints of stand-ins are for kind: local only`},
		},
		{
			"endpoint that is no URL", "local", `endpoint_url: "http://127.0.0.1:9324"`, `endpoint_url: "127.0.0.1:9324"`, nil,
			[]string{`local:4:37: queues.endpoint_url: must be a URL such as https://api.openai.com/v1`},
		},
		{
			"address without a port", "local", `address: "127.0.0.1:6379"`, "address: valkey", nil,
			[]string{`local:5:19: valkey.address: must be host:port, such as localhost:6379`},
		},
		{
			"address with a port that is none", "local", `address: "127.0.0.1:6379"`, `address: "valkey:70000"`, nil,
			[]string{`local:5:19: valkey.address: must be host:port, such as localhost:6379`},
		},
		{
			"B10 prefix with .fifo", "aws", "prefix: llm-dev", "prefix: llm.fifo", nil,
			[]string{`aws:4:18: queues.prefix: must not end so: a released message would block its whole group in a .fifo queue`},
		},
	})
}

func TestFaults_PepperAndSecrets(t *testing.T) {
	t.Parallel()
	const local = "key_pepper:\n  env: LLMQ_DEV_PEPPER\n"
	runFaults(t, []faultCase{
		{
			"pepper of the operator's key", "local", local, "admin: {key: {env: LLMQ_DEV_PEPPER}}\n" + local, nil,
			[]string{`local:8:1: key_pepper: is admin.key too; each is a secret of its own`},
		},
		{
			"no pepper locally", "local", local, "", nil,
			[]string{`local: key_pepper: is missing; callers' keys are sealed with it, and the door has no open mode: give {env: NAME} of a variable with at least 32 random characters`},
		},
		{
			"no state bucket locally", "local", "state_bucket: llmq-state, ", "", nil,
			[]string{`local:6:1: storage.state_bucket: is missing; callers' keys lie there, and the door has no open mode`},
		},
		{
			"keys as they were", "local", local, local + "keys: []\n", nil,
			[]string{`local:9:1: keys: no such key; known here: kind, env, region, queues, valkey, storage, door, admin, id_hash_salt, key_pepper, producers, providers, models, jobs, lanes, timing, routing, governor, traces, cassette, limiter, breaker, deploy`},
		},
		{
			"secret in the file", "aws", apiKey, "api_key: sk-live-123", nil,
			[]string{`aws:16:14: providers.openai.api_key: must be a reference, {env: NAME} or {arn: ARN}; a secret itself never stands in the file`},
		},
		{
			"secret as a variable's name", "local", "env: LLMQ_DEV_PEPPER", "env: sk-live-123", nil,
			[]string{`local:8:8: key_pepper.env: must be the name of a variable, [A-Za-z_][A-Za-z0-9_]{0,127}, not the secret itself`},
		},
		{
			"secret as an ARN", "aws", awsPepper, "arn: sk-live-123", nil,
			[]string{`aws:11:10: key_pepper.arn: must be the ARN of a Secrets Manager secret, arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME`},
		},
		{
			"secret as a number", "aws", awsPepper, "arn: 123456", nil,
			[]string{`aws:11:10: key_pepper.arn: must be the name of a variable or an ARN, as text`},
		},
		{
			"unknown part", "aws", awsPepper, "value: sk-live-123", nil,
			[]string{`aws:11:5: key_pepper.value: no such key; a secret is {env: NAME} or {arn: ARN}`},
		},
		{
			"empty reference", "aws", "key_pepper:\n    " + awsPepper, "key_pepper: {}", nil,
			[]string{`aws:10:1: key_pepper: is empty; a secret is {env: NAME} or {arn: ARN}`},
		},
		{
			"both parts", "local", "  env: LLMQ_DEV_PEPPER", "  {env: LLMQ_DEV_PEPPER, arn: \"arn:aws:x\"}", nil,
			[]string{`local:7:1: key_pepper: has both env and arn; one of them is enough`},
		},
		{
			"variable on aws", "aws", awsPepper, "env: TEAM_A", nil,
			[]string{`aws:11:10: key_pepper.env: is refused on aws: a function's variables are readable; use {arn: ...} of Secrets Manager`},
		},
		{
			"ARN locally", "local", "env: LLMQ_DEV_PEPPER", `arn: "arn:aws:secretsmanager:us-east-1:123456789012:secret:x"`, nil,
			[]string{`local:8:8: key_pepper.arn: is refused in kind: local, which reaches no AWS account; use {env: NAME}`},
		},
		{
			"the deployment's ARN locally", "local", local, "",
			[]string{"LLMQ_KEY_PEPPER_ARN=arn:aws:secretsmanager:us-east-1:123456789012:secret:x"},
			[]string{`LLMQ_KEY_PEPPER_ARN: key_pepper.arn: is refused in kind: local, which reaches no AWS account; use {env: NAME}`},
		},
		{
			"the pepper itself on aws", "aws", awsPepper, awsPepper,
			[]string{"LLMQ_KEY_PEPPER=canary"},
			[]string{`LLMQ_KEY_PEPPER: key_pepper.env: is refused on aws: a function's variables are readable; use {arn: ...} of Secrets Manager`},
		},
	})
}

func TestFaults_Providers(t *testing.T) {
	t.Parallel()
	const openaiURL = "base_url: https://api.openai.com/v1"
	url := func(name, raw, problem string) faultCase {
		return faultCase{name, "aws", openaiURL, "base_url: " + `"` + raw + `"`, nil, []string{"aws:15:15: providers.openai.base_url: " + problem}}
	}
	const addresses = "must have a host name; an address is for private providers (private: true with allowed_cidrs)"
	const plainHTTP = "must be https; http is for private providers (private: true with allowed_cidrs)"
	const looksLike = "has a host that some programs read as an address; write addresses as 10.0.3.7"
	const noURL = "must be a URL such as https://api.openai.com/v1"
	runFaults(t, []faultCase{
		url("plain http", "http://api.openai.com/v1", plainHTTP),
		url("address", "https://93.184.216.34/v1", addresses),
		url("IPv6 address", "https://[2001:db8::1]/v1", addresses),
		url("address with a zone", "https://[fe80::1%25eth0]/v1", "must hold no zone in its address"),
		url("address as a number", "https://2130706433/v1", looksLike),
		url("address in hexadecimal", "https://0x7f.0x1/v1", looksLike),
		url("address with a trailing dot", "https://127.0.0.1./v1", addresses),
		url("user", "https://user@api.openai.com/v1", "must hold no user or password; a key is given as a secret"),
		url("password, not shown", "https://a:hunter2@api.openai.com/v1", "must hold no user or password; a key is given as a secret"),
		url("query", "https://api.openai.com/v1?key=hunter2", "must end after the path, without ? and #"),
		url("empty query", "https://api.openai.com/v1?", "must end after the path, without ? and #"),
		url("fragment", "https://api.openai.com/v1#", "must end after the path, without ? and #"),
		url("other scheme", "ftp://api.openai.com/v1", noURL),
		url("no scheme", "api.openai.com/v1", noURL),
		url("no host", "https:///v1", noURL),
		url("port", "https://api.openai.com:0/v1", "has a port that is none; ports are 1 to 65535"),
		url("empty port", "https://api.openai.com:/v1", "has a port that is none; ports are 1 to 65535"),
		url("host with a space", "https://api openai.com/v1", noURL),
		url("host that is no name", "https://api..openai.com/v1", "has a host that is no name: letters, digits and hyphens, parted by dots"),
		url("dots in the path", "https://api.openai.com/v1/../admin", "must have a plain path, without //, . or .. and escapes"),
		url("escape in the path", "https://api.openai.com/v1%2Fx", "must have a plain path, without //, . or .. and escapes"),
		url("loopback by name", "https://localhost/v1", "is this function itself; loopback is for kind: local only"),
		{
			"plain http locally", "local", "http://localhost:8090/v1/", "http://fakellm:8090/v1", nil,
			[]string{
				`local:10:3: providers.fake.api_key: is missing: type: openai needs it, but for a private provider`,
				`local:10:34: providers.fake.base_url: must be https; http is for private providers (private: true with allowed_cidrs) or on loopback`,
			},
		},
		{
			"no base URL", "aws", openaiURL + "\n", "\n", nil,
			[]string{`aws:13:3: providers.openai.base_url: is missing: type: openai needs it, e.g. https://api.openai.com/v1`},
		},
		{
			"no API key", "aws", apiKey, "", nil,
			[]string{`aws:13:3: providers.openai.api_key: is missing: type: openai needs it, but for a private provider`},
		},
		{
			"region of openai", "aws", openaiURL, openaiURL + "\n    region: us-east-1", nil,
			[]string{`aws:16:13: providers.openai.region: is for type: bedrock only`},
		},
		{
			"base URL of bedrock", "aws", "region: eu-central-1}", "base_url: https://x.example.com}", nil,
			[]string{`aws:17:38: providers.bedrock.base_url: is refused for type: bedrock on aws: endpoints of stand-ins are for kind: local only`},
		},
		{
			"private without CIDRs", "aws", ", allowed_cidrs: [10.0.3.0/24]", "", nil,
			[]string{`aws:18:3: providers.local-vllm.allowed_cidrs: is missing: a private provider names the only addresses that may be dialled, e.g. [10.0.3.0/24]`},
		},
		{
			"CIDRs without private", "aws", openaiURL, openaiURL + "\n    allowed_cidrs: [10.0.3.0/24]", nil,
			[]string{`aws:16:5: providers.openai.allowed_cidrs: means nothing without private: true`},
		},
		{
			"address outside the CIDRs", "aws", "10.0.3.7", "10.0.4.7", nil,
			[]string{`aws:18:40: providers.local-vllm.base_url: has the address 10.0.4.7, which allowed_cidrs leaves out`},
		},
		{
			"CIDR without a length", "aws", "10.0.3.0/24]", "10.0.3.0/24, 10.0.3.7]", nil,
			[]string{`aws:18:111: providers.local-vllm.allowed_cidrs[1]: must be addresses such as 10.0.3.0/24 or fd00::/8, not "10.0.3.7"`},
		},
		{
			"CIDR with spare bits", "aws", "10.0.3.0/24]", "10.0.3.7/24]", nil,
			[]string{`aws:18:98: providers.local-vllm.allowed_cidrs[0]: has bits beyond its length; did you mean 10.0.3.0/24?`},
		},
		{
			"CIDR of mapped addresses", "aws", "10.0.3.0/24]", `10.0.3.0/24, "::ffff:0:0/96"]`, nil,
			[]string{`aws:18:111: providers.local-vllm.allowed_cidrs[1]: must be addresses such as 10.0.3.0/24 or fd00::/8, not "::ffff:0:0/96"`},
		},
		{
			"CIDR of everything", "aws", "10.0.3.0/24]", "0.0.0.0/0]", nil,
			[]string{`aws:18:98: providers.local-vllm.allowed_cidrs[0]: reaches link-local addresses, where instance credentials are served`},
		},
		{
			"CIDR of loopback on aws", "aws", "10.0.3.0/24]", "10.0.3.0/24, 127.0.0.0/8]", nil,
			[]string{`aws:18:111: providers.local-vllm.allowed_cidrs[1]: reaches loopback, where Lambda's own interface is`},
		},
	})
}

func TestFaults_Models(t *testing.T) {
	t.Parallel()
	runFaults(t, []faultCase{
		{
			"unknown provider", "aws", "provider: openai", "provider: opnai", nil,
			[]string{`aws:23:32: models.chat-a.targets[0].provider: no provider is named "opnai"; did you mean openai?`},
		},
		{
			"wire of another type", "aws", "wires: [openai]", "wires: [openai, converse]", nil,
			[]string{`aws:23:79: models.chat-a.targets[0].wires[1]: provider openai is of type openai, which can't speak converse; it speaks openai`},
		},
		{
			"no model id", "aws", ", model_id: Qwen/Qwen3-8B", "", nil,
			[]string{`aws:24:9: models.chat-a.targets[1].model_id: is missing: the provider's own name of the model; only a model with any: true passes the caller's on`},
		},
		{
			"model id with a space", "aws", "model_id: Qwen/Qwen3-8B", "model_id: Qwen 3", nil,
			[]string{`aws:24:53: models.chat-a.targets[1].model_id: must match [A-Za-z0-9._:/+-]{1,512}, not "Qwen 3"`},
		},
		{
			"target twice", "aws", "name: own", "name: main", nil,
			[]string{`aws:24:16: models.chat-a.targets[1].name: "main" is the name of targets[0] already`},
		},
		{
			"lane that every model has", "aws", "lanes: [rt, bg, bulk]", "lanes: [rt, bulk]", nil,
			[]string{`aws:21:5: models.chat-a.lanes: must hold rt and bg; only bulk can be left out, and then uses the queue of bg`},
		},
		{
			"any on aws", "aws", "lanes: [rt, bg, bulk]", "any: true", nil,
			[]string{`aws:21:10: models.chat-a.any: is refused on aws: each model that can be called is named`},
		},
		{
			"any twice", "local", "  nova:\n", "  nova:\n    any: true\n", nil,
			[]string{`local:17:10: models.nova.any: is true for models.any-model already; one model takes all other names`},
		},
		{
			"queues that collide", "aws", "  nova:", "  chat-a-rt:", nil,
			[]string{`aws:25:3: models.chat-a-rt: its queue llm-dev-chat-a-rt is one of models.chat-a too; rename one of them`},
		},
		{
			"queue that is another's dead-letter queue", "aws", "  nova:", "  chat-a-dlq:", nil,
			[]string{`aws:25:3: models.chat-a-dlq: its queue llm-dev-chat-a-dlq is one of models.chat-a too; rename one of them`},
		},
		{
			"alias", "aws", "  nova:", "  Nova 1:", nil,
			[]string{`aws:25:3: models."Nova 1": the name must match [a-z0-9][a-z0-9-]{0,39}, not "Nova 1": it is part of queue names, which SQS bounds at 80 characters, -bulk-dlq among them`},
		},
		{
			"B10 alias with .fifo", "aws", "  nova:", "  nova.fifo:", nil,
			[]string{`aws:25:3: models.nova.fifo: the name must not end so: a released message would block its whole group in a .fifo queue`},
		},
	})
}

func TestFaults_LanesAndTiming(t *testing.T) {
	t.Parallel()
	runFaults(t, []faultCase{
		{
			"H05 bodies inside messages that can't hold them", "aws", "queues: {prefix: llm-dev}", "queues: {prefix: llm-dev, max_message_bytes: 200000}", nil,
			[]string{`aws:6:29: storage.inline_max_bytes: must be at most 191808: queues.max_message_bytes is 200000, and the envelope around a body needs 8192`},
		},
		{
			"maximum below the default", "aws", "max_timeout_secs: 300", "max_timeout_secs: 89.5", nil,
			[]string{`aws:30:81: lanes.rt.max_timeout_secs: must be at least timeout_secs, 90: a request that names no deadline gets that one`},
		},
		{
			"wait as long as the function", "aws", "rt_capacity_wait_secs: 30", "rt_capacity_wait_secs: 120", nil,
			[]string{`aws:31:60: timing.rt_capacity_wait_secs: must be less than lanes.rt.function_timeout_secs, 120: a function that waits to its end can serve nothing`},
		},
		{
			"function as short as the default wait", "local", "timing: {rt_capacity_wait_secs: 0}", "lanes: {rt: {function_timeout_secs: 30}}", nil,
			[]string{`local:18:37: lanes.rt.function_timeout_secs: must be more than timing.rt_capacity_wait_secs, 30: a function that waits to its end can serve nothing`},
		},
		{
			"attempt longer than every function", "aws", "lanes:\n  rt:", "lanes:\n  bg: {function_timeout_secs: 60}\n  bulk: {function_timeout_secs: 60}\n  rt:", nil,
			[]string{`aws:33:32: timing.attempt_timeout_secs: must be at most the longest function_timeout_secs, 120: no attempt outlives its function`},
		},
	})
}

// E1: an unknown name is refused with the nearest known one, a value with what would be right.
func TestFaults_Variables(t *testing.T) {
	t.Parallel()
	const ref = "valkey.address: "
	for _, tc := range []struct {
		name string
		env  []string
		want string
	}{
		{"a queue on Valkey", []string{"LLMQ_QUEUE_BACKEND=valkey"}, "LLMQ_QUEUE_BACKEND: no such variable; llmq's queues are Amazon SQS's, and queues on Valkey are not served by this release"},
		{"unknown with a near one", []string{"LLMQ_DOOR_WAIT=1"}, "LLMQ_DOOR_WAIT: no such variable; docs/CONFIG.md lists the variables"},
		{"misspelt", []string{"LLMQ_DOR_WAIT_SECS=1"}, "LLMQ_DOR_WAIT_SECS: no such variable; did you mean LLMQ_DOOR_WAIT_SECS?"},
		{"unknown though empty", []string{"LLMQ_DOR_WAIT_SECS="}, "LLMQ_DOR_WAIT_SECS: no such variable; did you mean LLMQ_DOOR_WAIT_SECS?"},
		{"of a later release", []string{"LLMQ_TELEPATHY={}"}, "LLMQ_TELEPATHY: no such variable; docs/CONFIG.md lists the variables"},
		{"bad value", []string{"LLMQ_DOOR_WAIT_SECS=5m"}, `LLMQ_DOOR_WAIT_SECS: door.wait_secs: must be a number of seconds such as 2 or 0.5, without a unit, not "5m"`},
		{"bad bound", []string{"LLMQ_TIMEOUT_BG_SECS=0"}, "LLMQ_TIMEOUT_BG_SECS: lanes.bg.timeout_secs: must be 1 to 43200, not 0: SQS hides a message for 12 h at most"},
		{"bad truth", []string{"LLMQ_REDIS_SSL=1"}, `LLMQ_REDIS_SSL: valkey.tls: must be true or false, not "1"`},
		{"bad port", []string{"LLMQ_REDIS_PORT=http"}, "LLMQ_REDIS_PORT: valkey.address: must be host:port, such as localhost:6379"},
		{"Valkey URL and host", []string{"LLMQ_REDIS_URL=redis://a", "LLMQ_REDIS_HOST=b"}, "LLMQ_REDIS_URL: " + ref + "says the same as LLMQ_REDIS_HOST; set one of them"},
		{"Valkey URL of another scheme", []string{"LLMQ_REDIS_URL=http://a"}, "LLMQ_REDIS_URL: " + ref + "must be redis://host:port or rediss://host:port"},
		{"Valkey URL with a password, not shown", []string{"LLMQ_REDIS_URL=redis://u:hunter2@a"}, "LLMQ_REDIS_URL: " + ref + "must hold no password; put it into LLMQ_REDIS_PASSWORD"},
		{"Valkey URL with a database", []string{"LLMQ_REDIS_URL=redis://a/1"}, "LLMQ_REDIS_URL: " + ref + "must end after the port; there is only database 0 in cluster mode"},
		{"Valkey URL with a bad user", []string{"LLMQ_REDIS_URL=redis://a%20b@a"}, "LLMQ_REDIS_URL: valkey.username: must match [A-Za-z0-9._-]{1,128}"},
		{"cap of an unknown model", []string{`LLMQ_AC_MAX_BY_MODEL={"novva": 3}`}, `LLMQ_AC_MAX_BY_MODEL: no model is named "novva"; did you mean nova?`},
		{"cap of an unknown target", []string{`LLMQ_AC_MAX_BY_MODEL={"nova@mian": 3}`}, `LLMQ_AC_MAX_BY_MODEL: no model is named "nova@mian"; did you mean nova@main?`},
		{"cap out of bounds", []string{`LLMQ_AC_MAX_BY_MODEL={"nova": 0}`}, `LLMQ_AC_MAX_BY_MODEL: models.nova.targets[0].max_concurrency: must be 1 to 2000, not 0: leave it out for no cap; pause the queue to stop calls`},
		{"cap that is no whole number", []string{`LLMQ_AC_MAX_BY_MODEL={"nova": 1e2}`}, `LLMQ_AC_MAX_BY_MODEL: models.nova.targets[0].max_concurrency: must be a whole number, in plain digits, not "1e2"`},
		{"cap that is text", []string{`LLMQ_AC_MAX_BY_MODEL={"nova": "3"}`}, `LLMQ_AC_MAX_BY_MODEL: must be JSON such as {"alias": 20}: the value of "nova" is no number`},
		{"cap twice", []string{`LLMQ_AC_MAX_BY_MODEL={"nova": 3, "nova": 4}`}, `LLMQ_AC_MAX_BY_MODEL: must be JSON such as {"alias": 20}: "nova" is given twice`},
		{"caps that are no object", []string{`LLMQ_AC_MAX_BY_MODEL=20`}, `LLMQ_AC_MAX_BY_MODEL: must be JSON such as {"alias": 20}: it is no object`},
		{"caps that end early", []string{`LLMQ_AC_MAX_BY_MODEL={"nova": 3`}, `LLMQ_AC_MAX_BY_MODEL: must be JSON such as {"alias": 20}: it ends early`},
		{"caps with something behind", []string{`LLMQ_AC_MAX_BY_MODEL={} {}`}, `LLMQ_AC_MAX_BY_MODEL: must be JSON such as {"alias": 20}: something follows the object`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load("testdata/local.yaml", tc.env)
			if diff := cmp.Diff([]string{tc.want}, problems(t, err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// SECURITY-DESIGN LM2: recordings stay out of what is deployed.
func TestFaults_Cassette(t *testing.T) {
	t.Parallel()
	runFaults(t, []faultCase{
		{
			"cassette on aws", "aws", "kind: aws", "kind: aws",
			[]string{"LLMQ_CASSETTE=replay", "LLMQ_CASSETTE_DIR=/c"},
			[]string{`LLMQ_CASSETTE: cassette.mode: is refused on aws: recordings are for kind: local only`},
		},
		{
			"no folder", "local", "kind: local", "kind: local",
			[]string{"LLMQ_CASSETTE=auto"},
			[]string{`local: cassette.dir: is required with cassette.mode: the folder of the recordings`},
		},
		{
			"relative folder", "local", "kind: local", "kind: local",
			[]string{"LLMQ_CASSETTE=record", "LLMQ_CASSETTE_DIR=c"},
			[]string{`LLMQ_CASSETTE_DIR: cassette.dir: must be an absolute path: functions run in folders of their own`},
		},
		{
			"unknown mode", "local", "kind: local", "kind: local",
			[]string{"LLMQ_CASSETTE=rewind", "LLMQ_CASSETTE_DIR=/c"},
			[]string{`LLMQ_CASSETTE: cassette.mode: must be one of record, replay, auto, not "rewind"`},
		},
	})
}
