// Package config is the only reader of environment and files: one YAML file per
// environment, LLMQ_* variables over it, every fault told at once. It imports no
// vendor SDK, since the CDK module reads the same files.
package config

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// Kind says where a deployment lives. Endpoint overrides, plain text and keys from
// the environment are legal in KindLocal only (SECURITY-DESIGN LM2).
type Kind string

const (
	// KindAWS is a deployment in an AWS account.
	KindAWS Kind = "aws"
	// KindLocal is one machine, with stand-ins for AWS.
	KindLocal Kind = "local"
)

// Config is a whole, valid environment. It is read-only once loaded.
type Config struct {
	Kind      Kind   // aws or local
	Env       string // name of the environment, [a-z0-9-]{1,16}; part of every Valkey key
	Region    string // AWS region; "" leaves it to the AWS credential chain
	Queues    Queues
	Valkey    Valkey
	Storage   Storage
	Door      Door
	Admin     Admin
	KeyPepper Secret     // seals callers' keys; required locally; on AWS the deployment makes one and sets LLMQ_KEY_PEPPER_ARN, and it is "" before
	Producers []Producer // services that send to the queues themselves
	IDSalt    Secret     // key of the hash of user and session ids; required on aws, local: a built-in one
	Providers []Provider // in the order of the file
	Models    []Model    // in the order of the file
	Jobs      []JobQueue // in the order of the file
	Lanes     map[llmq.Lane]Lane
	Limiter   Limiter
	Breaker   Breaker
	Governor  Governor
	Timing    Timing
	Routing   Routing
	Traces    Traces
	Cassette  Cassette
	Deploy    Deploy

	given map[string]bool // settings outside all entries that the file or a variable gave; [Config.Settings] tells
}

// Queues says how queues are named and reached.
type Queues struct {
	Prefix   string // of every queue's name, [A-Za-z0-9-]{1,20}; default "llm"
	Endpoint string // local only: URL of an SQS server; "" is AWS
	URLBase  string // what names are joined to for a queue's URL; on AWS the deployment sets it by LLMQ_SQS_URL_BASE, and it is "" before

	MaxMessageBytes int // of one message with its attributes, and of all in a request; default 1 MiB as SQS has it, 16 KiB to 1 MiB

	SenderIDs []string // of the door's and admin's roles; on AWS the deployment sets them by LLMQ_SQS_SENDER_IDS, and there is none before
	WorkerIDs []string // of the workers' roles; LLMQ_SQS_WORKER_IDS
}

// Names is the naming rule of this environment's queues.
func (q Queues) Names() queue.Names { return queue.Names{Prefix: q.Prefix} }

// Account is the AWS account of the queues, which is that of the data bucket too; "" where none is known.
func (q Queues) Account() string {
	last := q.URLBase[strings.LastIndexByte(q.URLBase, '/')+1:]
	if !accountID.MatchString(last) {
		return ""
	}
	return last
}

var accountID = regexp.MustCompile(`^[0-9]{12}$`)

// Valkey is the state store.
type Valkey struct {
	Address   string // host:port; local: localhost:6379; on AWS the deployment sets it by LLMQ_REDIS_HOST and LLMQ_REDIS_PORT, and it is "" before
	Cluster   bool   // cluster mode; default true
	TLS       bool   // default true; false is local only
	Username  string // "" is the default user
	Password  Secret // local only; on AWS IAM signs in
	CacheName string // aws: name of the cache, which IAM signs in to; the deployment sets it by LLMQ_REDIS_CACHE_NAME, and it is "" before
	Network   string // aws: "public" (default) or "vpc"; read by the CDK app only

	CommandTimeout time.Duration // one command; default 500 ms
	DialTimeout    time.Duration // one connection; default 2 s
	MaxConnections int           // of one process, opened as calls need them; default 32, in functions 4 at most
}

// Storage is where large bodies lie, and callers' keys.
type Storage struct {
	Bucket         string // data bucket; on AWS the deployment sets it by LLMQ_S3_OFFLOAD_BUCKET, and it is "" before; local: "" is none
	StateBucket    string // bucket of callers' keys; on AWS the deployment sets it by LLMQ_S3_STATE_BUCKET, and it is "" before; required locally
	Endpoint       string // local only: URL of an S3 server
	InlineMaxBytes int    // bodies up to this many bytes travel inside the message and the result; default 200 KiB, 1 KiB to 900 KiB
}

// Door is the HTTPS endpoint.
type Door struct {
	Wait           time.Duration // longest wait for a reply before 504; default 280 s, 1 s to 290 s
	MaxConcurrency int           // calls that it may hold at once; default 1000
}

// Admin is the operator's API.
type Admin struct {
	Key Secret // local only; on AWS IAM signs in
}

// Producer is a service that sends to the queues itself.
type Producer struct {
	Name     string   // [a-z0-9-]{1,48}; its bodies in the data bucket lie below in/<name>/
	SenderID string   // what SQS calls it: the unique id of its role or user, without a session's name
	RoleARN  string   // aws: of that role or user, whom the queues' policies let send
	Tenant   string   // whose requests it sends, [a-z0-9-]{1,48}
	Replies  []string // where its calls' ends may be told: "alias=sqs:QUEUE" or "alias=s3"
	Program  bool     // aws: a Go program by wiring.Open, which sees by the state store how its calls end; read at deployment
}

// replies reads what the table has checked.
func (p Producer) replies() []queue.Reply {
	var all []queue.Reply
	for _, r := range p.Replies {
		alias, to, _ := strings.Cut(r, "=")
		name, _ := strings.CutPrefix(to, "sqs:")
		if to == "s3" {
			name = ""
		}
		all = append(all, queue.Reply{Alias: alias, Queue: queue.Name(name)})
	}
	return all
}

// ReplyQueues lists the queues of producers to which workers send, each once.
func (c *Config) ReplyQueues() []queue.Name {
	var names []queue.Name
	for _, p := range c.Producers {
		for _, r := range p.replies() {
			if r.Queue != "" && !slices.Contains(names, r.Queue) {
				names = append(names, r.Queue)
			}
		}
	}
	return names
}

// Cassette records or plays what providers answer.
type Cassette struct {
	Mode string // local only: "record", "replay" or "auto"; "" is none. Record is asked for by LLMQ_CASSETTE alone, as CS2 wants it
	Dir  string // absolute folder of the recordings; required with Mode
}

// Secret is a reference to a secret, never the secret itself.
type Secret struct {
	Env string // name of an environment variable; local only
	ARN string // Secrets Manager ARN; aws only
}

// IsZero reports whether no reference is given.
func (s Secret) IsZero() bool { return s == Secret{} }

// ProviderType is the dialect of a provider's API: one of llmq's own, or of one that a program registers with package wiring.
type ProviderType string

const (
	// ProviderOpenAI speaks OpenAI's API: OpenAI itself, vLLM, Ollama and their like.
	ProviderOpenAI ProviderType = "openai"
	// ProviderBedrock speaks Amazon Bedrock's API.
	ProviderBedrock ProviderType = "bedrock"
)

// ProviderTypes lists llmq's own.
func ProviderTypes() []ProviderType { return []ProviderType{ProviderBedrock, ProviderOpenAI} }

// Provider is an endpoint that serves models.
type Provider struct {
	Name         string // [a-z0-9-]{1,32}
	Type         ProviderType
	BaseURL      string   // openai: required, e.g. https://api.openai.com/v1. bedrock: local only. Lower-case host, no trailing dot or slash
	Region       string   // bedrock: the region to call; default Config.Region
	APIKey       Secret   // openai: required unless Private. bedrock: "" signs with the function's role
	Private      bool     // the endpoint lies in AllowedCIDRs: plain http and private addresses are legal. Set for a local one on loopback
	AllowedCIDRs []string // with Private: the only addresses that are dialled

	ConnectTimeout time.Duration // default 10 s
	ReadTimeout    time.Duration // wait for the reply's first byte; default 300 s

	RemoteMedia          string // "pass" lets it fetch media that bodies name by URL, if it is not private; default "refuse"
	RefusesStreamOptions bool   // openai: it knows no stream_options, so that its streams aren't asked for their usage

	MaxConcurrency       int    // of each of its targets that says nothing else
	Limits               Limits // of each of its targets that says nothing else
	Tries                Tries  // of each of its targets that says nothing else
	Calls                Calls  // of the models whose first target it serves, where they say nothing else
	SharedMaxConcurrency int    // calls in flight over all its targets; 0 is no cap
	SharedRPM, SharedTPM int    // budgets over all its targets; 0 is none
}

// Wires lists what a provider of this type can speak; nil of a type that is none of llmq's own, whose targets say it.
func (p Provider) Wires() []llmq.Wire {
	switch p.Type {
	case ProviderBedrock:
		return []llmq.Wire{llmq.WireConverse, llmq.WireInvoke}
	case ProviderOpenAI:
		return []llmq.Wire{llmq.WireOpenAI}
	}
	return nil
}

// Denies reports whether DeniedHosts holds host, or a name that it lies below. It is given in small letters, without a dot at
// its end.
func (r Routing) Denies(host string) bool {
	return slices.ContainsFunc(r.DeniedHosts, func(d string) bool { return host == d || strings.HasSuffix(host, "."+d) })
}

// Model is a model that callers can name.
type Model struct {
	Alias   string      // [a-z0-9][a-z0-9-]{0,39}; part of its queues' names
	Lanes   []llmq.Lane // with a queue of their own; default all three; rt and bg are required
	Any     bool        // local only: takes every name that no other model has
	Targets []Target    // at least one

	MaxConcurrency   int    // of each of its targets that says nothing else
	Limits           Limits // of each of its targets that says nothing else
	Tries            Tries  // of each of its targets that says nothing else
	Calls            Calls
	Burndown         float64 // tokens that one token of output costs in the end; 0 is 1
	DefaultMaxTokens int     // sent as the most output where the caller sends none; 0 sends none

	HostedTools []string // tools that its providers may run themselves, by their type

	Fallback    []FallbackModel // models that stand in for it, in order; not theirs in turn
	SkipTargets []string        // names of targets that its chain leaves out; a caller who pins one gets it all the same
}

// FallbackModel is a model that stands in for another.
type FallbackModel struct {
	Model           string `json:"model"`                      // alias of another model
	RequireHeadroom bool   `json:"require_headroom,omitempty"` // only where it has a slot free at once
}

// Target is one place that serves a model.
type Target struct {
	Name           string // [a-z0-9-]{1,32}
	Provider       string // name of a provider
	ModelID        string // the provider's own name; "" (local, Any) passes the caller's on
	Wires          []llmq.Wire
	ServiceTiers   []llmq.Tier // that it has: rt asks for priority, bg for default, bulk for flex; none are asked for where it has not
	MaxConcurrency int         // calls in flight over all workers; 0 is its model's, else its provider's, else no cap
	Limits         Limits
	Tries          Tries
}

// Lane is how a lane's workers run. Every lane has one.
type Lane struct {
	FunctionTimeout time.Duration // = its queues' visibility: rt 120 s, bg 330 s, bulk 900 s
	Timeout         time.Duration // a request's deadline when it names none: rt 90 s, bg 300 s, bulk 900 s
	EmbedTimeout    time.Duration // the same of embeddings; 0 is Timeout
	MaxTimeout      time.Duration // the longest deadline a caller may ask for: rt 300 s, bg 1 h, bulk 12 h
	BatchSize       int           // messages an invocation gets at most: default 10, 1 to 10
	MaxConcurrency  int           // invocations at once per queue: default 10, 2 to 1000
	MemoryMB        int           // default 256
}

// Timing bounds attempts and waits. Leases are rules, not settings.
type Timing struct {
	AttemptTimeout time.Duration // one provider attempt, but of a stream; default 180 s
	FirstContent   time.Duration // of a stream, from an attempt's begin; default 120 s
	StreamStall    time.Duration // of a stream, between two signs of life; default 60 s
	RTCapacityWait time.Duration // how long a received rt request waits for a slot; default 30 s
	SQSSendTimeout time.Duration // one send; default 5 s
	SQSBatchWait   time.Duration // how long a bg or bulk send of a Go client waits for others; default 20 ms, 0 is not at all

	Drain time.Duration // what runs may go on for so long after a worker outside Lambda was told to stop; default 90 s

	SQSTimeoutsToFailover int           // sends without an answer in a minute that have a model's calls run where their callers wait; default 3
	SQSFailover           time.Duration // for how long; default 300 s
	ValkeyWait            time.Duration // how long the state store may fail before a call does without it; default 10 s, in functions 2 s at most

	RetryAttempts         int           // failures, throttles apart, that end a target's tries; default 3
	MaxReceives           int           // failures, throttles apart, over all targets, after which a call is dead-lettered; default 10
	ThrottleRetryAttempts int           // tries that end them once the target has throttled; default 6
	RetryBase             time.Duration // the least wait before the first repeat; default 1 s
	RetryMultiplier       float64       // by how much each further repeat waits longer; default 4
	RetrySpread           float64       // a wait lies between its least and so many times that; default 2.5
	RetryMax              time.Duration // the longest wait that is made or that a provider may ask for; default 30 s
	ThrottleRetryMax      time.Duration // the longest wait of the curve after a throttle; default 10 s
	RetryFullJitter       bool          // draw waits from 0 to their least instead

	Reload time.Duration // how old what is known of live settings may become; default 30 s
}

// Catalogue is the configured models and queues of jobs as the rest of llmq knows them.
func (c *Config) Catalogue() llmq.Catalogue {
	models := make([]llmq.Model, 0, len(c.Models))
	for _, m := range c.Models {
		lm := llmq.Model{Alias: m.Alias, Lanes: m.Lanes, Any: m.Any, Timeouts: c.timeouts(m), EmbedTimeouts: c.embedTimeouts(m)}
		for _, t := range m.Targets {
			p := c.provider(t.Provider)
			lm.Targets = append(lm.Targets, llmq.Target{
				Model: m.Alias, Name: t.Name, Provider: t.Provider, ModelID: t.ModelID, Wires: t.Wires,
				MaxConcurrency: cmp.Or(t.MaxConcurrency, m.MaxConcurrency, p.MaxConcurrency),
				Limits:         c.limits(m, t, p), Pace: c.pace(m, t, p), Shared: c.shared(p), Tokens: llmq.TokenRule{Burndown: m.Burndown, DefaultMaxTokens: m.DefaultMaxTokens}, Tiers: t.ServiceTiers,
				HostedTools: m.HostedTools,
			})
		}
		models = append(models, lm)
	}
	for _, j := range c.Jobs {
		models = append(models, c.jobModel(j))
	}
	return llmq.NewCatalogue(models)
}

// Senders are those whose messages this environment takes.
func (c *Config) Senders() queue.Senders {
	s := queue.Senders{Own: c.Queues.SenderIDs, Workers: c.Queues.WorkerIDs}
	for _, p := range c.Producers {
		s.Producers = append(s.Producers, queue.Producer{Name: p.Name, SenderID: p.SenderID, Tenant: p.Tenant, Replies: p.replies(), Program: p.Program || c.Kind != KindAWS})
	}
	return s
}

// QueueNames lists every queue of the environment, in the order of the file,
// without the dead-letter queues.
func (c *Config) QueueNames() []queue.Name {
	var names []queue.Name
	for _, m := range c.Models {
		for _, l := range m.Lanes {
			names = append(names, c.Queues.Names().Model(m.Alias, l))
		}
	}
	for _, j := range c.Jobs {
		names = append(names, c.JobQueue(j))
	}
	return names
}
