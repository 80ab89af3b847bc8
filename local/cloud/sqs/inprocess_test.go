package sqs_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/local/cloud/sqs"
)

// outgoing is a request as a client makes it.
func outgoing(ctx context.Context, t *testing.T, operation, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sqs.test/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = request(operation, "").Header
	return r
}

func TestTransport_AnswersAsAServerDoes(t *testing.T) {
	t.Parallel()
	client := &http.Client{Transport: local(t, sqs.Options{}).Transport()}
	response, err := client.Do(outgoing(t.Context(), t, "GetQueueUrl", `{"QueueName":"none"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.Status != "400 Bad Request" || response.Header.Get("X-Amzn-Query-Error") != "AWS.SimpleQueueService.NonExistentQueue;Sender" {
		t.Fatalf("%s, %v", response.Status, response.Header)
	}
}

func TestTransport_ACallerWhoLeavesGetsNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := local(t, sqs.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		response, err := server.Transport().RoundTrip(outgoing(ctx, t, "ReceiveMessage", `{"QueueUrl":"`+queueURL+`","WaitTimeSeconds":20}`))
		if response != nil {
			_ = response.Body.Close()
		}
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
	})
}
