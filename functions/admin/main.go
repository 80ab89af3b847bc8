// Admin is the Lambda function of the operator's API, and of the governor.
package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

func main() {
	log := wiring.Logger(os.Environ())
	h, err := wire(os.Environ(), log)
	if err != nil {
		log.Error("the function can't start", "error", err)
		os.Exit(1)
	}
	lambda.Start(h)
}

func wire(env []string, log *slog.Logger) (func(context.Context, json.RawMessage) (any, error), error) {
	p, err := wiring.Start(env, log)
	if err != nil {
		return nil, err
	}
	var g gate
	if p.Config.Kind == config.KindLocal {
		if g.key, err = p.AdminKey(context.Background()); err != nil {
			return nil, err
		}
	}
	v, err := operator(context.Background(), p)
	if err != nil {
		return nil, err
	}
	k, err := keys(p)
	if err != nil {
		return nil, err
	}
	d, err := p.Doctor(v)
	if err != nil {
		return nil, err
	}
	return newFunction(newHandler(v, k, p.Settings(), d, g), v, func() { p.FlushMetrics(os.Stdout) }), nil
}
