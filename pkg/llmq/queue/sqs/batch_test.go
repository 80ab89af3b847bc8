package sqs

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"

	local "github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// sends notes how many messages and bytes each request carries.
type sends struct {
	mu       sync.Mutex // guards all below
	messages []int
	most     int // bytes of a request
}

func (s *sends) see(t *testing.T, r *http.Request) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.SendMessage") {
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(strings.NewReader(string(raw)))
	type message struct {
		MessageBody       string
		MessageAttributes map[string]struct{ DataType, StringValue string }
	}
	var in struct {
		message
		Entries []message
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		t.Error(err)
	}
	if in.Entries == nil {
		in.Entries = []message{in.message}
	}
	size := 0
	for _, e := range in.Entries {
		size += len(e.MessageBody)
		for name, a := range e.MessageAttributes {
			size += len(name) + len(a.DataType) + len(a.StringValue)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages, s.most = append(s.messages, len(in.Entries)), max(s.most, size)
}

// H05: ten messages that fit one by one but not together, by their bodies or by their attributes alone, are split, and no
// caller is told of it.
func TestBatch_MessagesThatDoNotFitTogetherAreSplit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		limit int
		body  string
		want  []int // messages by request
	}{
		{"by a server's own limit", 262_144, strings.Repeat("x", 110_000), []int{2, 2, 2, 2, 2}},
		{"by their bodies", MaxMessageBytes, strings.Repeat("x", 110_000), []int{1, 9}},
		{"by their bytes, not their characters", MaxMessageBytes, strings.Repeat("日", 60_000), []int{5, 5}},
		{"by their attributes", MaxMessageBytes, strings.Repeat("x", MaxMessageBytes/10-10), []int{1, 9}},
		{"which fit", MaxMessageBytes, strings.Repeat("x", MaxMessageBytes/10-len("llmq_op"+"String"+"chat")), []int{10}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var s sends
				server := local.New(local.Options{})
				defer server.Close()
				inner := server.Transport()
				c := New(sdk("http://sqs.test", roundTrip(func(r *http.Request) (*http.Response, error) {
					s.see(t, r)
					return inner.RoundTrip(r)
				})), "http://sqs.test/000000000000", 2*time.Second, tt.limit)
				if _, err := c.api.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(string(name))}); err != nil {
					t.Fatal(err)
				}
				b := queue.Batched(c, 20*time.Millisecond, tt.limit)
				defer b.Close()
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						if err := b.Send(t.Context(), name, queue.Outgoing{Body: []byte(tt.body), Attributes: map[string]string{"llmq_op": "chat"}}); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				slices.Sort(s.messages)
				if diff := cmp.Diff(tt.want, s.messages); diff != "" || s.most > tt.limit {
					t.Errorf("%d bytes at most, messages by request (-want +got):\n%s", s.most, diff)
				}
			})
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func sdk(url string, t http.RoundTripper) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
		HTTPClient: &http.Client{Transport: t}, RetryMaxAttempts: 1,
	})
}

// What an answer says of each entry: done, failed for now, failed for good, and nothing. An entry that nobody
// asked for changes nothing.
func TestBatch_EachEntryIsToldApart(t *testing.T) {
	t.Parallel()
	const answer = `{"Successful":[{"Id":"0"},{"Id":"77"},{"Id":"x"}],"Failed":[` +
		`{"Id":"1","Code":"InternalError","SenderFault":false,"Message":"try again"},{"Id":"2","Code":"ReceiptHandleIsInvalid","SenderFault":true},` +
		`{"Id":"3","Code":"AWS.SimpleQueueService.MessageNotInflight","SenderFault":true},{"Id":"99","Code":"InternalError","SenderFault":false}]}`
	c := New(sdk("http://sqs.test", roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: io.NopCloser(strings.NewReader(answer)),
		}, nil
	})), "http://sqs.test/000000000000", time.Second, MaxMessageBytes)
	const entries = 5
	want := []llmq.Code{"", llmq.CodeQueueUnavailable, llmq.CodeInternal, llmq.CodeInternal, llmq.CodeQueueUnavailable}
	for what, got := range map[string][]error{
		"delete": c.Delete(t.Context(), name, make([]string, entries)),
		"extend": c.Extend(t.Context(), name, make([]queue.Lease, entries)),
	} {
		for i, err := range got {
			if (err == nil) != (want[i] == "") || err != nil && !errors.Is(err, want[i]) {
				t.Errorf("%s, entry %d: %v, want %q", what, i, err, want[i])
			}
		}
	}
}

// Entries are named by their places: of more than ten, and of the same receipt twice, each has its own end.
func TestBatch_EntriesHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	c, api, url := setup(t)
	if err := c.Send(t.Context(), name, queue.Outgoing{Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	receipt := *receive(t, api, url, 1).Messages[0].ReceiptHandle
	receipts := slices.Repeat([]string{receipt}, 12)
	receipts[11] = "not-a-receipt"
	for i, err := range c.Delete(t.Context(), name, receipts) {
		if (err != nil) != (i == 11) || err != nil && !errors.Is(err, llmq.CodeInternal) {
			t.Errorf("receipt %d: %v", i, err)
		}
	}
}
