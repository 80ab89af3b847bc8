package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/httpapi"
)

// Program is llmq as a Go program has it: a client to call models with, and an HTTP client that lets an OpenAI or Bedrock SDK
// do so. It is safe for concurrent use.
type Program struct {
	*client.Client
	process *Process
	http    *http.Client
}

// Open makes the program's side of a deployment from the configuration file that env names (os.Environ gives it), as the
// functions are made from it. Its calls are the tenant's; the queues take them from a role or user that the
// configuration lists under producers with that tenant. Connections are made on first use, and Close ends them.
func Open(ctx context.Context, env []string, tenant string, log *slog.Logger, opts ...Option) (*Program, error) {
	p, err := New(ctx, env, log, opts...)
	if err != nil {
		return nil, err
	}
	program, err := p.program(ctx, tenant)
	if err != nil {
		return nil, errors.Join(err, p.Close()) //nolint:contextcheck // an end has a bound of its own
	}
	return program, nil
}

func (p *Process) program(ctx context.Context, tenant string) (*Program, error) {
	ids, err := p.idHasher(ctx)
	if err != nil {
		return nil, err
	}
	cfg := httpapi.DefaultConfig()
	who := client.Program{Tenant: tenant, HashID: ids.Hash, Timeouts: map[llmq.Lane]client.Timeouts{}}
	for lane, l := range p.Config.Lanes {
		cfg.Timeouts[lane] = httpapi.Timeouts{Default: l.Timeout, Max: l.MaxTimeout}
		who.Timeouts[lane] = client.Timeouts{Default: l.Timeout, Max: l.MaxTimeout}
		cfg.Wait = max(cfg.Wait, l.MaxTimeout+time.Minute) // a call's deadline ends a wait here, and no gateway's limit
	}
	c, err := p.clientOf(who)
	if err != nil {
		return nil, err
	}
	door, err := httpapi.New(cfg, httpapi.Deps{Calls: c, HashID: ids.Hash, Program: auth.Program(tenant, p.Catalogue.Models()), Catalogue: p.Catalogue, Logger: p.Log})
	if err != nil {
		return nil, fmt.Errorf("open a program's own door: %w", err)
	}
	return &Program{Client: c, process: p, http: &http.Client{Transport: httpapi.NewTransport(door)}}, nil
}

// HTTPClient is for an SDK: what goes through it goes to the queue, whatever its host and its credentials say. The
// OpenAI SDK takes it by option.WithHTTPClient, the Bedrock SDK as its Options.HTTPClient. [httpapi.Transport] says how
// it behaves.
func (p *Program) HTTPClient() *http.Client { return p.http }

// Close ends what the client does by itself, sends what waits to be sent, and ends every connection. No call may be under way.
func (p *Program) Close() error {
	p.Client.Close()
	return p.process.Close()
}
