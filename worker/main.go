// Package worker is what a team builds its own worker with (FEATURES A6): a main of one line, whose functions run as jobs with the
// claims, retries, cancellation and results of every call. llmq's own worker is the same without a job.
//
//	func main() {
//		worker.Main(worker.Job("resize", resize), worker.Job("ingest", ingest))
//	}
//
// Build it for Lambda (GOOS=linux, CGO_ENABLED=0, -tags lambda.norpc) as ARTIFACT/bootstrap and name the artifact in the
// configuration, under jobs. Any program of the deployment may then send a job by the queue's and the function's name.
package worker

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/llm-queue/llmq/pkg/llmq/provider/job"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

// Run is one run of a job, as its function gets it.
type Run = job.Run

// Func does a job. A job runs at least once, so that it must be idempotent; [job.Func] says what else holds.
type Func = job.Func

// Option is what a worker has that its configuration does not say.
type Option = wiring.Option

// Job has the worker run jobs of that name, [A-Za-z0-9][A-Za-z0-9._-]{0,63}, by a function. A worker with a job runs no calls of models;
// a job whose function it lacks it hands on to the other workers of the queue.
func Job(name string, do Func) Option { return wiring.WithJob(name, do) }

// Provider has the worker call providers of a type of one's own; [wiring.WithProvider] says how.
func Provider(kind string, make wiring.NewProvider) Option { return wiring.WithProvider(kind, make) }

// Fatal is an error that no repeat can mend: the job ends with it, and is not dead-lettered. Fatal(nil) is nil.
func Fatal(err error) error { return job.Fatal(err) }

// After is an error after which the job runs again in d at the earliest, up to its deadline. After(d, nil) is nil.
func After(d time.Duration, err error) error { return job.After(d, err) }

// Main runs the worker as a Lambda function, until Lambda ends the process. Call it as the last thing of main. It exits with status 1
// where the configuration, or an option, is at fault: the log says all of it.
func Main(opts ...Option) {
	log, env := wiring.Logger(os.Environ()), os.Environ()
	if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "AWS_LAMBDA_RUNTIME_API=") }) {
		log.Error("this is a Lambda function, and nothing else polls its queue: deploy it, or name it under jobs of a local cloud")
		os.Exit(1)
	}
	p, err := wiring.Start(env, log, opts...)
	if err != nil {
		log.Error("the function can't start", "error", err)
		os.Exit(1)
	}
	w, err := p.Worker()
	if err != nil {
		log.Error("the function can't start", "error", err)
		os.Exit(1)
	}
	told := func() {
		p.FlushMetrics(os.Stdout)
		p.FlushTraces()
	}
	lambda.StartWithOptions(newHandler(w, told, log), lambda.WithEnableSIGTERM(w.Drain))
}
