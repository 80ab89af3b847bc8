package eventsource

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// answering is a client of a Lambda that answers as f says.
func answering(t *testing.T, f http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return New(lambda.New(lambda.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(srv.URL), Credentials: credentials.NewStaticCredentialsProvider("gov", "s", ""),
	}))
}

const mapping = `{"UUID":"u-1","BatchSize":10,"EventSourceArn":"arn:aws:sqs:us-east-1:111122223333:llm-chat-a-bulk","State":"Enabled",` +
	`"LastModified":1700000000.25,"ScalingConfig":{"MaximumConcurrency":7}}`

// C11: one request tells all of a function's sources.
func TestClient_ListReadsEachSource(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Method != http.MethodGet || r.URL.Query().Get("FunctionName") != "llmq-prod-worker-bulk" {
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
		_, _ = io.WriteString(w, `{"EventSourceMappings":[`+mapping+`,{"UUID":"u-2","State":"Disabled"}]}`) // a test server
	})
	got, err := c.List(t.Context(), "llmq-prod-worker-bulk")
	if err != nil {
		t.Fatal(err)
	}
	want := []queue.Source{
		{ID: "u-1", Queue: "llm-chat-a-bulk", State: queue.SourceEnabled, MaxConcurrency: 7, BatchSize: 10, Changed: time.UnixMilli(1_700_000_000_250).UTC()},
		{ID: "u-2", State: queue.SourceDisabled},
	}
	if diff := cmp.Diff(want, got); diff != "" || requests.Load() != 1 {
		t.Errorf("%d requests; sources (-want +got):\n%s", requests.Load(), diff)
	}
}

// A change names only what it changes, so that it can't undo another's.
func TestClient_ChangesOneThing(t *testing.T) {
	t.Parallel()
	var body atomic.Value
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/event-source-mappings/u-1") {
			t.Errorf("asked for %s %s, %v", r.Method, r.URL, err)
		}
		body.Store(string(text))
		_, _ = io.WriteString(w, mapping) // a test server
	})
	if got, err := c.SetMaxConcurrency(t.Context(), "u-1", 7); err != nil || got.MaxConcurrency != 7 {
		t.Errorf("bound = %+v, %v", got, err)
	}
	if got := body.Load(); got != `{"ScalingConfig":{"MaximumConcurrency":7}}` {
		t.Errorf("sent %s", got)
	}
	if _, err := c.SetEnabled(t.Context(), "u-1", false); err != nil {
		t.Error(err)
	}
	if got := body.Load(); got != `{"Enabled":false}` {
		t.Errorf("sent %s", got)
	}
}

// C11: what passes by itself is told apart, and asked for once.
func TestClient_ChangesFailOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code   string
		status int
		want   error
	}{
		{"ResourceInUseException", 400, queue.ErrBusy},
		{"ResourceConflictException", 409, queue.ErrBusy},
		{"TooManyRequestsException", 429, queue.ErrThrottled},
		{"ResourceNotFoundException", 404, queue.ErrNoSource},
		{"ServiceException", 500, nil},
		{"AccessDeniedException", 403, nil},
	} {
		t.Run(tt.code+" "+strconv.Itoa(tt.status), func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("X-Amzn-Errortype", tt.code)
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, `{"Message":"no"}`) // a test server
			})
			_, err := c.SetMaxConcurrency(t.Context(), "u-1", 7)
			if err == nil || requests.Load() != 1 {
				t.Fatalf("error %v after %d requests", err, requests.Load())
			}
			for _, kind := range []error{queue.ErrBusy, queue.ErrThrottled, queue.ErrNoSource} {
				if errors.Is(err, kind) != errors.Is(tt.want, kind) {
					t.Errorf("error = %v, want %v", err, tt.want)
				}
			}
		})
	}
}
