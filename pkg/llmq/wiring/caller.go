package wiring

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/forecast"
	"github.com/llm-queue/llmq/pkg/llmq/httpapi"
	"github.com/llm-queue/llmq/pkg/llmq/internal/idhash"
	"github.com/llm-queue/llmq/pkg/llmq/keyrate"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// Client is the caller's side for a program that runs on: its bg and bulk sends share requests, and a context that is cancelled
// cancels its call. Its Close comes before the process's [Process.Close].
func (p *Process) Client() (*client.Client, error) { return p.clientOf(client.Program{}) }

// clientOf is Client, of a program whose calls are told whose they are.
func (p *Process) clientOf(who client.Program) (*client.Client, error) {
	return p.client(p.batcher, func(c *client.Config, d *client.Deps) {
		c.Program, c.StoreWait, c.OutlastStore, c.CancelWithContext = who, p.Config.Timing.ValkeyWait, true, true
		if d.Direct != nil {
			c.Caller = p.Name + "/" + llmq.NewID() // a process may have several
		}
	})
}

// doorStoreWait is the longest that a door waits for a lost state store: its function is paid for meanwhile.
const doorStoreWait = 2 * time.Second

// doorClient is the door's. Nobody waits for company in a function that is frozen when it has answered.
func (p *Process) doorClient() (*client.Client, error) {
	return p.client(nil, func(c *client.Config, d *client.Deps) {
		d.Forecast = p.Forecast()
		c.StoreWait, c.Callers = min(p.Config.Timing.ValkeyWait, doorStoreWait), p.Config.Door.MaxConcurrency
	})
}

// client is the caller's side; background nil sends every message at once.
func (p *Process) client(background queue.Queue, tune func(*client.Config, *client.Deps)) (*client.Client, error) {
	cfg := client.Config{
		Names: p.Config.Queues.Names(), Catalogue: p.Catalogue, InlineMaxBytes: p.Config.Storage.InlineMaxBytes,
		SilentSends: p.Config.Timing.SQSTimeoutsToFailover, DirectFor: p.Config.Timing.SQSFailover, SendTimeout: p.Config.Timing.SQSSendTimeout,
	}
	deps := client.Deps{
		Valkey: p.valkey, Queue: p.queue, Background: background, Claims: p.claims, Results: p.results, Hub: p.hub, Bodies: p.bodies, Log: p.Log,
		Space: p.space, Capacity: p.capacity, Metrics: p.metrics, Store: p.store, Rules: p.clientRules, Traces: p.traces,
	}
	if p.Config.Routing.Direct != config.DirectOff {
		if err := p.unmade(); err != nil { // now, and not in the first outage
			return nil, err
		}
		deps.Direct = func() (client.Runner, error) { return p.engine() }
	}
	tune(&cfg, &deps)
	return client.New(cfg, deps)
}

// Door is the HTTPS endpoint's handler.
func (p *Process) Door(ctx context.Context) (http.Handler, error) {
	c, err := p.doorClient()
	if err != nil {
		return nil, err
	}
	checker, err := p.checker(ctx)
	if err != nil {
		return nil, err
	}
	cfg := httpapi.DefaultConfig()
	cfg.Wait = p.Config.Door.Wait
	for lane, l := range p.Config.Lanes {
		cfg.Timeouts[lane] = httpapi.Timeouts{Default: l.Timeout, Max: l.MaxTimeout}
	}
	ids, err := p.idHasher(ctx)
	if err != nil {
		return nil, err
	}
	return httpapi.New(cfg, httpapi.Deps{Calls: c, Timeout: p.timeout, HashID: ids.Hash, Keys: checker, Rates: keyrate.New(p.valkey, p.space), Catalogue: p.Catalogue, Logger: p.Log, Traces: p.traces})
}

func (p *Process) idHasher(ctx context.Context) (*idhash.Hasher, error) {
	salt := idhash.LocalSalt // configuration refuses its absence on AWS
	if !p.Config.IDSalt.IsZero() {
		secret, err := p.secrets.Resolve(ctx, p.Config.IDSalt)
		if err != nil {
			return nil, fmt.Errorf("id hash salt: %w", err)
		}
		salt = secret.Reveal()
	}
	return idhash.New(salt)
}

// Forecast is where the governor leaves what doors forecast from.
func (p *Process) Forecast() *forecast.Store { return forecast.NewStore(p.space) }
