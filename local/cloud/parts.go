package cloud

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/llm-queue/llmq/local/cloud/eventsource"
	"github.com/llm-queue/llmq/local/cloud/front"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	sqsqueue "github.com/llm-queue/llmq/pkg/llmq/queue/sqs"
)

// Names of the functions, as a deployment has them.
const (
	FunctionEnqueue  = "llmq-enqueue"
	FunctionAdmin    = "llmq-admin"
	FunctionGovernor = "llmq-governor"
	functionWorker   = "llmq-worker-"
)

// FunctionWorker is the name of a lane's worker function.
func FunctionWorker(l llmq.Lane) string { return functionWorker + string(l) }

// workers are the names of all of them, and of those that run jobs.
func workers(cfg *config.Config) []string {
	var names []string
	for _, l := range llmq.Lanes() {
		names = append(names, FunctionWorker(l))
	}
	for _, j := range cfg.Jobs {
		names = append(names, cfg.JobFunction(j.Name))
	}
	return names
}

// Producer is the access key of a service that sends to the queues itself: workers take its
// messages as those of the tenant whose key the door's is, and nobody's else but the
// functions' own.
const Producer = "local"

// operatorARN is who signs for the admin API: its secret is the admin key, so that one shell has the rights of both.
const operatorARN = "arn:aws:iam::" + account + ":user/" + Producer

// Replies is the producer's own queue: it is told there how those calls ended whose message says "reply_to":"done".
const Replies queue.Name = "local-replies"

// Client is an SQS client of this cloud under an access key of that name, which is the
// sender that its messages show.
func (c *Cloud) Client(accessKey string) *awssqs.Client {
	return awssqs.New(awssqs.Options{
		Region: region, BaseEndpoint: aws.String(c.Config.Queues.Endpoint),
		Credentials: credentials.NewStaticCredentialsProvider(accessKey, "local", ""),
		HTTPClient:  &http.Client{Transport: sqs.RebufferTransport(nil)},
	})
}

// queuesWithin bounds a send of the client that makes the queues; it sends nothing.
const queuesWithin = time.Second

// createQueues makes every queue with its dead-letter queue, as the template does, and the producer's.
func (c *Cloud) createQueues(ctx context.Context) error {
	api := c.Client("template")
	queues := sqsqueue.New(api, c.Config.Queues.URLBase, queuesWithin, sqsqueue.MaxMessageBytes)
	create := func(q queue.Name, visibility time.Duration) error {
		if _, err := queues.Create(ctx, q, queue.Shape{Visibility: visibility, MaxReceives: admin.MaxReceives, Retention: admin.Retention}); err != nil {
			return fmt.Errorf("queue %s: %w", q, err)
		}
		return nil
	}
	if _, err := api.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: aws.String(string(Replies))}); err != nil {
		return fmt.Errorf("queue %s: %w", Replies, err)
	}
	for _, m := range c.Config.Models {
		for _, lane := range m.Lanes {
			if err := create(c.Config.Queues.Names().Model(m.Alias, lane), c.Config.Lanes[lane].FunctionTimeout); err != nil {
				return err
			}
		}
	}
	for _, j := range c.Config.Jobs {
		if err := create(c.Config.JobQueue(j), j.FunctionTimeout()); err != nil {
			return err
		}
	}
	return nil
}

func arn(q queue.Name) string { return "arn:aws:sqs:" + region + ":" + account + ":" + string(q) }

const (
	doorConcurrency  = 100
	adminConcurrency = 2
	doorTimeout      = 300 * time.Second
	adminTimeout     = 30 * time.Second
)

func (c *Cloud) createFunctions(o Options, env []string) error {
	opts := lambda.DefaultOptions()
	opts.Region, opts.AccountID, opts.TempDir = region, account, o.Dir
	opts.Output, opts.Logger = o.Output, o.Logger
	opts.AccountConcurrency = max(opts.AccountConcurrency, c.reserved()+unreserved) // as if the quota had been raised
	host, err := lambda.New(opts)
	if err != nil {
		return fmt.Errorf("lambda: %w", err)
	}
	c.Lambda = host
	c.onClose(func(ctx context.Context) error { host.Close(ctx); return nil })
	if err := c.openLambdaAPI(); err != nil {
		return err
	}
	env = append(env, "AWS_ENDPOINT_URL_LAMBDA="+c.LambdaURL) // the SDK's own variable
	for _, f := range c.functions(o.Functions) {
		// The access key is the function's identity: it is what its messages show as sender.
		f.Env = append([]string{"AWS_ACCESS_KEY_ID=" + f.Name, "AWS_SECRET_ACCESS_KEY=local"}, env...)
		if err := host.Create(f); err != nil {
			return fmt.Errorf("function %s: %w", f.Name, err)
		}
	}
	return nil
}

// unreserved is the part of an account's concurrency that AWS lets no function reserve.
const unreserved = 100

// reserved is the concurrency that the functions reserve together.
func (c *Cloud) reserved() int {
	n := 0
	for _, f := range c.functions(Functions{}) {
		n += f.Concurrency
	}
	return n
}

func (c *Cloud) functions(paths Functions) []lambda.FunctionConfig {
	fs := []lambda.FunctionConfig{
		{Name: FunctionEnqueue, Bootstrap: paths.Enqueue, Timeout: doorTimeout, MemoryMB: 256, Concurrency: doorConcurrency},
		{Name: FunctionAdmin, Bootstrap: paths.Admin, Timeout: adminTimeout, MemoryMB: 256, Concurrency: adminConcurrency},
		{Name: FunctionGovernor, Bootstrap: paths.Admin, Timeout: adminTimeout, MemoryMB: 256, Concurrency: adminConcurrency},
	}
	for _, lane := range llmq.Lanes() {
		l := c.Config.Lanes[lane]
		fs = append(fs, lambda.FunctionConfig{
			Name: FunctionWorker(lane), Bootstrap: paths.Worker, Timeout: l.FunctionTimeout, MemoryMB: l.MemoryMB,
			Concurrency: l.MaxConcurrency * max(1, len(c.Config.Models)),
		})
	}
	for _, j := range c.Config.Jobs {
		fs = append(fs, lambda.FunctionConfig{
			Name: c.Config.JobFunction(j.Name), Bootstrap: paths.Jobs[j.Artifact], Timeout: j.FunctionTimeout(), MemoryMB: j.MemoryMB, Concurrency: j.MaxConcurrency(),
		})
	}
	return fs
}

// startSources maps every queue to its lane's worker, or to the one of its jobs, and starts the governor's clock.
func (c *Cloud) startSources(ctx context.Context) error {
	for _, m := range c.Config.Models {
		for _, lane := range m.Lanes {
			name := c.Config.Queues.Names().Model(m.Alias, lane)
			l := c.Config.Lanes[lane]
			if _, err := c.Mappings.Add(ctx, eventsource.Mapping{
				Function: FunctionWorker(lane), QueueARN: arn(name), BatchSize: l.BatchSize, MaximumConcurrency: l.MaxConcurrency,
				ReportBatchItemFailures: true, EventCount: true,
			}); err != nil {
				return fmt.Errorf("event source of %s: %w", name, err)
			}
		}
	}
	for _, j := range c.Config.Jobs {
		name := c.Config.JobQueue(j)
		if _, err := c.Mappings.Add(ctx, eventsource.Mapping{
			Function: c.Config.JobFunction(j.Name), QueueARN: arn(name), BatchSize: 1, MaximumConcurrency: j.MaxConcurrency(),
			ReportBatchItemFailures: true, EventCount: true,
		}); err != nil {
			return fmt.Errorf("event source of %s: %w", name, err)
		}
	}
	return c.startGovernor() //nolint:contextcheck // its clock runs until Close
}

// openDoors opens the API over http and https, and the admin API on a port of its own:
// the API that callers see has no operator route (SECURITY-DESIGN KT7).
func (c *Cloud) openDoors(o Options) error {
	opts := front.DefaultOptions()
	opts.Function, opts.Stage, opts.AccountID, opts.Logger = FunctionEnqueue, "local", account, o.Logger
	api, err := front.New(opts, c.Lambda)
	if err != nil {
		return fmt.Errorf("front: %w", err)
	}
	door := c.meters.door.meter(api)
	if c.URL, err = c.serve(o.HTTP, door, nil); err != nil {
		return err
	}
	cert, ca, err := front.NewCertificate(o.Dir)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	c.CAFile = ca
	if c.TLSURL, err = c.serve(o.HTTPS, door, &cert); err != nil {
		return err
	}
	opts.Function, opts.Timeout, opts.Responses = FunctionAdmin, adminTimeout, nil // as deployed: that API sets up none
	opts.Users, opts.Region = []front.User{{ARN: operatorARN, AccessKey: Producer, Secret: c.AdminKey}}, region
	operators, err := front.NewBuffered(opts, c.Lambda)
	if err != nil {
		return fmt.Errorf("admin front: %w", err)
	}
	c.AdminURL, err = c.serve(o.Admin, c.meters.admin.meter(operators), nil)
	return err
}
