package admin

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// B12: a queue that is missing is made with its dead-letter queue, as said or as deployed; one that is there stays as it is.
func TestCreate_MakesWhatIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.server.Close()
		r.deps.Creator = r.queue
		api := client(r.server, "admin")
		for _, name := range []queue.Name{source, dlq} {
			if _, err := api.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: aws.String("http://sqs.invalid/000000000000/" + string(name))}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Create(t.Context(), "arn:ops", CreateRequest{}); !errors.Is(err, llmq.CodeRateLimited) || llmq.AsError(err).RetryAfter == 0 {
			t.Errorf("created within a minute of its deletion: %v", err)
		}
		time.Sleep(61 * time.Second) // in the bubble
		got, err := r.Create(t.Context(), "arn:ops", CreateRequest{VisibilitySecs: 60, MaxReceives: 10})
		want := Created{Queues: []CreatedQueue{
			{Queue: "llm-chat-a-rt", DLQ: "llm-chat-a-rt-dlq"},
			{Queue: source, DLQ: dlq, Created: true, VisibilitySecs: 60, MaxReceives: 10, RetentionSecs: 345600},
		}}
		if err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("created = %+v, %v", got, err)
		}
		if has := r.attributes(t, source); has["VisibilityTimeout"] != "60" || has["MessageRetentionPeriod"] != "345600" ||
			!strings.Contains(has["RedrivePolicy"], `"maxReceiveCount":10`) || !strings.Contains(has["RedrivePolicy"], string(dlq)) {
			t.Errorf("attributes = %v", has)
		}
		if has := r.attributes(t, dlq); has["MessageRetentionPeriod"] != "1209600" {
			t.Errorf("attributes of the dead-letter queue = %v", has)
		}
		if got, err = r.Create(t.Context(), "arn:ops", CreateRequest{Queue: source, VisibilitySecs: 90}); err != nil || len(got.Queues) != 1 || got.Queues[0].Created {
			t.Errorf("created again = %+v, %v", got, err)
		}
		if has := r.attributes(t, source); has["VisibilityTimeout"] != "60" {
			t.Errorf("a queue that was there has changed: %v", has)
		}
		if !strings.Contains(r.log.String(), "verb=create") {
			t.Error("the log does not tell of it")
		}
	})
}

// B12: on AWS the answer names the way of infrastructure code; a bad value or a stranger's queue makes nothing.
func TestCreate_Refuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		aws  bool
		ask  CreateRequest
		code llmq.Code
		says string
	}{
		"on AWS":       {true, CreateRequest{Queue: source}, llmq.CodeUnsupported, "make deploy E=ENV"},
		"a stranger's": {false, CreateRequest{Queue: "other"}, llmq.CodeInvalidRequest, "no model of this deployment"},
		"no lane":      {false, CreateRequest{Model: "chat-a"}, llmq.CodeInvalidRequest, "lane is missing"},
		"visibility":   {false, CreateRequest{VisibilitySecs: 43201}, llmq.CodeInvalidRequest, "visibility_secs must be 1 to 43200"},
		"negative":     {false, CreateRequest{VisibilitySecs: -1}, llmq.CodeInvalidRequest, "visibility_secs must be 1 to 43200"},
		"receives":     {false, CreateRequest{MaxReceives: 1001}, llmq.CodeInvalidRequest, "max_receives must be 1 to 1000"},
		"retention":    {false, CreateRequest{RetentionSecs: 59}, llmq.CodeInvalidRequest, "retention_secs must be 60 to 1209600"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				defer r.server.Close()
				if !tt.aws {
					r.deps.Creator = r.queue
				}
				if _, err := r.Create(t.Context(), "arn:ops", tt.ask); !errors.Is(err, tt.code) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("error = %v, want %s with %q", err, tt.code, tt.says)
				}
			})
		})
	}
}

func (r *rig) attributes(t *testing.T, q queue.Name) map[string]string {
	t.Helper()
	out, err := client(r.server, "admin").GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: aws.String("http://sqs.invalid/000000000000/" + string(q)), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Attributes
}
