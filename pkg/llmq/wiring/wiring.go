// Package wiring builds a process's parts from its configuration: the three functions
// of this repository and a team's own worker are wired alike. It decides nothing.
package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/offload"
	"github.com/llm-queue/llmq/pkg/llmq/internal/otlp"
	"github.com/llm-queue/llmq/pkg/llmq/internal/secrets"
	"github.com/llm-queue/llmq/pkg/llmq/internal/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/live"
	"github.com/llm-queue/llmq/pkg/llmq/provider/job"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/queue/sqs"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

// Process holds the parts that every kind of process shares. Connections are made on
// first use.
type Process struct {
	Config    *config.Config
	Catalogue llmq.Catalogue
	Log       *slog.Logger
	Name      string // of this process, in meta and logs

	valkey   redis.UniversalClient
	queue    *sqs.Client
	batcher  *queue.Batcher // sends of bg and bulk, of programs that run on
	bodies   bodies
	secrets  *secrets.Resolver
	aws      aws.Config
	claims   *claims.Store
	stops    *claims.Stops
	capacity *capacity.Gate
	results  *results.Store
	hub      *results.Hub
	metrics  *telemetry.Recorder
	store    *telemetry.Store // watches valkey
	trust    valkey.Trust     // in its connections
	space    keys.Space
	engine   func() (*engine.Engine, error) // made at its first use: a door seldom needs it
	traces   *tracing.Tracer                // nil: nothing is traced
	exporter *otlp.Exporter                 // nil: the same
	settings *live.Store
	rules    *live.Watch[*rules]

	makers map[config.ProviderType]NewProvider // of types that are none of llmq's own
	jobs   map[string]job.Func                 // of a worker that runs jobs; none of any other

	env  []string                                  // of the process; for cassettes, which must be allowed there
	wrap func(http.RoundTripper) http.RoundTripper // around every provider's transport; nil is nothing
}

// bodies keeps what is too large for a message or a result.
type bodies interface {
	Put(ctx context.Context, key string, body []byte) (llmq.Ref, error)
	Get(ctx context.Context, ref llmq.Ref) ([]byte, error)
	Delete(ctx context.Context, key string) error
}

// New loads the configuration that env names and builds the shared parts. log is for
// the process's whole life.
func New(ctx context.Context, env []string, log *slog.Logger, opts ...Option) (*Process, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if err := errors.Join(o.faults...); err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Path(env), env)
	if err != nil {
		return nil, err
	}
	if len(o.jobs) > 0 && len(cfg.Jobs) == 0 {
		return nil, llmq.Errorf(llmq.CodeConfiguration, "this program has functions for jobs, and the configuration has no queue of jobs: name one under jobs")
	}
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	p := &Process{Config: cfg, Catalogue: cfg.Catalogue(), Log: log, Name: processName(env), env: env, makers: o.makers, jobs: o.jobs}
	if p.aws, err = loadAWS(ctx, cfg); err != nil {
		return nil, err
	}
	p.secrets = secrets.NewResolver(env, secrets.NewManager(secretsmanager.NewFromConfig(p.aws)))
	if p.valkey, err = p.dialValkey(ctx); err != nil {
		return nil, err
	}
	p.metrics = newRecorder(cfg, env)
	p.store = telemetry.NewStore(functionName(env), p.metrics, log)
	p.valkey.AddHook(watched{p.store, cfg.Valkey.DialTimeout + 2*cfg.Valkey.CommandTimeout})
	p.space, p.engine = keys.New(cfg.Env), sync.OnceValues(p.makeEngine)
	p.queue = sqs.New(awssqs.NewFromConfig(p.aws, func(o *awssqs.Options) { o.BaseEndpoint = optional(cfg.Queues.Endpoint) }), cfg.Queues.URLBase, cfg.Timing.SQSSendTimeout, cfg.Queues.MaxMessageBytes)
	p.batcher = queue.Batched(p.queue, cfg.Timing.SQSBatchWait, cfg.Queues.MaxMessageBytes)
	p.claims, p.capacity = claims.New(p.space), newGate(p.space, cfg, p.Catalogue, log)
	p.bodies, p.results = p.storage()
	p.results.Mixed = mixed(p.store, &p.trust)
	p.hub = results.NewHub(p.results)
	p.stops = claims.NewStops(p.valkey, p.space)
	if err = p.startTraces(ctx); err != nil {
		return nil, err
	}
	p.settings = live.New(p.valkey, p.space)
	p.rules = p.watchRules()
	return p, nil
}

// storage is where large bodies and results lie. Without a bucket all is in the state store: the bodies of messages for
// themselves, those of results inside these.
func (p *Process) storage() (bodies, *results.Store) {
	if p.Config.Storage.Bucket == "" {
		return offload.NewValkey(p.valkey, p.space), results.New(p.valkey, p.space, noBodies{}, math.MaxInt)
	}
	bucket := offload.New(p.s3(), p.Config.Storage.Bucket, p.Config.Queues.Account())
	return bucket, results.New(p.valkey, p.space, bucket, p.Config.Storage.InlineMaxBytes)
}

// Close sends what waits to be sent, messages and spans, and ends every connection.
func (p *Process) Close() error {
	p.batcher.Close()
	p.closeTraces()
	return errors.Join(p.hub.Close(), p.stops.Close(), p.valkey.Close())
}

// functionConnections are enough for what one function's process runs at once. There may be a thousand such processes, each
// sign-in is paid for, and a cache takes 65,000 clients.
const functionConnections = 4

// connections is how many a process may have to the state store.
func connections(env []string, configured int) int {
	if lookup(env, "AWS_LAMBDA_FUNCTION_NAME") != "" {
		return min(configured, functionConnections)
	}
	return configured
}

func (p *Process) dialValkey(ctx context.Context) (redis.UniversalClient, error) {
	v := p.Config.Valkey
	o := valkey.Options{
		Address: v.Address, Cluster: v.Cluster, TLS: v.TLS, Username: v.Username,
		CommandTimeout: v.CommandTimeout, DialTimeout: v.DialTimeout, PoolSize: connections(p.env, v.MaxConnections), Trust: &p.trust,
	}
	if p.Config.Kind == config.KindAWS {
		o.IAM = &valkey.IAM{CacheName: v.CacheName, Region: p.aws.Region, Credentials: p.aws.Credentials}
	} else if !v.Password.IsZero() {
		password, err := p.secrets.Resolve(ctx, v.Password)
		if err != nil {
			return nil, fmt.Errorf("valkey password: %w", err)
		}
		o.Password = password.Reveal()
	}
	return valkey.Dial(o)
}

// awsHeaderTimeout bounds the wait for an answer's header once a request to AWS is
// written; the SDK then tries again, on a fresh connection. Nothing here polls.
const awsHeaderTimeout = 3 * time.Second

// loadAWS finds region and credentials as every AWS program does. Locally they are
// given by the host of the functions, and the transport is the one that a fast local
// server needs.
func loadAWS(ctx context.Context, cfg *config.Config) (aws.Config, error) {
	opts := []func(*awsconfig.LoadOptions) error{}
	if cfg.Region != "" {
		opts = append(opts, awsconfig.WithRegion(cfg.Region))
	}
	// The SDK's own kind of client, since the SDK adds the authorities of AWS_CA_BUNDLE to no other.
	opts = append(opts, awsconfig.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.ResponseHeaderTimeout = awsHeaderTimeout
	})))
	out, err := awsconfig.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return aws.Config{}, llmq.Errorf(llmq.CodeConfiguration, "AWS settings can't be loaded").Because(err)
	}
	if out.Region == "" {
		return aws.Config{}, llmq.Errorf(llmq.CodeConfiguration, "no AWS region is set: give region in the configuration or AWS_REGION in the environment")
	}
	client, ok := out.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return aws.Config{}, llmq.Errorf(llmq.CodeInternal, "the AWS SDK has made an HTTP client of its own").Because(fmt.Errorf("it is a %T", out.HTTPClient))
	}
	var transport http.RoundTripper = egress.Rest(client.GetTransport())
	if cfg.Kind == config.KindLocal {
		transport = rebuffer{transport}
	}
	out.HTTPClient = &http.Client{Transport: transport}
	return out, nil
}

// processName is the name of the Lambda's log stream, which is where its logs are, or
// the host's name and the process id.
func processName(env []string) string {
	if s := lookup(env, "AWS_LAMBDA_LOG_STREAM_NAME"); s != "" {
		return s
	}
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// functionName is the name of the Lambda function, or what stands for it elsewhere.
func functionName(env []string) string {
	return cmp.Or(lookup(env, "AWS_LAMBDA_FUNCTION_NAME"), "process")
}

func lookup(env []string, name string) string {
	for _, kv := range env {
		if len(kv) > len(name) && kv[:len(name)] == name && kv[len(name)] == '=' {
			return kv[len(name)+1:]
		}
	}
	return ""
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// noBodies stands in for the bucket of results where none is configured.
type noBodies struct{}

func (noBodies) Put(context.Context, string, []byte) (llmq.Ref, error) {
	return llmq.Ref{}, llmq.Errorf(llmq.CodeTooLarge, "no bucket is configured")
}

func (noBodies) Get(context.Context, llmq.Ref) ([]byte, error) {
	return nil, llmq.Errorf(llmq.CodeBadEnvelope, "ref points at a bucket, and none is configured").At("ref")
}

// Logger is a main's log: JSON lines on standard error, from the level on that env asks for. Nothing else here configures logging:
// a program gives [Open] a logger of its own.
func Logger(env []string) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: config.LogLevel(env)}))
}

// startTimeout bounds what a process does before its first request.
const startTimeout = 8 * time.Second

// Start is New with a bound, for mains; a process calls it once. The collector learns how much memory the function has: by itself it would let the
// heap double before it looks, and a function that takes more than it has is killed.
func Start(env []string, log *slog.Logger, opts ...Option) (*Process, error) {
	logRedis(log)
	if memory := config.FunctionMemory(env); memory > 0 && lookup(env, "GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory / 10 * 9)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return New(ctx, env, log, opts...)
}
