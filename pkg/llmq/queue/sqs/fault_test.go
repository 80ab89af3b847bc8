package sqs

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	local "github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// D10: what a failed send says of the queue. Only what may pass by itself counts against it.
func TestSend_TellsAnOutageFromAFaultOfOurs(t *testing.T) {
	t.Parallel()
	refused := func(code string, status int) local.Fault {
		return local.Fault{Kind: local.Refuse, Op: "SendMessage", Code: code, Status: status}
	}
	for what, tc := range map[string]struct {
		fault local.Fault
		queue queue.Name // "" is one that exists
		says  error      // nil: nothing
	}{
		"down":             {fault: refused("", 0), says: queue.ErrRefused},
		"internal error":   {fault: refused("InternalFailure", 500), says: queue.ErrRefused},
		"throttled":        {fault: refused("RequestThrottled", 0), says: queue.ErrRefused},
		"over its limit":   {fault: refused("OverLimit", 0), says: queue.ErrRefused},
		"connection cut":   {fault: local.Fault{Kind: local.Cut, Op: "SendMessage"}, says: queue.ErrRefused},
		"no answer":        {fault: local.Fault{Kind: local.Hang, Op: "SendMessage"}, says: queue.ErrUnanswered},
		"no right":         {fault: refused("AccessDeniedException", 400)},
		"no queue":         {queue: "llm-nope-rt"},
		"bad credentials":  {fault: refused("InvalidClientTokenId", 403)},
		"bad message":      {fault: refused("InvalidMessageContents", 400)},
		"key is not there": {fault: refused("KmsNotFound", 400)},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := local.New(local.Options{})
			t.Cleanup(server.Close)
			srv := httptest.NewServer(server)
			t.Cleanup(srv.Close)
			api := sqs.New(sqs.Options{
				Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), Credentials: credentials.NewStaticCredentialsProvider("door", "s", ""), RetryMaxAttempts: 1,
				HTTPClient: &http.Client{Transport: local.RebufferTransport(nil)},
			})
			if _, err := api.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(string(name))}); err != nil {
				t.Fatal(err)
			}
			if tc.fault.Kind != 0 {
				defer server.Inject(tc.fault)()
			}
			q := tc.queue
			if q == "" {
				q = name
			}
			err := New(api, srv.URL+"/000000000000", 300*time.Millisecond, MaxMessageBytes).Send(t.Context(), q, queue.Outgoing{Body: []byte("{}")})
			var says error
			for _, known := range []error{queue.ErrRefused, queue.ErrUnanswered} {
				if errors.Is(err, known) {
					says = known
				}
			}
			if err == nil || !errors.Is(says, tc.says) {
				t.Errorf("error %v, which says %v; want %v", err, says, tc.says)
			}
		})
	}
}

// A caller that leaves says nothing of the queue.
func TestSend_CallerThatLeavesIsNoOutage(t *testing.T) {
	t.Parallel()
	c, _, _ := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.Send(ctx, name, queue.Outgoing{Body: []byte("{}")})
	if !errors.Is(err, llmq.CodeQueueUnavailable) || errors.Is(err, queue.ErrUnanswered) || errors.Is(err, queue.ErrRefused) {
		t.Errorf("error %v, want one that says nothing of the queue", err)
	}
}

// D10: a process that can open no connection is at fault itself.
func TestSend_NoConnectionLeftIsNoOutage(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL} {
		dial := func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", errno)}
		}
		api := sqs.New(sqs.Options{
			Region: "us-east-1", BaseEndpoint: aws.String("http://127.0.0.1:1"), Credentials: credentials.NewStaticCredentialsProvider("door", "s", ""), RetryMaxAttempts: 1,
			HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}},
		})
		err := New(api, "http://127.0.0.1:1/000000000000", time.Second, MaxMessageBytes).Send(t.Context(), name, queue.Outgoing{Body: []byte("{}")})
		if !errors.Is(err, errno) || errors.Is(err, queue.ErrRefused) || errors.Is(err, queue.ErrUnanswered) {
			t.Errorf("%v: error %v, want one that says nothing of the queue", errno, err)
		}
	}
}

// A server that is not there.
func TestSend_NoConnectionIsRefused(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	api := sqs.New(sqs.Options{Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), Credentials: credentials.NewStaticCredentialsProvider("door", "s", ""), RetryMaxAttempts: 1})
	if err := New(api, srv.URL+"/000000000000", time.Second, MaxMessageBytes).Send(t.Context(), name, queue.Outgoing{Body: []byte("{}")}); !errors.Is(err, queue.ErrRefused) {
		t.Errorf("error %v, want refused", err)
	}
}
