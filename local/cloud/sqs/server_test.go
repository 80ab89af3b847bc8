package sqs_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/cloud/sqs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// accessKey is what test clients sign with, and so their SenderId.
const accessKey = "AKIDLOCALTEST"

// serve starts a server on a loopback port, and returns it with an SDK client for it.
func serve(t testing.TB, o sqs.Options) (*sqs.Server, *awssqs.Client) {
	t.Helper()
	server := sqs.New(o)
	listener := httptest.NewServer(server)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
		listener.Close()
	})
	return server, clientOf(listener.URL, sqs.RebufferTransport(transport))
}

// createQueue makes a queue and returns its URL.
func createQueue(t testing.TB, client *awssqs.Client, name string, attributes map[string]string) string {
	t.Helper()
	out, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatalf("create queue %s: %v", name, err)
	}
	return *out.QueueUrl
}

func TestServer_MessageGoesThrough(t *testing.T) {
	t.Parallel()
	_, client := serve(t, sqs.Options{})
	queue := createQueue(t, client, "calls", nil)
	if _, err := client.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &queue, MessageBody: aws.String("hello")}); err != nil {
		t.Fatal(err)
	}
	got, err := client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &queue})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Messages) != 1 || *got.Messages[0].Body != "hello" {
		t.Fatalf("received %+v, want the message sent", got.Messages)
	}
	if _, err := client.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{
		QueueUrl: &queue, ReceiptHandle: got.Messages[0].ReceiptHandle,
	}); err != nil {
		t.Fatal(err)
	}
}

func TestServer_OverLimitIsATypedError(t *testing.T) {
	t.Parallel()
	_, client := serve(t, sqs.Options{MaxInFlight: 1})
	queue := createQueue(t, client, "calls", nil)
	for range 2 {
		if _, err := client.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &queue, MessageBody: aws.String("x")}); err != nil {
			t.Fatal(err)
		}
	}
	in := &awssqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: 10}
	if got, err := client.ReceiveMessage(t.Context(), in); err != nil || len(got.Messages) != 1 {
		t.Fatalf("got %v, %v, want the one message that may be in flight", got, err)
	}
	_, err := client.ReceiveMessage(t.Context(), in)
	if _, ok := errors.AsType[*types.OverLimit](err); !ok {
		t.Fatalf("error %v, want OverLimit", err)
	}
}

func TestServer_UnsignedSDKCallIsRefused(t *testing.T) {
	t.Parallel()
	_, client := serve(t, sqs.Options{})
	_, err := client.ListQueues(t.Context(), nil, func(o *awssqs.Options) {
		signed := o.HTTPClient
		o.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Del("Authorization")
			return signed.Do(r)
		})}
	})
	if api, ok := errors.AsType[smithy.APIError](err); !ok || api.ErrorCode() != "MissingAuthenticationToken" {
		t.Fatalf("error %v, want MissingAuthenticationToken", err)
	}
}
