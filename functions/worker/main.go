// Worker is the Lambda function that runs queued requests. It is deployed once per
// lane, from one artifact.
package main

import (
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
	w, err := p.Worker()
	if err != nil {
		log.Error("the function can't start", "error", err)
		os.Exit(1)
	}
	lambda.StartWithOptions(newHandler(w, func() { p.FlushMetrics(os.Stdout) }, log), lambda.WithEnableSIGTERM(w.Drain))
}
