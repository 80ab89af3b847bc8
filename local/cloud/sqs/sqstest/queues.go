package sqstest

import (
	"crypto/rand"
	"errors"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func queueChecks() []check {
	return []check{
		{"create: same attributes give the same queue", func(s *suite) {
			url := s.queue("DelaySeconds", "1")
			if again := s.named(nameOf(url), "DelaySeconds", "1"); again != url {
				s.Fatalf("second create gave %s, want %s", again, url)
			}
			if again := s.named(nameOf(url)); again != url {
				s.Fatalf("create without attributes gave %s, want %s", again, url)
			}
		}},
		{"create: other attributes conflict", func(s *suite) {
			url := s.queue("DelaySeconds", "1")
			_, err := s.client.CreateQueue(s.Context(), &sqs.CreateQueueInput{
				QueueName: aws.String(nameOf(url)), Attributes: map[string]string{"DelaySeconds": "2"},
			})
			typed[*types.QueueNameExists](s, err)
			s.code(err, "QueueAlreadyExists")
		}},
		{"create: bad names, attributes and values are refused", func(s *suite) {
			for _, bad := range []struct{ queue, attribute, value, code string }{
				{"no spaces", "", "", "InvalidParameterValue"},
				{strings.Repeat("x", 81), "", "", "InvalidParameterValue"},
				{"llmq-bad", "NoSuchThing", "1", "InvalidAttributeName"},
				{"llmq-bad", "VisibilityTimeout", "43201", "InvalidAttributeValue"},
				{"llmq-bad", "VisibilityTimeout", "x", "InvalidAttributeValue"},
				{"llmq-bad", "DelaySeconds", "901", "InvalidAttributeValue"},
				{"llmq-bad", "MaximumMessageSize", "1048577", "InvalidAttributeValue"},
				{"llmq-bad", "MessageRetentionPeriod", "59", "InvalidAttributeValue"},
				{"llmq-bad", "ReceiveMessageWaitTimeSeconds", "21", "InvalidAttributeValue"},
			} {
				in := &sqs.CreateQueueInput{QueueName: aws.String(bad.queue)}
				if bad.attribute != "" {
					in.Attributes = map[string]string{bad.attribute: bad.value}
				}
				_, err := s.client.CreateQueue(s.Context(), in)
				s.code(err, bad.code)
			}
		}},
		{"a deleted queue's name is taken for a minute", func(s *suite) {
			url := s.queue()
			if _, err := s.client.DeleteQueue(s.Context(), &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
				s.Fatal(err)
			}
			_, err := s.client.CreateQueue(s.Context(), &sqs.CreateQueueInput{QueueName: aws.String(nameOf(url))})
			typed[*types.QueueDeletedRecently](s, err)
		}},
		{"URL by name", func(s *suite) {
			url := s.queue()
			out, err := s.client.GetQueueUrl(s.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String(nameOf(url))})
			if err != nil || *out.QueueUrl != url {
				s.Fatalf("got %v, %v, want %s", out, err, url)
			}
		}},
		{"a missing queue is a typed error", func(s *suite) {
			_, err := s.client.GetQueueUrl(s.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("llmq-none-such")})
			typed[*types.QueueDoesNotExist](s, err)
			s.code(err, "AWS.SimpleQueueService.NonExistentQueue")
			url := s.queue() + "-none-such"
			_, err = s.client.SendMessage(s.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("x")})
			typed[*types.QueueDoesNotExist](s, err)
			_, err = s.client.ReceiveMessage(s.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url})
			typed[*types.QueueDoesNotExist](s, err)
			_, err = s.client.DeleteMessageBatch(s.Context(), &sqs.DeleteMessageBatchInput{
				QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{{Id: aws.String("a"), ReceiptHandle: aws.String("b")}},
			})
			typed[*types.QueueDoesNotExist](s, err)
		}},
		{"list by prefix, in pages", listInPages},
		{"dead-letter sources", func(s *suite) {
			dead := s.queue()
			policy := s.redrive(dead, "3")
			want := []string{s.queue("RedrivePolicy", policy), s.queue("RedrivePolicy", policy)}
			s.queue()
			var got []string
			pages := sqs.NewListDeadLetterSourceQueuesPaginator(s.client, &sqs.ListDeadLetterSourceQueuesInput{
				QueueUrl: &dead, MaxResults: aws.Int32(1),
			})
			for pages.HasMorePages() {
				page, err := pages.NextPage(s.Context())
				if err != nil {
					s.Fatal(err)
				}
				got = append(got, page.QueueUrls...)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				s.Fatalf("got %v, want %v", got, want)
			}
		}},
		{"purge empties, and not twice within a minute", func(s *suite) {
			url := s.queue()
			s.send(url, "a")
			s.send(url, "b")
			s.one(url, atMost(1)) // one in flight
			s.send(url, "c", func(in *sqs.SendMessageInput) { in.DelaySeconds = 900 })
			if _, err := s.client.PurgeQueue(s.Context(), &sqs.PurgeQueueInput{QueueUrl: &url}); err != nil {
				s.Fatal(err)
			}
			s.counts(url, "0", "0", "0")
			_, err := s.client.PurgeQueue(s.Context(), &sqs.PurgeQueueInput{QueueUrl: &url})
			typed[*types.PurgeQueueInProgress](s, err)
			s.code(err, "AWS.SimpleQueueService.PurgeQueueInProgress")
		}},
		{"tags", func(s *suite) {
			url := s.queue()
			if _, err := s.client.TagQueue(s.Context(), &sqs.TagQueueInput{QueueUrl: &url, Tags: map[string]string{"a": "1", "b": "2"}}); err != nil {
				s.Fatal(err)
			}
			if _, err := s.client.UntagQueue(s.Context(), &sqs.UntagQueueInput{QueueUrl: &url, TagKeys: []string{"a"}}); err != nil {
				s.Fatal(err)
			}
			out, err := s.client.ListQueueTags(s.Context(), &sqs.ListQueueTagsInput{QueueUrl: &url})
			if err != nil || len(out.Tags) != 1 || out.Tags["b"] != "2" {
				s.Fatalf("got %v, %v, want b=2", out, err)
			}
		}},
	}
}

func listInPages(s *suite) {
	prefix := "llmq-" + strings.ToLower(rand.Text()[:16])
	var want []string
	for _, suffix := range []string{"-a", "-b", "-c"} {
		want = append(want, s.named(prefix+suffix))
	}
	var (
		got   []string
		token *string
	)
	for page := range 3 {
		out, err := s.client.ListQueues(s.Context(), &sqs.ListQueuesInput{
			QueueNamePrefix: &prefix, MaxResults: aws.Int32(2), NextToken: token,
		})
		if err != nil {
			s.Fatal(err)
		}
		got = append(got, out.QueueUrls...)
		if token = out.NextToken; token == nil {
			break
		}
		if page == 2 {
			s.Fatal("three pages of two for three queues")
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.Fatalf("got %v, want %v", got, want)
	}
	out, err := s.client.ListQueues(s.Context(), &sqs.ListQueuesInput{QueueNamePrefix: &prefix})
	if err != nil || out.NextToken != nil || len(out.QueueUrls) != 3 {
		s.Fatalf("without pages: got %+v, %v, want all three and no token", out, err)
	}
}

func attributeChecks() []check {
	return []check{
		{"attributes: defaults and counts", func(s *suite) {
			url := s.queue()
			out, err := s.client.GetQueueAttributes(s.Context(), &sqs.GetQueueAttributesInput{
				QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
			})
			if err != nil {
				s.Fatal(err)
			}
			for name, want := range map[string]string{
				"VisibilityTimeout": "30", "DelaySeconds": "0", "MaximumMessageSize": "1048576", "MessageRetentionPeriod": "345600",
				"ReceiveMessageWaitTimeSeconds": "0", "SqsManagedSseEnabled": "true", "ApproximateNumberOfMessages": "0",
				"ApproximateNumberOfMessagesNotVisible": "0", "ApproximateNumberOfMessagesDelayed": "0",
			} {
				if out.Attributes[name] != want {
					s.Errorf("%s = %q, want %q", name, out.Attributes[name], want)
				}
			}
			if arn := out.Attributes["QueueArn"]; !strings.HasPrefix(arn, "arn:aws:sqs:") || !strings.HasSuffix(arn, ":"+nameOf(url)) {
				s.Errorf("QueueArn = %q", arn)
			}
			if out.Attributes["CreatedTimestamp"] == "" || out.Attributes["LastModifiedTimestamp"] == "" {
				s.Error("no timestamps")
			}
			if _, ok := out.Attributes["RedrivePolicy"]; ok {
				s.Error("RedrivePolicy is told although none is set")
			}
		}},
		{"attributes: given at creation, changed later, none unless asked", func(s *suite) {
			url := s.queue("VisibilityTimeout", "7", "MaximumMessageSize", "2048")
			if got := s.attribute(url, "VisibilityTimeout"); got != "7" {
				s.Fatalf("VisibilityTimeout = %s, want 7", got)
			}
			_, err := s.client.SetQueueAttributes(s.Context(), &sqs.SetQueueAttributesInput{
				QueueUrl: &url, Attributes: map[string]string{"VisibilityTimeout": "0", "MessageRetentionPeriod": "60"},
			})
			if err != nil {
				s.Fatal(err)
			}
			out, err := s.client.GetQueueAttributes(s.Context(), &sqs.GetQueueAttributesInput{
				QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"VisibilityTimeout", "MessageRetentionPeriod", "MaximumMessageSize"},
			})
			if err != nil || len(out.Attributes) != 3 || out.Attributes["VisibilityTimeout"] != "0" ||
				out.Attributes["MessageRetentionPeriod"] != "60" || out.Attributes["MaximumMessageSize"] != "2048" {
				s.Fatalf("got %v, %v", out, err)
			}
			none, err := s.client.GetQueueAttributes(s.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url})
			if err != nil || len(none.Attributes) != 0 {
				s.Fatalf("asked for none, got %v, %v", none, err)
			}
		}},
		{"attributes: an unknown name is a typed error", func(s *suite) {
			url := s.queue()
			_, err := s.client.SetQueueAttributes(s.Context(), &sqs.SetQueueAttributesInput{
				QueueUrl: &url, Attributes: map[string]string{"NoSuchThing": "1"},
			})
			typed[*types.InvalidAttributeName](s, err)
			_, err = s.client.GetQueueAttributes(s.Context(), &sqs.GetQueueAttributesInput{
				QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"NoSuchThing"},
			})
			typed[*types.InvalidAttributeName](s, err)
			_, err = s.client.SetQueueAttributes(s.Context(), &sqs.SetQueueAttributesInput{
				QueueUrl: &url, Attributes: map[string]string{"DelaySeconds": "-1"},
			})
			typed[*types.InvalidAttributeValue](s, err)
		}},
		{"attributes: an empty RedrivePolicy removes it", func(s *suite) {
			dead := s.queue()
			url := s.queue("RedrivePolicy", s.redrive(dead, "5"))
			if got := s.attribute(url, "RedrivePolicy"); !strings.Contains(got, s.arn(dead)) {
				s.Fatalf("RedrivePolicy = %s", got)
			}
			_, err := s.client.SetQueueAttributes(s.Context(), &sqs.SetQueueAttributesInput{
				QueueUrl: &url, Attributes: map[string]string{"RedrivePolicy": ""},
			})
			if err != nil {
				s.Fatal(err)
			}
			if got := s.attribute(url, "RedrivePolicy"); got != "" {
				s.Fatalf("RedrivePolicy = %s, want none", got)
			}
		}},
	}
}

// resourceNotFound tells whether an error is the typed one of the move tasks.
func resourceNotFound(err error) bool {
	_, ok := errors.AsType[*types.ResourceNotFoundException](err)
	return ok
}
