// Package core is llmq in this process, for measurements: a worker and a door, wired by a configuration file as the deployed ones
// are, over a real Valkey in cluster mode and SQS and S3 on sockets. What takes time in it is llmq, its stores and the provider; there is no
// function to start and no event source, so that what is measured is not theirs.
package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// Core is a running worker with its stores. Its methods are safe for concurrent use, but for Close.
type Core struct {
	Worker *worker.Worker
	SQS    *awssqs.Client
	Server *sqs.Server   // SQS itself
	Store  *redis.Client // Valkey, by a connection of its own
	Config *config.Config
	Path   string   // of the configuration's file
	Env    []string // with which a program of this deployment is started

	process *wiring.Process
	dir     string
	closers []func() error // undone in reverse order
}

const (
	region      = "us-east-1"
	account     = "000000000000"
	sender      = "bench" // whose messages the worker takes
	tenant      = "bench"
	kind        = "bench"
	bucket      = "llmq-bench"
	stateBucket = "llmq-bench-state"
	passwordEnv = "LLMQ_BENCH_VALKEY_PASSWORD"
	pepperEnv   = "LLMQ_BENCH_KEY_PEPPER"
	keyEnv      = "LLMQ_BENCH_PROVIDER_KEY"
)

// Model is one that p serves to at most limit calls at once, from the first on.
func Model(alias string, limit int) config.Model {
	return config.Model{Alias: alias, Lanes: llmq.Lanes(), Targets: []config.Target{{
		Name: "main", Provider: kind, ModelID: alias, Wires: []llmq.Wire{llmq.WireOpenAI}, MaxConcurrency: limit, Limits: config.Limits{Initial: limit},
	}}}
}

// Options say what runs. Models are those of [Model].
type Options struct {
	Models   []config.Model
	Own      provider.Provider // serves them; nil: the OpenAI-compatible endpoint at URL does, under Key
	URL, Key string
	// NoQueue has the worker's messages, those of [Core.Message], come from no queue: whatever it asks of theirs is granted at once.
	NoQueue bool
}

// Start starts a worker. It needs valkey-server. When it fails it leaves nothing behind.
func Start(ctx context.Context, o Options) (_ *Core, err error) {
	// The worker's SDK finds them where every program's does; the keys of whoever starts this stay out of it.
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": sender, "AWS_SECRET_ACCESS_KEY": "local", "AWS_SESSION_TOKEN": ""} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	c := &Core{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.dir, err = os.MkdirTemp("", "llmq-bench-"); err != nil {
		return nil, err
	}
	c.onClose(func() error { return os.RemoveAll(c.dir) })
	server, err := valkey.Start(ctx, valkey.Options{Dir: c.dir, Engine: valkey.Real})
	if err != nil {
		return nil, err
	}
	c.onClose(server.Close)
	c.Store = redis.NewClient(&redis.Options{
		Addr: server.Addr(), Password: server.Password(), PoolSize: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	c.onClose(c.Store.Close)
	c.Server = sqs.New(sqs.Options{Region: region, AccountID: account})
	c.onClose(func() error { c.Server.Close(); return nil })
	url, err := c.serve(c.Server)
	if err != nil {
		return nil, err
	}
	if err := c.configure(ctx, server, url, o); err != nil {
		return nil, err
	}
	if err := c.wire(ctx, server, o); err != nil {
		return nil, err
	}
	if c.Worker, err = c.process.Worker(); err != nil {
		return nil, err
	}
	if o.NoQueue {
		c.Worker.Queue = noQueue{}
	}
	return c, nil
}

// serve serves h on loopback until Close.
func (c *Core) serve(h http.Handler) (url string, err error) {
	url, stop, err := Serve(h)
	if err == nil {
		c.onClose(func() error { stop(); return nil })
	}
	return url, err
}

// startS3 is where callers' keys lie; nothing else here is large enough for it.
func (c *Core) startS3() (url string, err error) {
	backend := s3mem.New()
	for _, name := range []string{bucket, stateBucket} {
		if err := backend.CreateBucket(name); err != nil {
			return "", fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	return c.serve(gofakes3.New(backend).Server())
}

func (c *Core) configure(ctx context.Context, server *valkey.Server, url string, o Options) error {
	s3, err := c.startS3()
	if err != nil {
		return err
	}
	cfg := config.Default(config.KindLocal)
	cfg.Env, cfg.Region = "bench", region
	cfg.Queues.Endpoint, cfg.Queues.URLBase = url, url+"/"+account
	cfg.Queues.SenderIDs = []string{sender}
	cfg.Valkey.Address, cfg.Valkey.Cluster, cfg.Valkey.TLS = server.Addr(), true, false
	cfg.Valkey.Password, cfg.KeyPepper = config.Secret{Env: passwordEnv}, config.Secret{Env: pepperEnv}
	cfg.Valkey.CommandTimeout, cfg.Valkey.DialTimeout = 10*time.Second, 10*time.Second // a late answer is a measurement, not an outage
	cfg.Storage.Bucket, cfg.Storage.StateBucket, cfg.Storage.Endpoint = bucket, stateBucket, s3
	cfg.Limiter.BackgroundShare = config.Share{Of: 1, Given: true}
	cfg.Timing.RTCapacityWait = 100 * time.Second // whoever waits for a slot is measured, not sent away
	served := config.Provider{Name: kind, Type: kind}
	if o.Own == nil {
		served.Type, served.BaseURL, served.APIKey = config.ProviderOpenAI, o.URL+"/v1", config.Secret{Env: keyEnv}
		served.Private, served.AllowedCIDRs = true, []string{"127.0.0.1/32"}
		served.ConnectTimeout, served.ReadTimeout = 10*time.Second, time.Minute
	}
	cfg.Providers, cfg.Models = []config.Provider{served}, o.Models
	c.Config = cfg
	c.SQS = awssqs.New(awssqs.Options{
		Region: region, BaseEndpoint: aws.String(url), Credentials: credentials.NewStaticCredentialsProvider(sender, "local", ""),
		HTTPClient: &http.Client{Transport: sqs.RebufferTransport(nil)},
	})
	for _, q := range cfg.QueueNames() {
		if _, err := c.SQS.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: aws.String(string(q))}); err != nil {
			return fmt.Errorf("queue %s: %w", q, err)
		}
	}
	if err := capacity.PresetStore(ctx, c.Store, cfg.Env); err != nil {
		return fmt.Errorf("state store: %w", err)
	}
	return nil
}

func (c *Core) wire(ctx context.Context, server *valkey.Server, o Options) error {
	text, err := c.Config.Marshal()
	if err != nil {
		return err
	}
	c.Path = filepath.Join(c.dir, "llmq.yaml")
	if err := os.WriteFile(c.Path, text, 0o600); err != nil {
		return err
	}
	c.Env = []string{"LLMQ_CONFIG=" + c.Path, passwordEnv + "=" + server.Password(), pepperEnv + "=" + llmq.NewID() + llmq.NewID()}
	if o.Own == nil {
		c.Env = append(c.Env, keyEnv+"="+o.Key)
	}
	c.process, err = wiring.New(ctx, c.Env, slog.New(slog.DiscardHandler), wiring.WithProvider(kind, func(wiring.ProviderConfig) (provider.Provider, error) { return o.Own, nil }))
	if err != nil {
		return err
	}
	c.onClose(c.process.Close)
	return nil
}

// Door serves the HTTPS endpoint's handler on loopback, and gives a key for it.
func (c *Core) Door(ctx context.Context) (url, key string, err error) {
	door, err := c.process.Door(ctx)
	if err != nil {
		return "", "", err
	}
	registry, err := c.process.Keys()
	if err != nil {
		return "", "", err
	}
	wish := auth.Wish{Name: "bench", Tenant: tenant, Scopes: auth.Scopes(), Lanes: llmq.Lanes()}
	for _, m := range c.Config.Models {
		wish.Models = append(wish.Models, m.Alias)
	}
	issued, err := registry.Create(ctx, "bench", wish)
	if err != nil {
		return "", "", fmt.Errorf("key: %w", err)
	}
	url, err = c.serve(door)
	return url, issued.Key, err
}

func (c *Core) onClose(f func() error) { c.closers = append(c.closers, f) }

// Close ends everything and removes every file.
func (c *Core) Close() error {
	var errs []error
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i]())
	}
	c.closers = nil
	return errors.Join(errs...)
}

// Serve serves h on loopback until stop.
func Serve(h http.Handler) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // stop closes it
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // it ends when stop says so
	}()
	return "http://" + l.Addr().String(), func() { _ = srv.Close(); <-done }, nil
}
