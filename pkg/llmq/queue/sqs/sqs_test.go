package sqs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	local "github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

const name = queue.Name("llm-chat-a-rt")

// setup is a client of an embedded server with one queue, and the SDK's own client of
// the same.
func setup(t *testing.T, seen ...func(*http.Request)) (*Client, *sqs.Client, string) {
	t.Helper()
	server := local.New(local.Options{})
	t.Cleanup(server.Close)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, see := range seen {
			see(r)
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	api := sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), Credentials: credentials.NewStaticCredentialsProvider("door", "s", ""),
		HTTPClient: &http.Client{Transport: local.RebufferTransport(nil)}, RetryMaxAttempts: 1,
	})
	out, err := api.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(string(name))})
	if err != nil {
		t.Fatal(err)
	}
	return New(api, strings.TrimSuffix(*out.QueueUrl, "/"+string(name)), 2*time.Second, MaxMessageBytes), api, *out.QueueUrl
}

func receive(t *testing.T, api *sqs.Client, url string, n int32) *sqs.ReceiveMessageOutput {
	t.Helper()
	out, err := api.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: n, WaitTimeSeconds: 1,
		MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// B10, B13: the tenant's group and the hints travel with the message.
func TestClient_SendCarriesBodyAttributesAndGroup(t *testing.T) {
	t.Parallel()
	c, api, url := setup(t)
	body := `{"params":{"x":"<b>&</b> café"}}`
	if err := c.Send(t.Context(), name, queue.Outgoing{Body: []byte(body), Group: "tenant-hash", Attributes: map[string]string{"llmq_op": "chat"}}); err != nil {
		t.Fatal(err)
	}
	got := receive(t, api, url, 1).Messages[0]
	if *got.Body != body || *got.MessageAttributes["llmq_op"].StringValue != "chat" || got.Attributes["MessageGroupId"] != "tenant-hash" {
		t.Errorf("message = %+v", got)
	}
}

// B8: many messages share requests, by count and by bytes, and each has its own end.
func TestClient_SendAllTellsEachMessageApart(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	c, api, url := setup(t, func(r *http.Request) {
		if strings.HasPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.SendMessage") {
			requests.Add(1)
		}
	})
	ms := make([]queue.Outgoing, 25)
	for i := range ms {
		ms[i] = queue.Outgoing{Body: fmt.Appendf(nil, "m%d", i), Attributes: map[string]string{"llmq_op": "chat"}, Group: "tenant-hash"}
	}
	ms[3].Body = make([]byte, MaxMessageBytes+1)
	ms[7].Body = []byte("a\x01b")
	ms[11].Body = []byte(strings.Repeat("x", 700<<10)) // two of these don't fit a request
	ms[12].Body = []byte(strings.Repeat("y", 700<<10))
	for i, err := range c.SendAll(t.Context(), name, ms) {
		want := map[int]llmq.Code{3: llmq.CodeTooLarge, 7: llmq.CodeInternal}[i]
		if (err != nil) != (want != "") || err != nil && !errors.Is(err, want) {
			t.Errorf("message %d: %v, want %q", i, err, want)
		}
	}
	if got := requests.Load(); got != 4 {
		t.Errorf("%d requests, want 4: 10, 1 of the large ones, the other with 9 more, 3", got)
	}
	arrived := map[string]int{}
	for range 100 {
		if len(arrived) == 23 {
			break
		}
		for _, m := range receive(t, api, url, 10).Messages {
			arrived[*m.Body]++
			if *m.MessageAttributes["llmq_op"].StringValue != "chat" || m.Attributes["MessageGroupId"] != "tenant-hash" {
				t.Errorf("message = %+v", m)
			}
		}
	}
	if len(arrived) != 23 {
		t.Errorf("%d messages arrived, want 23", len(arrived))
	}
}

// What a failed request carried may be on the queue or not: nobody is told that it was refused.
func TestClient_SendAllThatFailsLeavesAllUnknown(t *testing.T) {
	t.Parallel()
	c, _, _ := setup(t)
	for _, err := range c.SendAll(t.Context(), "llm-nope", []queue.Outgoing{{Body: []byte("1")}, {Body: []byte("2")}}) {
		if !errors.Is(err, llmq.CodeQueueUnavailable) {
			t.Error(err)
		}
	}
	if got := c.SendAll(t.Context(), name, nil); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestClient_ExtendTellsEachLeaseApart(t *testing.T) {
	t.Parallel()
	c, api, url := setup(t)
	for range 12 { // more than one batch of ten
		if err := c.Send(t.Context(), name, queue.Outgoing{Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	var leases []queue.Lease
	for len(leases) < 12 {
		for _, m := range receive(t, api, url, 10).Messages {
			leases = append(leases, queue.Lease{Receipt: *m.ReceiptHandle, For: 20 * time.Second})
		}
	}
	leases[11].Receipt = "not-a-receipt"
	errs := c.Extend(t.Context(), name, leases)
	for i, err := range errs {
		if (err != nil) != (i == 11) {
			t.Errorf("lease %d: %v", i, err)
		}
	}
}

func TestClient_ExtendToZeroMakesVisible(t *testing.T) {
	t.Parallel()
	c, api, url := setup(t)
	if err := c.Send(t.Context(), name, queue.Outgoing{Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	m := receive(t, api, url, 1).Messages[0]
	if err := c.Extend(t.Context(), name, []queue.Lease{{Receipt: *m.ReceiptHandle}})[0]; err != nil {
		t.Fatal(err)
	}
	if got := receive(t, api, url, 1).Messages; len(got) != 1 || got[0].Attributes["ApproximateReceiveCount"] != "2" {
		t.Errorf("received again: %+v", got)
	}
}

func TestClient_DepthCounts(t *testing.T) {
	t.Parallel()
	c, api, url := setup(t)
	for i := range 3 {
		if err := c.Send(t.Context(), name, queue.Outgoing{Body: []byte("{}"), Delay: time.Duration(i/2) * 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, api, url, 1)
	got, err := c.Depth(t.Context(), name)
	if want := (queue.Depth{Visible: 1, InFlight: 1, Delayed: 1}); err != nil || got != want {
		t.Errorf("depth = %+v, %v; want %+v", got, err, want)
	}
}

func TestClient_Errors(t *testing.T) {
	t.Parallel()
	c, api, _ := setup(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for what, got := range map[string]struct {
		err  error
		want llmq.Code
	}{
		"too large for this server": {New(api, "http://sqs.test", time.Second, 262_144).Send(t.Context(), name, queue.Outgoing{Body: make([]byte, 262_145)}), llmq.CodeTooLarge},
		"too large":                 {c.Send(t.Context(), name, queue.Outgoing{Body: make([]byte, MaxMessageBytes+1)}), llmq.CodeTooLarge},
		"too large with attributes": {c.Send(t.Context(), name, queue.Outgoing{Body: []byte(strings.Repeat("x", MaxMessageBytes)), Attributes: map[string]string{"a": "b"}}), llmq.CodeTooLarge},
		"bad character":             {c.Send(t.Context(), name, queue.Outgoing{Body: []byte("a\x01b")}), llmq.CodeInternal},
		"no such queue":             {c.Send(t.Context(), "llm-nope", queue.Outgoing{Body: []byte("{}")}), llmq.CodeQueueUnavailable},
		"cancelled":                 {c.Send(cancelled, name, queue.Outgoing{Body: []byte("{}")}), llmq.CodeQueueUnavailable},
	} {
		if !errors.Is(got.err, got.want) {
			t.Errorf("%s: %v, want %s", what, got.err, got.want)
		}
	}
	if _, err := c.Depth(t.Context(), "llm-nope"); !errors.Is(err, llmq.CodeQueueUnavailable) {
		t.Errorf("depth of no queue: %v", err)
	}
	if err := c.Extend(cancelled, name, []queue.Lease{{Receipt: "x"}})[0]; !errors.Is(err, llmq.CodeQueueUnavailable) {
		t.Errorf("extend, cancelled: %v", err)
	}
}

// B1: each lane of a model has its queue.
func TestNames_LanesHaveTheirQueues(t *testing.T) {
	t.Parallel()
	n := queue.Names{Prefix: "llm"}
	for lane, want := range map[llmq.Lane]queue.Name{llmq.LaneRT: "llm-chat-a-rt", llmq.LaneBG: "llm-chat-a", llmq.LaneBulk: "llm-chat-a-bulk"} {
		if got := n.Model("chat-a", lane); got != want {
			t.Errorf("%s: %s, want %s", lane, got, want)
		}
	}
}
