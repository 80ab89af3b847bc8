package wiring

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/otlp"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

// exportEvery is how often a process that runs on exports its spans.
const exportEvery = 5 * time.Second

// startTraces makes what spans are made and exported with. Without an endpoint there is nothing, and nothing is traced.
func (p *Process) startTraces(ctx context.Context) error {
	if p.Config.Traces.Endpoint == "" {
		return nil
	}
	cfg := otlp.Config{
		Endpoint: p.Config.Traces.Endpoint, Ratio: p.Config.Traces.SampleRatio.Of, Every: exportEvery, Log: p.Log,
		Resource: map[string]string{
			"service.name": "llmq", "service.namespace": "llmq", "service.instance.id": p.Name, "deployment.environment.name": p.Config.Env,
		},
	}
	if name := lookup(p.env, "AWS_LAMBDA_FUNCTION_NAME"); name != "" {
		cfg.Every = 0 // a function is frozen between two invocations
		cfg.Resource["service.name"], cfg.Resource["faas.name"], cfg.Resource["cloud.provider"], cfg.Resource["cloud.region"] = name, name, "aws", p.aws.Region
	}
	var err error
	if p.exporter, err = otlp.New(ctx, cfg); err != nil {
		return err
	}
	p.traces = tracing.New(p.exporter.Tracer(tracing.Scope), p.traced())
	return nil
}

// traced is what spans tell of the providers.
func (p *Process) traced() map[string]tracing.Provider {
	all := make(map[string]tracing.Provider, len(p.Config.Providers))
	for _, c := range p.Config.Providers {
		t := tracing.Provider{System: string(c.Type)}
		if c.Type == config.ProviderBedrock {
			t.System, t.Address, t.Port = "aws.bedrock", "bedrock-runtime."+c.Region+".amazonaws.com", 443
		}
		if u, err := url.Parse(c.BaseURL); err == nil && c.BaseURL != "" {
			t.Address = u.Hostname()
			t.Port = map[string]int{"https": 443, "http": 80}[u.Scheme]
			if port, err := strconv.Atoi(u.Port()); err == nil {
				t.Port = port
			}
		}
		all[c.Name] = t
	}
	return all
}

// FlushTraces exports the spans that have ended, best at the end of an invocation. It takes at most 200 ms, whatever the
// collector does, and nothing where nothing is traced.
func (p *Process) FlushTraces() {
	if p.exporter != nil {
		p.exporter.Flush()
	}
}

func (p *Process) closeTraces() {
	if p.exporter != nil {
		p.exporter.Close()
	}
}
