package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	runtime "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/local/cloud/eventsource"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/sqs"
)

// Pipeline is what the local cloud itself carries, with an empty function, in messages a second. All of it runs on one
// embedded SQS and with as many workers.
type Pipeline struct {
	Messages int `json:"messages"`
	Workers  int `json:"workers"`

	// By the SDK, but without sockets: a bare loop that receives and deletes, which is the most there is, and the event
	// source with a Go function that does nothing.
	BareInProcess float64 `json:"bare_in_process_per_s"`
	LoopInProcess float64 `json:"event_loop_in_process_per_s"`

	// The same over sockets, and with worker processes for the function.
	Bare      float64 `json:"bare_per_s"`
	Loop      float64 `json:"event_loop_per_s"`
	Processes float64 `json:"pipeline_per_s"`
}

const (
	pipelineWorkers = 5 // what an event source begins with
	pipelineTimeout = 5 * time.Minute
	rounds          = 4 // taken in turns, so that what else the machine does falls on all alike
	benchFunction   = "empty"
	benchRegion     = "us-east-1"
	benchAccount    = "000000000000"
)

// serveFunction is what this binary does when it is started as a function: it answers every event with success.
func serveFunction() {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") == "" { //nolint:forbidigo // it is how a Lambda runtime knows that it is one
		return
	}
	runtime.Start(func() (events.SQSEventResponse, error) {
		return events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}, nil
	})
	os.Exit(0)
}

// measurePipeline sends n messages through each arrangement. It fails if one of them loses a message or delivers one twice.
func measurePipeline(ctx context.Context, n int, errOut io.Writer) (p Pipeline, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pipelineTimeout, errors.New("the pipeline is stuck"))
	defer cancel()
	server := sqs.New(sqs.Options{Region: benchRegion, AccountID: benchAccount})
	defer server.Close()
	url, stop, err := listen(ctx, server)
	if err != nil {
		return p, err
	}
	defer stop()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 2 * pipelineWorkers
	defer transport.CloseIdleConnections()
	sockets, inProcess := benchClient(url, sqs.RebufferTransport(transport)), benchClient(url, server.Transport())
	host, err := benchHost()
	if err != nil {
		return p, err
	}
	defer host.Close(context.WithoutCancel(ctx))

	each := (n + rounds - 1) / rounds
	p = Pipeline{Messages: rounds * each, Workers: pipelineWorkers}
	nothing := invokerFunc(func(context.Context, string, []byte, lambda.InvokeOptions) (lambda.Result, error) {
		return lambda.Result{}, nil
	})
	steps := []struct {
		name   string
		rate   *float64
		client *awssqs.Client
		work   func(context.Context, *tally) error
	}{
		{"receive and delete, in process", &p.BareInProcess, inProcess, bareLoop},
		{"event source, in process", &p.LoopInProcess, inProcess, eventLoop(nothing)},
		{"receive and delete, over sockets", &p.Bare, sockets, bareLoop},
		{"event source, over sockets", &p.Loop, sockets, eventLoop(nothing)},
		{"event source, worker processes", &p.Processes, sockets, eventLoop(host)},
	}
	took := make([]time.Duration, len(steps))
	for round := range rounds {
		for i, step := range steps {
			fmt.Fprintf(errOut, "· round %d of %d, %d messages: %s\n", round+1, rounds, each, step.name)
			d, err := timed(ctx, each, fmt.Sprintf("pipeline-%d-%d", round, i), step.client, step.work)
			if err != nil {
				return p, fmt.Errorf("%s: %w", step.name, err)
			}
			took[i] += d
		}
	}
	for i, step := range steps {
		*step.rate = float64(p.Messages) / took[i].Seconds()
	}
	return p, nil
}

func listen(ctx context.Context, h http.Handler) (url string, stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(l) // http.ErrServerClosed
	}()
	return "http://" + l.Addr().String(), func() {
		_ = srv.Close() // the listener's
		<-ended
	}, nil
}

func benchClient(url string, t http.RoundTripper) *awssqs.Client {
	return awssqs.New(awssqs.Options{
		Region: benchRegion, BaseEndpoint: aws.String(url), Credentials: credentials.NewStaticCredentialsProvider("bench", "local", ""),
		HTTPClient: &http.Client{Transport: t},
	})
}

// benchHost runs this very binary as the function.
func benchHost() (*lambda.Host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	host, err := lambda.New(lambda.DefaultOptions())
	if err != nil {
		return nil, err
	}
	return host, host.Create(lambda.FunctionConfig{
		Name: benchFunction, Bootstrap: self, Timeout: time.Minute, MemoryMB: 128, Concurrency: pipelineWorkers,
	})
}

// tally is one measurement. It stands between the loop and the queue, and counts.
type tally struct {
	*awssqs.Client

	queue string
	url   string
	want  int
	all   chan struct{} // closed when as many have been deleted as were sent

	mu      sync.Mutex
	seen    []int // deliveries of each message
	deleted int
	ended   time.Time
}

func (r *tally) ReceiveMessage(ctx context.Context, in *awssqs.ReceiveMessageInput, opts ...func(*awssqs.Options)) (*awssqs.ReceiveMessageOutput, error) {
	out, err := r.Client.ReceiveMessage(ctx, in, opts...)
	if err != nil {
		return out, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range out.Messages {
		i, err := strconv.Atoi(aws.ToString(m.Body))
		if err != nil {
			return nil, fmt.Errorf("foreign message: %w", err)
		}
		r.seen[i]++
	}
	return out, nil
}

func (r *tally) DeleteMessageBatch(ctx context.Context, in *awssqs.DeleteMessageBatchInput, opts ...func(*awssqs.Options)) (*awssqs.DeleteMessageBatchOutput, error) {
	out, err := r.Client.DeleteMessageBatch(ctx, in, opts...)
	if err != nil {
		return out, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.deleted
	r.deleted += len(out.Successful)
	if before < r.want && r.deleted >= r.want {
		r.ended = time.Now()
		close(r.all)
	}
	return out, nil
}

// timed fills a queue of that name and says how long it takes to work it off. Each needs a name of its own: SQS does not give the name of a
// deleted queue away again for a minute.
func timed(ctx context.Context, n int, queue string, client *awssqs.Client, work func(context.Context, *tally) error) (took time.Duration, err error) {
	created, err := client.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: &queue, Attributes: map[string]string{"VisibilityTimeout": "900"}})
	if err != nil {
		return 0, err
	}
	r := &tally{Client: client, queue: queue, url: aws.ToString(created.QueueUrl), want: n, all: make(chan struct{}), seen: make([]int, n)}
	defer func() {
		_, gone := client.DeleteQueue(context.WithoutCancel(ctx), &awssqs.DeleteQueueInput{QueueUrl: &r.url})
		err = errors.Join(err, gone)
	}()
	if err := r.fill(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := work(ctx, r); err != nil {
		return 0, err
	}
	if err := r.check(ctx); err != nil {
		return 0, err
	}
	return r.ended.Sub(began), nil
}

func (r *tally) fill(ctx context.Context) error {
	for first := 0; first < r.want; first += 10 {
		in := &awssqs.SendMessageBatchInput{QueueUrl: &r.url}
		for i := first; i < min(first+10, r.want); i++ {
			id := aws.String(strconv.Itoa(i))
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: id, MessageBody: id})
		}
		out, err := r.SendMessageBatch(ctx, in)
		if err != nil {
			return err
		}
		if len(out.Failed) > 0 {
			return fmt.Errorf("%d messages were not taken", len(out.Failed))
		}
	}
	return nil
}

// check says whether every message came once and is gone.
func (r *tally) check(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost, twice := 0, 0
	for _, n := range r.seen {
		if n == 0 {
			lost++
		} else if n > 1 {
			twice++
		}
	}
	out, err := r.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &r.url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		return err
	}
	left := out.Attributes["ApproximateNumberOfMessages"] + "+" + out.Attributes["ApproximateNumberOfMessagesNotVisible"]
	if lost > 0 || twice > 0 || r.deleted != r.want || left != "0+0" {
		return fmt.Errorf("of %d messages %d were lost, %d came twice, %d were deleted, %s are left", r.want, lost, twice, r.deleted, left)
	}
	return nil
}

// bareLoop receives and deletes, with nothing between.
func bareLoop(ctx context.Context, r *tally) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	faults := make(chan error, pipelineWorkers)
	var workers sync.WaitGroup
	for range pipelineWorkers {
		workers.Go(func() {
			if err := r.workOff(ctx); err != nil {
				faults <- err
				cancel()
			}
		})
	}
	workers.Wait()
	select {
	case err := <-faults:
		return err
	default:
		return context.Cause(ctx)
	}
}

func (r *tally) workOff(ctx context.Context) error {
	for {
		select {
		case <-r.all:
			return nil
		default:
		}
		out, err := r.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
			QueueUrl: &r.url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			return err
		}
		if len(out.Messages) == 0 {
			continue
		}
		in := &awssqs.DeleteMessageBatchInput{QueueUrl: &r.url}
		for i, m := range out.Messages {
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
		}
		if _, err := r.DeleteMessageBatch(ctx, in); err != nil {
			return err
		}
	}
}

type invoker interface {
	Invoke(ctx context.Context, name string, payload []byte, opts lambda.InvokeOptions) (lambda.Result, error)
}

type invokerFunc func(ctx context.Context, name string, payload []byte, opts lambda.InvokeOptions) (lambda.Result, error)

func (f invokerFunc) Invoke(ctx context.Context, name string, payload []byte, opts lambda.InvokeOptions) (lambda.Result, error) {
	return f(ctx, name, payload, opts)
}

// eventLoop runs an event source until the queue is worked off.
func eventLoop(fn invoker) func(context.Context, *tally) error {
	return func(ctx context.Context, r *tally) error {
		if _, err := fn.Invoke(ctx, benchFunction, []byte(`{}`), lambda.InvokeOptions{}); err != nil {
			return err // the first process is warm; the others start under load
		}
		tuning := eventsource.DefaultTuning()
		tuning.Pollers = pipelineWorkers
		source, err := eventsource.New(eventsource.Mapping{
			Function: benchFunction, QueueURL: r.url, QueueARN: "arn:aws:sqs:" + benchRegion + ":" + benchAccount + ":" + r.queue, Region: benchRegion,
			BatchSize: 10, MaximumConcurrency: pipelineWorkers, ReportBatchItemFailures: true,
		}, tuning, eventsource.Deps{Queue: r, Invoker: fn})
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- source.Run(running) }()
		select {
		case <-r.all:
		case <-ctx.Done():
		}
		stop()
		return errors.Join(<-ended, context.Cause(ctx))
	}
}

func pipelineTable(out io.Writer, p Pipeline) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d messages through the local cloud, %d workers, batches of 10, an empty function; none lost, none twice\n", p.Messages, p.Workers)
	for _, row := range []struct {
		name       string
		rate, bare float64
	}{
		{"receive and delete, in process", p.BareInProcess, p.BareInProcess},
		{"event source, in process", p.LoopInProcess, p.BareInProcess},
		{"receive and delete, over sockets", p.Bare, p.Bare},
		{"event source, over sockets", p.Loop, p.Bare},
		{"event source, worker processes", p.Processes, p.Bare},
	} {
		fmt.Fprintf(&b, "  %-32s %8.0f/s  %3.0f %%\n", row.name, row.rate, 100*row.rate/row.bare)
	}
	_, _ = b.WriteTo(out) // a terminal
}
