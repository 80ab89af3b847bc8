package wiring

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// newRecorder is a flushing one in a function, and elsewhere a lasting one. What CloudWatch has of SQS is not paid for twice.
func newRecorder(cfg *config.Config, env []string) *telemetry.Recorder {
	switch {
	case lookup(env, "AWS_LAMBDA_FUNCTION_NAME") == "":
		return telemetry.NewLasting()
	case cfg.Kind == config.KindAWS:
		return telemetry.NewRecorder(telemetry.Native()...)
	}
	return telemetry.NewRecorder()
}

// Metrics is where this process counts.
func (p *Process) Metrics() *telemetry.Recorder { return p.metrics }

// FlushMetrics writes what was counted since the last flush as lines that CloudWatch reads, best at
// the end of an invocation and to the standard output.
func (p *Process) FlushMetrics(w io.Writer) {
	if err := p.metrics.FlushEMF(w, "llmq/"+p.Config.Env); err != nil {
		p.Log.Warn("metrics not written", "error", err)
	}
}

// Samples are what a process that runs on has counted, and what the state store knows of targets now: one round trip, whose failure
// leaves that out.
func (p *Process) Samples(ctx context.Context) []telemetry.Sample {
	var b luascript.Batch
	var asked []llmq.Target
	var answers []luascript.Pending[capacity.State]
	for _, m := range p.rules.Now(ctx).catalogue.Models() {
		for _, t := range m.Targets {
			asked, answers = append(asked, t), append(answers, p.capacity.Peek(&b, t))
		}
	}
	gauges := telemetry.NewLasting()
	err := b.Run(ctx, p.valkey)
	for i, t := range asked {
		st, unread := answers[i]()
		if err = cmp.Or(err, unread); unread == nil {
			admin.Gauge(gauges, t, st)
		}
	}
	if err != nil {
		p.Log.Warn("metrics of targets not read", "error", fmt.Errorf("peek: %w", err))
	}
	return append(p.metrics.Samples(ctx), gauges.Samples(ctx)...)
}

// Samples are the program's metrics, for package prom: http.Handle("/metrics", prom.Handler(program)).
func (p *Program) Samples(ctx context.Context) []telemetry.Sample { return p.process.Samples(ctx) }
