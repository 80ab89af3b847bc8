// Package rig is a local cloud with a provider behind it: the fake one with its
// standard models, or one endpoint that two environment variables name. The run
// command, the end-to-end tests and the benchmarks all start it.
package rig

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/relay"
	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Options say what to start. The zero value is the fake provider behind doors on any
// free port.
type Options struct {
	HTTP, HTTPS, Admin string // addresses of the doors; "" is 127.0.0.1:0
	// Env may hold OPENAI_BASE_URL and OPENAI_API_KEY: then that endpoint serves every
	// model. LLMQ_* variables reach the functions, as on AWS.
	Env       []string
	Functions cloud.Functions // built binaries; without a door's it builds them
	// Jobs are the packages of workers that run jobs, by the artifact that the configuration names; they are built with
	// the functions.
	Jobs   map[string]string
	Engine valkey.Engine
	// Change may change the configuration before it is used.
	Change func(*config.Config)
	// Linked leads the functions to every part, and to the fake provider, over a link of
	// Rig.Links.
	Linked bool
	Output io.Writer // what the functions print; nil discards
	Logger *slog.Logger
	Step   func(string) // told what is going on; nil is not
}

// Rig is a running local cloud with its provider.
type Rig struct {
	*cloud.Cloud
	Fake         *server.Server // nil where an endpoint of the environment serves
	Provider     string         // who serves, for people
	FirstModel   string         // a model that a first call can name; "" where none is known
	NoFirstModel string         // why none is known
	Cassette     string         // what is recorded or played, for people; "" is nothing
	// Links are what a test can cut, hang, slow and refuse, each in one line, by part:
	// those of package cloud, and [PartProvider]. Empty unless Options.Linked.
	Links map[string]*relay.Relay

	dir     string
	closers []func(context.Context) error
}

// The standard models of the fake provider.
const (
	ModelChat     = "chat-a"
	ModelEmbed    = "emb-a"
	ModelConverse = "conv-a"
	fakeKeyEnv    = "LLMQ_FAKELLM_KEY"
)

// PartProvider is the link between the workers and the fake provider.
const PartProvider = "provider"

// Start starts a rig. ctx bounds the start alone. When it fails it leaves nothing
// behind.
func Start(ctx context.Context, o Options) (*Rig, error) {
	r := &Rig{Links: map[string]*relay.Relay{}}
	if err := r.start(ctx, o); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		return nil, errors.Join(err, r.Close(closing))
	}
	return r, nil
}

const closeWithin = 10 * time.Second

func (r *Rig) start(ctx context.Context, o Options) (err error) {
	step := o.Step
	if step == nil {
		step = func(string) {}
	}
	for _, a := range []*string{&o.HTTP, &o.HTTPS, &o.Admin} {
		if *a == "" {
			*a = "127.0.0.1:0"
		}
	}
	cfg := config.Default(config.KindLocal)
	cfg.Env = "local"
	tape, err := findTape(o.Env)
	if err != nil {
		return err
	}
	r.Cassette = tape.note
	env, err := r.provide(ctx, cfg, o, tape)
	if err != nil {
		return err
	}
	settings, err := settings(o.Env, tape)
	if err != nil {
		return err
	}
	env = append(env, settings...)
	if o.Change != nil {
		o.Change(cfg)
	}
	if _, err := clearFolders(os.TempDir()); err != nil {
		step(fmt.Sprintf("what a killed run left can't be removed: %v", err))
	}
	if r.dir, err = makeFolder(os.TempDir()); err != nil {
		return fmt.Errorf("temp folder: %w", err)
	}
	r.closers = append(r.closers, func(context.Context) error { return os.RemoveAll(r.dir) })
	if o.Functions.Enqueue == "" {
		step("building the functions (the first time takes a minute or two)")
		var tags []string
		if tape.mode != "" {
			tags = append(tags, cassetteTag)
		}
		if o.Functions, err = cloud.Build(ctx, r.dir, o.Jobs, tags...); err != nil {
			return err
		}
	}
	step("starting SQS, S3, Valkey, Lambda and the API")
	parts := cloud.Options{
		Functions: o.Functions, Config: cfg, Env: env, Dir: r.dir, HTTP: o.HTTP, HTTPS: o.HTTPS, Admin: o.Admin,
		Engine: o.Engine, Output: o.Output, Logger: o.Logger,
	}
	if o.Linked {
		parts.Link = r.link
	}
	if r.Cloud, err = cloud.Start(ctx, parts); err != nil {
		return err
	}
	r.closers = append(r.closers, r.Cloud.Close)
	for _, warning := range r.Config.Warnings() {
		step("warning: " + warning)
	}
	return nil
}

// provide sets the provider and the models, and returns the secrets that they refer to.
func (r *Rig) provide(ctx context.Context, cfg *config.Config, o Options, t tape) ([]string, error) {
	p, m, given, err := config.FromOpenAIEnv(o.Env, []string{o.HTTP, o.HTTPS, o.Admin})
	if err != nil {
		return nil, err
	}
	if given {
		cfg.Providers, cfg.Models = []config.Provider{p}, []config.Model{m}
		r.Provider = p.BaseURL + " (OPENAI_BASE_URL); any model name is passed on"
		if t.plays() {
			r.NoFirstModel = "the endpoint is not asked while recordings are played"
		} else if r.FirstModel, err = firstModel(ctx, p.BaseURL, lookup(o.Env, "OPENAI_API_KEY")); err != nil {
			r.NoFirstModel = err.Error()
		}
		return []string{"OPENAI_API_KEY=" + lookup(o.Env, "OPENAI_API_KEY")}, nil
	}
	key := "fake_" + randomHex()
	url, err := r.startFake(o, key) //nolint:contextcheck // links live until Close
	if err != nil {
		return nil, fmt.Errorf("fake provider: %w", err)
	}
	fakeModels(cfg, url)
	r.Provider, r.FirstModel = "fakellm (no model behind it: it repeats what it is told)", ModelChat
	return []string{fakeKeyEnv + "=" + key}, nil
}

// fakeModels configures the fake provider's two wires and a model each for what the
// door serves.
func fakeModels(cfg *config.Config, url string) {
	base := config.Provider{
		APIKey: config.Secret{Env: fakeKeyEnv}, Private: true, AllowedCIDRs: []string{"127.0.0.1/32"},
		ConnectTimeout: 10 * time.Second, ReadTimeout: 300 * time.Second,
	}
	openai, bedrock := base, base
	openai.Name, openai.Type, openai.BaseURL = "fake-openai", config.ProviderOpenAI, url+"/v1"
	bedrock.Name, bedrock.Type, bedrock.BaseURL, bedrock.Region = "fake-bedrock", config.ProviderBedrock, url, "us-east-1"
	cfg.Providers = []config.Provider{openai, bedrock}
	model := func(alias string, p config.Provider, id string) config.Model {
		return config.Model{Alias: alias, Lanes: llmq.Lanes(), Targets: []config.Target{
			{Name: "main", Provider: p.Name, ModelID: id, Wires: p.Wires(), MaxConcurrency: 20},
		}}
	}
	cfg.Models = []config.Model{
		model(ModelChat, openai, "fake-chat-1"),
		model(ModelEmbed, openai, "fake-embed-1"),
		model(ModelConverse, bedrock, "fake.converse-v1:0"),
	}
}

// Close ends everything and removes every file.
func (r *Rig) Close(ctx context.Context) error {
	var errs []error
	for i := len(r.closers) - 1; i >= 0; i-- {
		errs = append(errs, r.closers[i](ctx))
	}
	r.closers = nil
	return errors.Join(errs...)
}

func randomHex() string {
	var b [16]byte
	rand.Read(b[:]) // crypto/rand.Read never fails
	return hex.EncodeToString(b[:])
}

// settings are the LLMQ_* variables that are handed to the functions. What the rig sets
// itself is refused rather than ignored; what is for other programs is left out.
func settings(env []string, t tape) ([]string, error) {
	var out []string
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case !strings.HasPrefix(name, "LLMQ_") || value == "":
		case name == "LLMQ_LOCAL_PORT" || strings.HasPrefix(name, "LLMQ_ADMIN_"):
		case name == "LLMQ_CONFIG":
			return nil, fmt.Errorf("%s is set, but the local cloud makes its own file: unset it. Limits are set by LLMQ_SETTINGS, and most other settings "+
				"by variables too; docs/CONFIG.md lists them", name)
		case name == "LLMQ_AWS_REGION" || strings.HasPrefix(name, "LLMQ_REDIS_") || strings.HasPrefix(name, "LLMQ_SQS_ENDPOINT") ||
			strings.HasPrefix(name, "LLMQ_SQS_URL") || name == "LLMQ_SQS_SENDER_IDS" || name == "LLMQ_SQS_WORKER_IDS" || strings.HasPrefix(name, "LLMQ_S3_"):
			return nil, fmt.Errorf("%s is set, but the local cloud makes that itself: unset it", name)
		case name == cassetteDir && t.dir != "":
			out = append(out, name+"="+t.dir)
		default:
			out = append(out, kv)
		}
	}
	return out, nil
}
