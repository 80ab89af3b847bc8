package wiring

import (
	"context"
	"fmt"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// Worker is what runs batches of messages.
func (p *Process) Worker() (*worker.Worker, error) {
	providers, err := p.providers()
	if err != nil {
		return nil, err
	}
	e, err := engine.New(engine.Config{
		Worker: p.Name, AttemptTimeout: p.Config.Timing.AttemptTimeout, RTCapacityWait: p.Config.Timing.RTCapacityWait,
	}, engine.Deps{
		Valkey: p.valkey, Catalogue: p.Catalogue, Claims: p.claims, Capacity: p.capacity, Results: p.results, Providers: providers, Log: p.Log,
	})
	if err != nil {
		return nil, err
	}
	timeouts := make(map[llmq.Lane]worker.Timeouts, len(p.Config.Lanes))
	for lane, l := range p.Config.Lanes {
		timeouts[lane] = worker.Timeouts{Default: l.Timeout, Max: l.MaxTimeout}
	}
	return worker.New(worker.Config{Names: p.Config.Queues.Names(), Catalogue: p.Catalogue, Timeouts: timeouts},
		worker.Deps{Queue: p.queue, Engine: e, Bodies: p.bodies, Log: p.Log})
}

// Admin is the operator's verbs.
func (p *Process) Admin() *admin.Admin {
	return admin.New(admin.Deps{Names: p.Config.Queues.Names(), Catalogue: p.Catalogue, Queue: p.queue, Capacity: p.capacity, Valkey: p.valkey})
}

// AdminKey is the local key of the admin API.
func (p *Process) AdminKey(ctx context.Context) (string, error) {
	secret, err := p.secrets.Resolve(ctx, p.Config.Admin.Key)
	if err != nil {
		return "", fmt.Errorf("admin key: %w", err)
	}
	return secret.Reveal(), nil
}
