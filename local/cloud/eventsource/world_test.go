package eventsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awslambda "github.com/aws/aws-sdk-go-v2/service/lambda"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/sqs"
)

// inProcess carries requests to a handler without a socket, so that all of it may live in a bubble.
type inProcess struct{ handler http.Handler }

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	t.handler.ServeHTTP(w, r)
	_ = r.Body.Close()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func sqsClient(h http.Handler) *awssqs.Client {
	return awssqs.New(awssqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.test"), Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient: &http.Client{Transport: inProcess{h}},
	})
}

// world is a service on an embedded SQS, in a bubble, whose functions are one func.
type world struct {
	t        *testing.T
	queue    *awssqs.Client
	url      string // of the queue "calls"
	mappings *Mappings
	api      *awslambda.Client

	mu       sync.Mutex // guards what follows
	function function
	calls    []call
}

// function is what a function does: its reply, or its error.
type function func(ctx context.Context, e events.SQSEvent) (any, error)

// call is an invocation.
type call struct {
	at  time.Duration
	ids []string // bodies of the messages
}

const callsARN = "arn:aws:sqs:us-east-1:000000000000:calls"

// inWorld runs a test with a queue "calls" of the visibility timeout given and functions "worker" and "other" with a
// timeout of 30s.
func inWorld(t *testing.T, visibility string, edit func(*Options), test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := sqs.New(sqs.Options{})
		defer server.Close()
		w := &world{t: t, queue: sqsClient(server)}
		out, err := w.queue.CreateQueue(t.Context(), &awssqs.CreateQueueInput{
			QueueName: aws.String("calls"), Attributes: map[string]string{"VisibilityTimeout": visibility},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.url = aws.ToString(out.QueueUrl)
		began := time.Now()
		o := DefaultOptions()
		o.Region, o.AccountID, o.Queue = "us-east-1", "000000000000", w.queue
		o.FunctionTimeout = func(name string) (time.Duration, bool) { return 30 * time.Second, name == "worker" || name == "other" }
		o.Invoker = fakeInvoker(func(ctx context.Context, _ string, payload []byte) (lambda.Result, error) {
			var e events.SQSEvent
			if err := json.Unmarshal(payload, &e); err != nil {
				t.Errorf("event: %v", err)
			}
			c := call{at: time.Since(began)}
			for _, r := range e.Records {
				c.ids = append(c.ids, r.Body)
			}
			w.mu.Lock()
			w.calls = append(w.calls, c)
			function := w.function
			w.mu.Unlock()
			if function == nil {
				return lambda.Result{}, nil
			}
			return result(function(ctx, e))
		})
		if edit != nil {
			edit(&o)
		}
		if w.mappings, err = NewMappings(o); err != nil {
			t.Fatal(err)
		}
		defer w.mappings.Close(context.Background())
		w.api = awslambda.New(awslambda.Options{
			Region: "us-east-1", BaseEndpoint: aws.String("http://lambda.test"), Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
			HTTPClient: &http.Client{Transport: inProcess{w.mappings}}, Retryer: aws.NopRetryer{},
		})
		test(t, w)
	})
}

// on has the functions do that from now on. Until then they succeed.
func (w *world) on(f function) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.function = f
}

// result is what the host makes of a function's answer: a reply as it is when it is a string, a failure of the service when
// the error is one, else a failure of the function.
func result(reply any, err error) (lambda.Result, error) {
	if _, refused := errors.AsType[*lambda.Error](err); refused {
		return lambda.Result{}, err
	}
	if err == nil {
		if raw, ok := reply.(string); ok {
			return lambda.Result{Payload: []byte(raw)}, nil
		}
		body, failed := json.Marshal(reply)
		return lambda.Result{Payload: body}, failed
	}
	return lambda.Result{FunctionError: "Unhandled", ErrorType: "errorString"}, nil
}

// add makes a mapping that is enabled.
func (w *world) add(edit func(*Mapping)) *Source {
	w.t.Helper()
	m := Mapping{Function: "worker", QueueARN: callsARN, ReportBatchItemFailures: true}
	if edit != nil {
		edit(&m)
	}
	info, err := w.mappings.Add(w.t.Context(), m)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.mappings.Source(info.UUID)
}

// send puts messages into the queue, each body one.
func (w *world) send(bodies ...string) {
	w.t.Helper()
	for len(bodies) > 0 {
		n := min(10, len(bodies))
		in := &awssqs.SendMessageBatchInput{QueueUrl: &w.url}
		for i, body := range bodies[:n] {
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(body)})
		}
		out, err := w.queue.SendMessageBatch(w.t.Context(), in)
		if err != nil || len(out.Failed) > 0 {
			w.t.Fatal(err, out)
		}
		bodies = bodies[n:]
	}
}

// numbered returns n bodies.
func numbered(n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprintf("m%05d", i)
	}
	return bodies
}

// left counts the messages that are in the queue: to be had, and hidden.
func (w *world) left() (visible, hidden string) {
	w.t.Helper()
	out, err := w.queue.GetQueueAttributes(w.t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &w.url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.Attributes["ApproximateNumberOfMessages"], out.Attributes["ApproximateNumberOfMessagesNotVisible"]
}

func (w *world) invocations() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]call{}, w.calls...)
}

// failures is a reply that lists messages.
func failures(ids ...string) any {
	r := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	for _, id := range ids {
		r.BatchItemFailures = append(r.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
	}
	return r
}

// wire asks the API without an SDK.
func (w *world) wire(method, path, body string) (int, http.Header, string) {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.mappings.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
	out, err := io.ReadAll(rec.Result().Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec.Code, rec.Header(), string(out)
}
