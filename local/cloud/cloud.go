// Package cloud is a small AWS on this machine: SQS, S3, Valkey, Lambda with its event
// sources and API Gateway, on loopback only. It runs the functions' real bootstrap
// binaries as processes and gives them a configuration like a deployed one.
package cloud

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/cloud/eventsource"
	"github.com/llm-queue/llmq/local/cloud/internal/localonly"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Functions are the paths of the bootstrap binaries.
type Functions struct {
	Enqueue, Worker, Admin string
	// Jobs are those of workers that run jobs, by the artifact's name. Each that the configuration names is required.
	Jobs map[string]string
}

// Options say what to run. Functions, Config, Dir and the addresses are required.
type Options struct {
	Functions Functions
	// Config names the providers and models, the lanes and the timing; what the cloud
	// itself provides (queues, state store, bucket, keys) is filled in.
	Config *config.Config
	// Env is given to every function besides what Lambda sets; secrets that Config refers to.
	Env []string
	// Dir is an empty folder of the caller's; the cloud writes its configuration and its
	// certificate there.
	Dir string
	// HTTP, HTTPS and Admin are the addresses of the doors, 127.0.0.1:port; port 0 is any.
	HTTP, HTTPS, Admin string
	// Engine picks the state store; zero takes valkey-server when it is installed.
	Engine valkey.Engine
	// Link, if not nil, may put a link that can fail (package relay) between the functions
	// and what they dial: it gets a part, PartValkey, PartSQS or PartS3, with its address,
	// and returns the address for the functions. The cloud itself takes no such link.
	Link func(part, address string) (string, error)
	// Output gets what the functions print. nil discards.
	Output io.Writer
	// Logger gets the cloud's own events. nil discards.
	Logger *slog.Logger
}

// Cloud is a running local cloud.
type Cloud struct {
	URL      string // http://127.0.0.1:port of the door
	TLSURL   string // https://127.0.0.1:port of the same
	AdminURL string // http://127.0.0.1:port of the admin API
	CAFile   string // PEM of the authority that signed TLSURL's certificate
	Key      string // bearer key of the door, which may do everything; of tenant "default"
	AdminKey string // bearer key of the admin API, and the secret of [Producer] where a request to it is signed (SigV4, execute-api, us-east-1)
	Config   *config.Config

	// LambdaURL is http://127.0.0.1:port of Lambda's API: invocations and event source mappings.
	LambdaURL string
	// MetricsURL is where Prometheus finds what the functions have counted.
	MetricsURL string
	// CountsURL is where llmq cost finds what AWS would bill.
	CountsURL string

	SQS      *sqs.Server
	Valkey   *valkey.Server
	Lambda   *lambda.Host
	Mappings *eventsource.Mappings

	path    string   // of the functions' configuration
	env     []string // with which they read it
	links   []string // what leads them over links
	meters  *meters
	log     *slog.Logger
	closers []func(context.Context) error // undone in reverse order
	servers sync.WaitGroup
}

// The parts that functions dial.
const (
	PartValkey = "valkey"
	PartSQS    = "sqs"
	PartS3     = "s3"
)

const (
	account   = "000000000000"
	region    = "us-east-1"
	bucket    = "llmq-local-data"
	state     = "llmq-local-state"
	tenant    = "default" // of the key and of the producer
	pepperEnv = "LLMQ_LOCAL_KEY_PEPPER"
	adminEnv  = "LLMQ_LOCAL_ADMIN_KEY"
	valkeyEnv = "LLMQ_LOCAL_VALKEY_PASSWORD"
)

// Start starts everything and returns when calls can be made. ctx bounds the start
// alone. When it fails it leaves nothing behind.
func Start(ctx context.Context, o Options) (*Cloud, error) {
	if o.Config == nil || o.Dir == "" || o.Functions.Enqueue == "" || o.Functions.Worker == "" || o.Functions.Admin == "" {
		return nil, errors.New("cloud: Config, Dir and the three Functions are required")
	}
	for _, j := range o.Config.Jobs {
		if o.Functions.Jobs[j.Artifact] == "" {
			return nil, fmt.Errorf("cloud: the queue of jobs %s needs Functions.Jobs[%q]", j.Name, j.Artifact)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cloud{log: o.Logger, AdminKey: randomText(), meters: &meters{printed: newPrinted(o.Output)}}
	if err := c.start(ctx, o); err != nil {
		stop, done := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer done()
		return nil, errors.Join(err, c.Close(stop))
	}
	return c, nil
}

func (c *Cloud) start(ctx context.Context, o Options) error {
	cfg := *o.Config
	var err error
	if c.Valkey, err = valkey.Start(ctx, valkey.Options{Dir: o.Dir, Engine: o.Engine, Logger: o.Logger}); err != nil {
		return fmt.Errorf("state store: %w", err)
	}
	c.onClose(func(context.Context) error { return c.Valkey.Close() })

	c.SQS = sqs.New(sqs.Options{Region: region, AccountID: account, NoisyGroups: true, Logger: o.Logger})
	c.onClose(func(context.Context) error { c.SQS.Close(); return nil })
	sqsURL, err := c.serve("127.0.0.1:0", localonly.Handler(c.SQS), nil)
	if err != nil {
		return err
	}
	s3URL, err := c.startS3()
	if err != nil {
		return err
	}
	cfg.Kind, cfg.Region = config.KindLocal, region
	cfg.Queues.Endpoint, cfg.Queues.URLBase = sqsURL, sqsURL+"/"+account
	cfg.Valkey.Address, cfg.Valkey.Cluster, cfg.Valkey.TLS = c.Valkey.Addr(), c.Valkey.Cluster(), false
	cfg.Valkey.Password = config.Secret{Env: valkeyEnv}
	cfg.Storage.Bucket, cfg.Storage.StateBucket, cfg.Storage.Endpoint = bucket, state, s3URL
	cfg.KeyPepper = config.Secret{Env: pepperEnv}
	cfg.Queues.SenderIDs, cfg.Queues.WorkerIDs = []string{FunctionEnqueue, FunctionAdmin}, workers(&cfg)
	cfg.Producers = append(slices.Clone(cfg.Producers), config.Producer{
		Name: "local", SenderID: Producer, Tenant: tenant, Replies: []string{"done=sqs:" + string(Replies), "archive=s3"},
	})
	cfg.Admin.Key = config.Secret{Env: adminEnv}
	c.Config = &cfg

	path := filepath.Join(o.Dir, "llmq.yaml")
	if err := writeConfig(path, c.Config); err != nil {
		return err
	}
	env := append([]string{
		"LLMQ_CONFIG=" + path, valkeyEnv + "=" + c.Valkey.Password(), pepperEnv + "=" + randomText(), adminEnv + "=" + c.AdminKey,
	}, o.Env...)
	c.path, c.env = path, env
	// What the functions will read, variables and all: a fault shows here, and not in the
	// log of a function that can't start.
	if c.Config, err = config.Load(path, env); err != nil {
		return err
	}
	if err := c.presetStore(ctx); err != nil {
		return err
	}
	if err := c.createQueues(ctx); err != nil {
		return err
	}
	if c.links, err = c.link(ctx, o.Link); err != nil {
		return err
	}
	o.Output = c.meters.printed
	if err := c.createFunctions(o, c.Environ()); err != nil {
		return err
	}
	if err := c.startSources(ctx); err != nil {
		return err
	}
	if err := c.openDoors(o); err != nil {
		return err
	}
	if err := c.createKey(ctx); err != nil {
		return err
	}
	return c.openMetrics(ctx)
}

// Environ is how a program of this machine is configured to be part of this cloud, as its functions are, links included. It
// needs AWS credentials beside; any will do.
func (c *Cloud) Environ() []string { return slices.Concat(c.env, c.links) }

// link has every part linked, and returns the variables that lead the functions there.
func (c *Cloud) link(ctx context.Context, link func(part, address string) (string, error)) ([]string, error) {
	if link == nil {
		return nil, nil
	}
	const scheme = "http://"
	store, err := link(PartValkey, c.Valkey.Addr())
	if err != nil {
		return nil, fmt.Errorf("link to the state store: %w", err)
	}
	if err := c.announce(ctx, store); err != nil {
		return nil, fmt.Errorf("link to the state store: %w", err)
	}
	host, port, err := net.SplitHostPort(store)
	if err != nil {
		return nil, fmt.Errorf("link to the state store: %w", err)
	}
	env := []string{"LLMQ_REDIS_HOST=" + host, "LLMQ_REDIS_PORT=" + port}
	for _, p := range []struct{ part, variable, url string }{
		{PartSQS, "LLMQ_SQS_ENDPOINT_URL", c.Config.Queues.Endpoint}, {PartS3, "LLMQ_S3_ENDPOINT_URL", c.Config.Storage.Endpoint},
	} {
		addr, err := link(p.part, strings.TrimPrefix(p.url, scheme))
		if err != nil {
			return nil, fmt.Errorf("link to %s: %w", p.part, err)
		}
		env = append(env, p.variable+"="+scheme+addr)
	}
	return env, nil
}

// announce makes a state store in cluster mode name the link as its own address: a
// cluster client dials what the cluster says, whatever it was told first.
func (c *Cloud) announce(ctx context.Context, address string) error {
	if !c.Valkey.Cluster() {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	admin := redis.NewClient(&redis.Options{Addr: c.Valkey.Addr(), Password: c.Valkey.Password(), PoolSize: 1})
	return errors.Join(admin.ConfigSet(ctx, "cluster-announce-port", port).Err(), admin.Close())
}

func (c *Cloud) startS3() (string, error) {
	backend := s3mem.New()
	for _, name := range []string{bucket, state} {
		if err := backend.CreateBucket(name); err != nil {
			return "", fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	if err := backend.SetVersioningConfiguration(state, gofakes3.VersioningConfiguration{Status: gofakes3.VersioningEnabled}); err != nil {
		return "", fmt.Errorf("bucket %s: %w", state, err)
	}
	return c.serve("127.0.0.1:0", localonly.Handler(c.meters.bucket.meter(gofakes3.New(backend).Server())), nil)
}

// serve listens on a loopback address until the cloud closes, and returns the URL.
func (c *Cloud) serve(addr string, h http.Handler, cert *tls.Certificate) (string, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		return "", fmt.Errorf("address %q: the local cloud listens on loopback addresses only, e.g. 127.0.0.1:8080", addr)
	}
	l, err := net.Listen("tcp", addr) //nolint:noctx // it is closed by Close
	if err != nil {
		return "", fmt.Errorf("listen on %s: %w", addr, err)
	}
	url := "http://" + l.Addr().String()
	if cert != nil {
		url = "https://" + l.Addr().String()
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}) // as a gateway: the Bedrock client of npm speaks HTTP/2 alone
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelDebug)}
	c.servers.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			c.log.Error("server ended", "address", addr, "error", err)
		}
	})
	c.onClose(func(ctx context.Context) error {
		if srv.Shutdown(ctx) != nil {
			return srv.Close()
		}
		return nil
	})
	return url, nil
}

func (c *Cloud) onClose(f func(context.Context) error) { c.closers = append(c.closers, f) }

// closeTimeout bounds the clean-up after a failed start.
const closeTimeout = 10 * time.Second

// Close ends everything that was started, the doors first and the state store last,
// and returns when no process and no goroutine of it is left. When ctx ends, what
// still runs is killed.
func (c *Cloud) Close(ctx context.Context) error {
	var errs []error
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i](ctx))
	}
	c.closers = nil
	c.servers.Wait()
	return errors.Join(errs...)
}

// randomText is a secret of characters that every header and every variable takes.
func randomText() string {
	var b [24]byte
	rand.Read(b[:]) // crypto/rand.Read never fails
	return "llmq_local_" + hex.EncodeToString(b[:])
}
