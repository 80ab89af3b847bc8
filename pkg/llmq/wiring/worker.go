package wiring

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// Worker is what runs batches of messages.
func (p *Process) Worker() (*worker.Worker, error) {
	e, err := p.engine()
	if err != nil {
		return nil, err
	}
	timeouts := make(map[llmq.Lane]worker.Timeouts, len(p.Config.Lanes))
	for lane, l := range p.Config.Lanes {
		timeouts[lane] = worker.Timeouts{Default: l.Timeout, Max: l.MaxTimeout}
	}
	records, err := p.records()
	if err != nil {
		return nil, err
	}
	return worker.New(worker.Config{
		Names: p.Config.Queues.Names(), Senders: p.Config.Senders(), Catalogue: p.Catalogue, Timeouts: timeouts,
		BodyBytes: config.FunctionMemory(p.env) / 2, // the other half is the runtime's, the event's and large replies'
		Drain:     p.drain(),
	}, worker.Deps{
		Timeout: p.lastTimeout, Queue: p.queue, Engine: e, Bodies: p.bodies, Keys: records, Log: p.Log, Metrics: p.metrics, Store: p.store, Traces: p.traces,
		Pass:    e.Pass,
		Replies: &worker.Replies{Valkey: p.valkey, Space: p.space, Results: p.results, Queue: p.queue, Bodies: p.bodies},
	})
}

// lambdaDrain is how long running calls may go on in a function that is told to stop. It is killed after 500 ms, by which all must
// be handed back.
const lambdaDrain = 100 * time.Millisecond

func (p *Process) drain() time.Duration {
	if lookup(p.env, "AWS_LAMBDA_FUNCTION_NAME") != "" {
		return lambdaDrain
	}
	return p.Config.Timing.Drain
}

// makeEngine is what runs calls in this process, [Process.engine].
func (p *Process) makeEngine() (*engine.Engine, error) {
	providers, err := p.providers()
	if err != nil {
		return nil, err
	}
	catalogue := p.Catalogue
	if len(p.jobs) > 0 {
		catalogue = llmq.NewCatalogue(slices.DeleteFunc(catalogue.Models(), func(m llmq.Model) bool { return !m.Jobs() }))
	}
	return engine.New(engine.Config{
		Worker: p.Name, AttemptTimeout: p.Config.Timing.AttemptTimeout,
		FirstContent: p.Config.Timing.FirstContent, Stall: p.Config.Timing.StreamStall, RTCapacityWait: p.Config.Timing.RTCapacityWait,
		Retry: retryPolicy(p.Config.Timing), MaxReceives: p.Config.Timing.MaxReceives,
	}, engine.Deps{
		Rules: p.engineRules, Metrics: p.metrics,
		Valkey: p.valkey, Catalogue: catalogue, Claims: p.claims, Stops: p.stops, Capacity: p.capacity, Results: p.results, Providers: providers, Log: p.Log,
		Traces: p.traces,
	})
}

func retryPolicy(t config.Timing) retry.Policy {
	return retry.Policy{
		Curve: retry.Curve{
			Base: t.RetryBase, Multiplier: t.RetryMultiplier, Spread: t.RetrySpread, Max: t.RetryMax, FullJitter: t.RetryFullJitter,
		},
		ThrottleMax: t.ThrottleRetryMax, Attempts: t.RetryAttempts, ThrottleAttempts: t.ThrottleRetryAttempts, SleepMost: t.RetryMax,
	}
}

// Admin is the operator's verbs.
func (p *Process) Admin() *admin.Admin {
	return admin.New(admin.Deps{Names: p.Config.Queues.Names(), Catalogue: p.Catalogue, Queue: p.queue, Capacity: p.capacity, Valkey: p.valkey, Bodies: p.bodies, InForce: p.Settings().InForce})
}

// Settings is the verbs of what holds while processes run.
func (p *Process) Settings() *admin.Settings {
	return admin.NewSettings(admin.SettingsDeps{Config: p.Config, Store: p.settings, Valkey: p.valkey, Space: p.space, Trail: p.Trail()})
}

// Doctor is the verb that looks at everything.
func (p *Process) Doctor(o *admin.Operator) (*admin.Doctor, error) {
	registry, err := p.Keys()
	if err != nil {
		return nil, err
	}
	return admin.NewDoctor(o, admin.DoctorDeps{
		Config: p.Config, Space: p.space,
		Pepper: func(ctx context.Context) error { _, err := p.peppers(ctx); return err },
		Keys: func(ctx context.Context) (bool, error) {
			records, _, err := registry.List(ctx, "", 1)
			return len(records) > 0, err
		},
	}), nil
}

// AdminKey is the local key of the admin API.
func (p *Process) AdminKey(ctx context.Context) (string, error) {
	secret, err := p.secrets.Resolve(ctx, p.Config.Admin.Key)
	if err != nil {
		return "", fmt.Errorf("admin key: %w", err)
	}
	return secret.Reveal(), nil
}
