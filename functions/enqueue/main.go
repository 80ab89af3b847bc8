// Enqueue is the Lambda function behind the door's API.
package main

import (
	"context"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

func main() {
	log := wiring.Logger(os.Environ())
	p, err := wiring.Start(os.Environ(), log)
	if err != nil {
		log.Error("the function can't start", "error", err)
		os.Exit(1)
	}
	door, err := p.Door(context.Background())
	if err != nil {
		log.Error("the function can't start", "error", err)
		os.Exit(1)
	}
	told := func() {
		p.FlushMetrics(os.Stdout)
		p.FlushTraces()
	}
	lambda.Start(newHandler(door, told))
}
