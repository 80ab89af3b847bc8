// Worker is the Lambda function that runs queued requests. It is deployed once per
// lane, from one artifact.
package main

import "github.com/llm-queue/llmq/worker"

func main() { worker.Main() }
