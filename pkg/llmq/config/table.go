package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// form is how a setting's value is written.
type form int

const (
	formText    form = iota
	formCount        // whole number
	formSecs         // seconds, decimals allowed
	formFullSec      // whole seconds
	formNumber       // number, decimals allowed
	formShare        // number from 0 to 1, at most 3 decimals
	formBool
	formList   // list of words
	formSecret // {env: NAME} or {arn: ARN}
	formMap    // named entries: path ends in *
	formItems  // listed entries: path ends in []
)

func (f form) String() string {
	return [...]string{"text", "whole number", "seconds", "whole seconds", "number", "part of 1", "true or false", "list", "secret", "entries by name", "list of entries"}[f]
}

// setting is one row of the table that reading, defaults, bounds, writing and
// docs/CONFIG.md are made from.
type setting struct {
	path string // * stands for an entry's name, [] for an item
	env  string // variable that overrides it, in every entry; * is the entry's name in capitals
	form form
	doc  string // what it does, for docs/CONFIG.md

	def      string               // default, as it would be written; "" is none
	laneDef  map[llmq.Lane]string // default where it differs by lane
	above    string               // path of the setting that holds where no entry gives this one; it is the default
	defNote  string               // default in words, where a rule makes it
	required bool

	low, high float64        // of counts and seconds
	why       string         // reason for the bounds, the pattern or the words
	whyLow    string         // reason for the lower bound, where it is another
	pattern   *regexp.Regexp // of text, or of an entry's name
	words     []string       // of text or list

	at   func(*scope) any                // field of a plain setting
	open func(s scope, key string) scope // entry of formMap and formItems; a new one
}

// The patterns of names. Their text, less the anchors, is what people are told.
var (
	envPattern      = regexp.MustCompile(`^[a-z0-9-]{1,16}$`)
	prefixPattern   = regexp.MustCompile(`^[A-Za-z0-9-]{1,20}$`)
	aliasPattern    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	toolPattern     = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	replyPattern    = regexp.MustCompile(`^[a-z0-9-]{1,48}=(s3|sqs:[A-Za-z0-9_-]{1,80})$`)
	keyPattern      = regexp.MustCompile(`^[a-z0-9-]{1,48}$`)
	deniedPattern   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	shortPattern    = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
	regionPattern   = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]$`)
	bucketPattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	modelIDPattern  = regexp.MustCompile(`^[A-Za-z0-9._:/+-]{1,512}$`)
	usernamePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	cachePattern    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	senderPattern   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	roleARN         = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/[A-Za-z0-9/_+=,.@-]{1,512}$`)
	secretARN       = regexp.MustCompile(`^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]{1,512}$`)
)

// shape is a pattern as people are told it.
func shape(p *regexp.Regexp) string {
	return strings.TrimSuffix(strings.TrimPrefix(p.String(), "^"), "$")
}

const (
	whyNoFIFO  = "a released message would block its whole group in a .fifo queue"
	whyQueue   = "it is part of queue names, which SQS bounds at 80 characters, -bulk-dlq among them"
	whyKeys    = "it is part of every Valkey key"
	whySender  = "it is what SQS says before the colon of a SenderId; what follows is a session's name, which the sender chooses"
	whyLambda  = "Lambda ends every function after 900 s"
	whyMessage = "SQS hides a message for 12 h at most"
)

// settings is the table. Its order is that of docs/CONFIG.md and of written files.
func settings() []setting {
	return slices.Concat(deployment(), models(), jobRows(), running(), limiter(), deploying())
}

// deployment is where an environment lives and who may call it.
func deployment() []setting {
	return []setting{
		{
			path: "kind", words: []string{"aws", "local"}, required: true,
			why: "endpoints of stand-ins, plain text and secrets from variables are legal in local only",
			doc: "where the environment lives", at: func(s *scope) any { return &s.cfg.Kind },
		},
		{
			path: "env", pattern: envPattern, why: whyKeys, required: true,
			doc: "the environment's name", at: func(s *scope) any { return &s.cfg.Env },
		},
		{
			path: "region", env: "LLMQ_AWS_REGION", pattern: regionPattern, defNote: "the AWS credential chain's",
			doc: "AWS region", at: func(s *scope) any { return &s.cfg.Region },
		},

		{
			path: "queues.prefix", def: "llm", pattern: prefixPattern, why: whyQueue,
			doc: "what every queue's name begins with", at: func(s *scope) any { return &s.cfg.Queues.Prefix },
		},
		{
			path: "queues.endpoint_url", env: "LLMQ_SQS_ENDPOINT_URL", defNote: "AWS",
			doc: "URL of an SQS server; local only", at: func(s *scope) any { return &s.cfg.Queues.Endpoint },
		},
		{
			path: "queues.url_base", env: "LLMQ_SQS_URL_BASE", defNote: "aws: set by the deployment",
			doc: "what queue names are joined to for their URLs, such as https://sqs.eu-west-1.amazonaws.com/111122223333", at: func(s *scope) any { return &s.cfg.Queues.URLBase },
		},
		{
			path: "queues.max_message_bytes", env: "LLMQ_SQS_MAX_MESSAGE_BYTES", form: formCount, def: "1048576", low: 16 << 10, high: 1 << 20, why: "what SQS carries, and what an envelope needs at least",
			doc: "the largest message with its attributes, and all of a request together; some servers in SQS's place still have its old limit, 262144", at: func(s *scope) any { return &s.cfg.Queues.MaxMessageBytes },
		},
		{
			path: "queues.sender_ids", env: "LLMQ_SQS_SENDER_IDS", form: formList, pattern: senderPattern, why: whySender, defNote: "aws: set by the deployment",
			doc: "unique ids of the door's and admin's roles: workers take their messages and believe them the tenant", at: func(s *scope) any { return &s.cfg.Queues.SenderIDs },
		},
		{
			path: "queues.worker_ids", env: "LLMQ_SQS_WORKER_IDS", form: formList, pattern: senderPattern, why: whySender, defNote: "aws: set by the deployment",
			doc: "unique ids of the workers' roles: a redrive believes their dead letters the tenant", at: func(s *scope) any { return &s.cfg.Queues.WorkerIDs },
		},

		{
			path: "valkey.address", defNote: "local: localhost:6379; aws: set by the deployment",
			doc: "host:port of the state store; see LLMQ_REDIS_URL, LLMQ_REDIS_HOST and LLMQ_REDIS_PORT", at: func(s *scope) any { return &s.cfg.Valkey.Address },
		},
		{
			path: "valkey.cluster", form: formBool, def: "true",
			doc: "cluster mode, as ElastiCache Serverless has it", at: func(s *scope) any { return &s.cfg.Valkey.Cluster },
		},
		{
			path: "valkey.tls", env: "LLMQ_REDIS_SSL", form: formBool, def: "true",
			doc: "TLS; false is local only", at: func(s *scope) any { return &s.cfg.Valkey.TLS },
		},
		{
			path: "valkey.username", env: "LLMQ_REDIS_USERNAME", pattern: usernamePattern, defNote: "the default user",
			doc: "who signs in", at: func(s *scope) any { return &s.cfg.Valkey.Username },
		},
		{
			path: "valkey.password", form: formSecret,
			doc: "local only, for on AWS IAM signs in; see LLMQ_REDIS_PASSWORD", at: func(s *scope) any { return &s.cfg.Valkey.Password },
		},
		{
			path: "valkey.network", def: "public", words: []string{"public", "vpc"},
			doc: "aws: how the store is reached; read at deployment", at: func(s *scope) any { return &s.cfg.Valkey.Network },
		},
		{
			path: "valkey.cache_name", env: "LLMQ_REDIS_CACHE_NAME", pattern: cachePattern, defNote: "aws: set by the deployment",
			doc: "name of the ElastiCache cache, which IAM signs in to", at: func(s *scope) any { return &s.cfg.Valkey.CacheName },
		},
		{
			path: "valkey.command_timeout_secs", env: "LLMQ_REDIS_SOCKET_TIMEOUT_SECS", form: formSecs, def: "0.5", low: 0.05, high: 10,
			why: "a store that is down must be noticed before its callers give up",
			doc: "one command", at: func(s *scope) any { return &s.cfg.Valkey.CommandTimeout },
		},
		{
			path: "valkey.dial_timeout_secs", env: "LLMQ_REDIS_CONNECT_TIMEOUT_SECS", form: formSecs, def: "2", low: 0.05, high: 10,
			why: "a store that is down must be noticed before its callers give up",
			doc: "one connection, TLS and sign-in included", at: func(s *scope) any { return &s.cfg.Valkey.DialTimeout },
		},
		{
			path: "valkey.max_connections", env: "LLMQ_REDIS_MAX_CONNECTIONS", form: formCount, def: "32", low: 2, high: 1000,
			why: "a call that finds none free waits for one",
			doc: "connections of one process, opened as calls need them; in a function 4 at most", at: func(s *scope) any { return &s.cfg.Valkey.MaxConnections },
		},

		{
			path: "storage.bucket", env: "LLMQ_S3_OFFLOAD_BUCKET", pattern: bucketPattern, defNote: "local: none; aws: set by the deployment",
			doc: "S3 bucket of large bodies; without one those of requests, up to 4 MiB, and all results lie in the state store", at: func(s *scope) any { return &s.cfg.Storage.Bucket },
		},
		{
			path: "storage.state_bucket", env: "LLMQ_S3_STATE_BUCKET", pattern: bucketPattern, defNote: "local: required; aws: set by the deployment",
			doc: "S3 bucket of callers' keys", at: func(s *scope) any { return &s.cfg.Storage.StateBucket },
		},
		{
			path: "storage.endpoint_url", env: "LLMQ_S3_ENDPOINT_URL", defNote: "AWS",
			doc: "URL of an S3 server; local only", at: func(s *scope) any { return &s.cfg.Storage.Endpoint },
		},
		{
			path: "storage.inline_max_bytes", env: "LLMQ_INLINE_MAX_BYTES", form: formCount, def: "204800", low: 1024, high: 921600,
			why: "an SQS message holds 1 MiB, and the envelope around the body needs room",
			doc: "larger bodies go to the bucket", at: func(s *scope) any { return &s.cfg.Storage.InlineMaxBytes },
		},

		{
			path: "door.wait_secs", env: "LLMQ_DOOR_WAIT_SECS", form: formSecs, def: "280", low: 1, high: 290,
			why: "API Gateway cuts a connection that is silent for 300 s",
			doc: "longest wait for a reply before 504", at: func(s *scope) any { return &s.cfg.Door.Wait },
		},
		{
			path: "door.max_concurrency", env: "LLMQ_DOOR_MAX_CONCURRENCY", form: formCount, def: "1000", low: 1, high: 100000, defNote: "1000, what Lambda gives an account; aws, in production: what the deployment reserves",
			why: "Lambda's quotas",
			doc: "calls that the door may hold at once: without the state store a model's limit is shared among so many", at: func(s *scope) any { return &s.cfg.Door.MaxConcurrency },
		},

		{
			path: "admin.key", form: formSecret,
			doc: "key of the admin API; local only, for on AWS IAM signs in", at: func(s *scope) any { return &s.cfg.Admin.Key },
		},

		{
			path: "id_hash_salt", form: formSecret, defNote: "aws: required; local: a built-in one",
			doc: "key of the hash of user and session ids, at least 8 characters; see LLMQ_ID_HASH_SALT", at: func(s *scope) any { return &s.cfg.IDSalt },
		},

		{
			path: "key_pepper", form: formSecret, defNote: "local: required; aws: made by the deployment",
			doc: "seals the keys of callers, at least 32 characters; a new version of the secret leaves keys of the one before valid. See LLMQ_KEY_PEPPER and LLMQ_KEY_PEPPER_ARN", at: func(s *scope) any { return &s.cfg.KeyPepper },
		},

		{path: "producers[]", form: formItems, doc: "services that send to the queues themselves; a message of anybody else goes to the dead-letter queue", open: openProducer},
		{
			path: "producers[].name", pattern: keyPattern, required: true,
			doc: "public name; large bodies that it puts into the bucket lie below in/<name>/", at: func(s *scope) any { return &s.producer.Name },
		},
		{
			path: "producers[].sender_id", pattern: senderPattern, why: whySender, required: true,
			doc: "unique id of its role or user: AROA… of `aws iam get-role`. A role that is made anew has a new one", at: func(s *scope) any { return &s.producer.SenderID },
		},
		{
			path: "producers[].role_arn", pattern: roleARN, defNote: "aws: required",
			doc: "ARN of that role or user, whom the queues' policies let send; read at deployment", at: func(s *scope) any { return &s.producer.RoleARN },
		},
		{path: "producers[].tenant", pattern: keyPattern, required: true, doc: "whose requests it sends", at: func(s *scope) any { return &s.producer.Tenant }},
		{
			path: "producers[].replies", form: formList, pattern: replyPattern, why: "a reply is alias=sqs:QUEUE, a queue of this account and region, or alias=s3, the data bucket",
			doc: "where its messages may have their ends told, by the alias in reply_to: alias=sqs:QUEUE or alias=s3", at: func(s *scope) any { return &s.producer.Replies },
		},
		{
			path: "producers[].program", form: formBool, def: "false",
			doc: "it is a Go program (`wiring.Open`), which sees by the state store how its calls end: it gets a user of the cache that reaches its tenant's keys alone. aws: its name and env have 29 characters together at most; read at deployment",
			at:  func(s *scope) any { return &s.producer.Program },
		},
	}
}

// models is what is served and by whom.
func models() []setting {
	return slices.Concat(
		providerRows(), sharedLimits(),
		capAndLimits("providers.*.", "where neither model nor target says", func(s *scope) *int { return &s.provider.MaxConcurrency }, func(s *scope) *Limits { return &s.provider.Limits }),
		tryRows("providers.*.", func(s *scope) *Tries { return &s.provider.Tries }), callRows("providers.*.", func(s *scope) *Calls { return &s.provider.Calls }),
		modelRows(), tokenRules(),
		capAndLimits("models.*.", "where the target doesn't say", func(s *scope) *int { return &s.model.MaxConcurrency }, func(s *scope) *Limits { return &s.model.Limits }),
		tryRows("models.*.", func(s *scope) *Tries { return &s.model.Tries }), callRows("models.*.", func(s *scope) *Calls { return &s.model.Calls }),
		targetRows(),
		capAndLimits("models.*.targets[].", "this one", func(s *scope) *int { return &s.target.MaxConcurrency }, func(s *scope) *Limits { return &s.target.Limits }),
		tryRows("models.*.targets[].", func(s *scope) *Tries { return &s.target.Tries }),
	)
}

func providerRows() []setting {
	return []setting{
		{path: "providers.*", form: formMap, pattern: shortPattern, required: true, doc: "endpoints that serve models", open: openProvider},
		{
			path: "providers.*.type", pattern: shortPattern, required: true,
			doc: "the dialect of its API: openai, bedrock, or one that your own program registers (`wiring.WithProvider`), whose targets say their wires", at: func(s *scope) any { return &s.provider.Type },
		},
		{
			path: "providers.*.base_url", defNote: "bedrock: AWS",
			doc: "openai: required. bedrock: local only. https, a host name, no query; http and addresses for private ones and, locally, loopback",
			at:  func(s *scope) any { return &s.provider.BaseURL },
		},
		{
			path: "providers.*.region", pattern: regionPattern, defNote: "bedrock: `region`",
			doc: "bedrock only: the region to call", at: func(s *scope) any { return &s.provider.Region },
		},
		{
			path: "providers.*.api_key", form: formSecret, defNote: "bedrock: signed with the function's role",
			doc: "openai: required unless private", at: func(s *scope) any { return &s.provider.APIKey },
		},
		{
			path: "providers.*.private", form: formBool, def: "false",
			doc: "it lies in allowed_cidrs: http and addresses are legal. A loopback base_url makes a local provider private",
			at:  func(s *scope) any { return &s.provider.Private },
		},
		{
			path: "providers.*.allowed_cidrs", form: formList,
			doc: "with private: the only addresses that are dialled", at: func(s *scope) any { return &s.provider.AllowedCIDRs },
		},
		{
			path: "providers.*.connect_timeout_secs", env: "LLMQ_PROVIDER_CONNECT_TIMEOUT_SECS", form: formSecs, def: "10", low: 0.1, high: 60,
			why: "a provider that takes longer to answer a dial is down",
			doc: "one connection, TLS included", at: func(s *scope) any { return &s.provider.ConnectTimeout },
		},
		{
			path: "providers.*.read_timeout_secs", env: "LLMQ_PROVIDER_READ_TIMEOUT_SECS", form: formSecs, def: "300", low: 1, high: 900, why: whyLambda,
			doc: "wait for the reply's first byte", at: func(s *scope) any { return &s.provider.ReadTimeout },
		},
		{
			path: "providers.*.remote_media", words: []string{"refuse", "pass"}, def: "refuse",
			doc: "whether bodies may name images and files by http and https URLs, which the provider then fetches; data: URLs always pass. Private ones get no others", at: func(s *scope) any { return &s.provider.RemoteMedia },
		},
		{
			path: "providers.*.refuses_stream_options", form: formBool, def: "false",
			doc: "openai: the server knows no `stream_options`; a chat's stream is then not asked for its usage, and is charged what it reserved", at: func(s *scope) any { return &s.provider.RefusesStreamOptions },
		},
	}
}

func modelRows() []setting {
	return []setting{
		{path: "models.*", form: formMap, pattern: aliasPattern, why: whyQueue, required: true, doc: "models by the alias that callers use", open: openModel},
		{
			path: "models.*.lanes", form: formList, def: "rt, bg, bulk", words: laneNames(),
			doc: "lanes with a queue of their own; rt and bg always", at: func(s *scope) any { return &s.model.Lanes },
		},
		{
			path: "models.*.any", form: formBool, def: "false",
			doc: "local only, one model: takes every name that no other model has", at: func(s *scope) any { return &s.model.Any },
		},
		{
			path: "models.*.hosted_tools", form: formList, pattern: toolPattern, why: "a tool is named by its type, such as web_search",
			doc: "tools that its providers may run themselves, by their type: web_search is its dated versions too. Functions and other tools that the caller runs need no mention",
			at:  func(s *scope) any { return &s.model.HostedTools },
		},
	}
}

func targetRows() []setting {
	return []setting{
		{path: "models.*.targets[]", form: formItems, required: true, doc: "places that serve it, in the order in which they are tried", open: openTarget},
		{path: "models.*.targets[].name", pattern: shortPattern, required: true, doc: "callers may pin it: alias@name", at: func(s *scope) any { return &s.target.Name }},
		{path: "models.*.targets[].provider", required: true, doc: "name of a provider", at: func(s *scope) any { return &s.target.Provider }},
		{
			path: "models.*.targets[].model_id", pattern: modelIDPattern, defNote: "with any: the caller's",
			doc: "the provider's own name of the model; required without any", at: func(s *scope) any { return &s.target.ModelID },
		},
		{
			path: "models.*.targets[].wires", form: formList, words: wireNames(), defNote: "all that its provider speaks",
			doc: "dialects it is called in; bodies are never translated", at: func(s *scope) any { return &s.target.Wires },
		},
		{
			path: "models.*.targets[].service_tiers", form: formList, words: []string{"priority", "default", "flex"},
			doc: "service tiers that it has: rt asks for priority, bg for default, bulk for flex, whatever the caller asks for; a lane whose tier is not listed asks for none", at: func(s *scope) any { return &s.target.ServiceTiers },
		},
		{
			path: "models.*.fallback[]", form: formItems, open: openFallback,
			doc: "models that stand in for it when its targets fail, in order, where the call's policy is chain and the wire the same; never for embeddings",
		},
		{path: "models.*.fallback[].model", required: true, doc: "alias of another model", at: func(s *scope) any { return &s.fallback.Model }},
		{
			path: "models.*.fallback[].require_headroom", form: formBool, def: "false",
			doc: "only where a slot of it is free at once", at: func(s *scope) any { return &s.fallback.RequireHeadroom },
		},
		{
			path: "models.*.skip_targets", form: formList,
			doc: "names of targets that its calls leave out, and those of the models it stands in for; who pins one gets it", at: func(s *scope) any { return &s.model.SkipTargets },
		},
	}
}
