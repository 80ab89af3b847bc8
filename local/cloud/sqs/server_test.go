package sqs_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
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
	return server, awssqs.New(awssqs.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(listener.URL),
		Credentials:  credentials.NewStaticCredentialsProvider(accessKey, "secret", ""),
		HTTPClient:   &http.Client{Transport: sqs.RebufferTransport(transport)},
	})
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
