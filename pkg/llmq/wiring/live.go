package wiring

import (
	"context"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/live"
	"github.com/llm-queue/llmq/pkg/llmq/routing"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// rules are what holds of all that operators may change while processes run.
type rules struct {
	catalogue llmq.Catalogue
	fallback  fallback.Rules
	routing   routing.Rules
}

func rulesOf(c *config.Config) *rules {
	return &rules{catalogue: c.Catalogue(), fallback: fallbackRules(c.Models), routing: routingRules(c)}
}

// watchRules follows live settings. What a later deployment has dropped of the configuration is left out.
func (p *Process) watchRules() *live.Watch[*rules] {
	build := func(st live.State) (*rules, error) {
		over, unknown := p.Config.Known(st.Overrides)
		if len(unknown) > 0 {
			p.Log.Warn("live settings name what is not configured here", "names", unknown)
		}
		merged, err := p.Config.Override(over)
		if err != nil {
			return nil, err
		}
		if st.Revision > 0 {
			p.Log.Info("settings_followed", "revision", st.Revision)
		}
		return rulesOf(merged), nil
	}
	return live.NewWatch(p.settings, p.Config.Timing.Reload, rulesOf(p.Config), build, func(cause string, err error) {
		p.Log.Warn("settings_kept", "cause", cause, "error", err)
		p.metrics.Count(telemetry.Settings, telemetry.Labels{Cause: cause}, 1)
	})
}

func (p *Process) engineRules(ctx context.Context) engine.Rules {
	r := p.rules.Now(ctx)
	return engine.Rules{Catalogue: r.catalogue, Fallback: r.fallback}
}

func (p *Process) clientRules(ctx context.Context) client.Rules {
	r := p.rules.Now(ctx)
	return client.Rules{Catalogue: r.catalogue, Routing: r.routing}
}

// timeout is the deadline of a model's calls that name none; 0 is the lane's.
func (p *Process) timeout(ctx context.Context, alias string, op llmq.Op, l llmq.Lane) time.Duration {
	return p.rules.Now(ctx).catalogue.Timeout(alias, op, l)
}

// lastTimeout is timeout without a look at the store: of a message, whose run takes that look.
func (p *Process) lastTimeout(alias string, op llmq.Op, l llmq.Lane) time.Duration {
	return p.rules.Last().catalogue.Timeout(alias, op, l)
}

func fallbackRules(models []config.Model) fallback.Rules {
	r := fallback.Rules{Models: map[string][]fallback.Model{}, SkipTargets: map[string][]string{}}
	for _, m := range models {
		for _, f := range m.Fallback {
			r.Models[m.Alias] = append(r.Models[m.Alias], fallback.Model{Alias: f.Model, RequireHeadroom: f.RequireHeadroom})
		}
		r.SkipTargets[m.Alias] = m.SkipTargets
	}
	return r
}

func routingRules(c *config.Config) routing.Rules {
	r := routing.Rules{Killed: c.Routing.Killed, Models: map[string]routing.Rule{}}
	ways := map[config.RoutingMode]routing.Way{config.RoutingAuto: routing.Auto, config.RoutingDirect: routing.Direct, config.RoutingQueue: routing.Queue}
	for _, m := range c.Models {
		mode, percent := c.Route(m)
		r.Models[m.Alias] = routing.Rule{Way: ways[mode], QueuePercent: percent}
	}
	return r
}
