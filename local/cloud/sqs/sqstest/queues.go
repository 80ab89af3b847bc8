package sqstest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func createChecks() []check {
	return []check{
		{name: "defaults", run: defaults},
		{name: "attributes given are kept", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "7", "MaximumMessageSize", "2048", "DelaySeconds", "3", "MessageRetentionPeriod", "60",
				"ReceiveMessageWaitTimeSeconds", "20")
			out, err := s.client.GetQueueAttributes(s.Context(), &sqs.GetQueueAttributesInput{
				QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"VisibilityTimeout", "MessageRetentionPeriod", "MaximumMessageSize"},
			})
			if err != nil || len(out.Attributes) != 3 || out.Attributes["VisibilityTimeout"] != "7" ||
				out.Attributes["MessageRetentionPeriod"] != "60" || out.Attributes["MaximumMessageSize"] != "2048" {
				s.Fatalf("got %v, %v", out, err)
			}
			if wait, delay := s.attribute(url, "ReceiveMessageWaitTimeSeconds"), s.attribute(url, "DelaySeconds"); wait != "20" || delay != "3" {
				s.Fatalf("wait %s, delay %s, want 20, 3", wait, delay)
			}
		}},
		{name: "same attributes, or none, give the same queue", run: func(s *suite) {
			url := s.queue("DelaySeconds", "1")
			if again := s.named(nameOf(url), "DelaySeconds", "1"); again != url {
				s.Fatalf("second create gave %s, want %s", again, url)
			}
			if again := s.named(nameOf(url)); again != url {
				s.Fatalf("create without attributes gave %s, want %s", again, url)
			}
		}},
		{name: "another value conflicts", run: func(s *suite) {
			url := s.queue("DelaySeconds", "1")
			_, err := s.client.CreateQueue(s.Context(), &sqs.CreateQueueInput{
				QueueName: aws.String(nameOf(url)), Attributes: map[string]string{"DelaySeconds": "2"},
			})
			typed[*types.QueueNameExists](s, err)
			s.code(err, "QueueAlreadyExists")
		}},
		{name: "bad names are refused", run: func(s *suite) {
			for _, bad := range []string{"no spaces", strings.Repeat("x", 81), "a.b"} {
				_, err := s.client.CreateQueue(s.Context(), &sqs.CreateQueueInput{QueueName: &bad})
				s.code(err, "InvalidParameterValue")
			}
		}},
		{name: "unknown attributes and values out of range are refused", run: func(s *suite) {
			for _, bad := range []struct{ attribute, value, code string }{
				{"NoSuchThing", "1", "InvalidAttributeName"},
				{"VisibilityTimeout", "43201", "InvalidAttributeValue"},
				{"VisibilityTimeout", "x", "InvalidAttributeValue"},
				{"DelaySeconds", "901", "InvalidAttributeValue"},
				{"MaximumMessageSize", "1048577", "InvalidAttributeValue"},
				{"MaximumMessageSize", "1023", "InvalidAttributeValue"},
				{"MessageRetentionPeriod", "59", "InvalidAttributeValue"},
				{"MessageRetentionPeriod", "1209601", "InvalidAttributeValue"},
				{"ReceiveMessageWaitTimeSeconds", "21", "InvalidAttributeValue"},
			} {
				_, err := s.client.CreateQueue(s.Context(), &sqs.CreateQueueInput{
					QueueName: aws.String(newName()), Attributes: map[string]string{bad.attribute: bad.value},
				})
				s.code(err, bad.code)
			}
		}},
		{name: "URL by name", run: func(s *suite) {
			url := s.queue()
			out, err := s.client.GetQueueUrl(s.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String(nameOf(url))})
			if err != nil || *out.QueueUrl != url {
				s.Fatalf("got %v, %v, want %s", out, err, url)
			}
		}},
		{name: "a deleted queue's name is taken for a minute", run: func(s *suite) {
			url := s.queue()
			if _, err := s.client.DeleteQueue(s.Context(), &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
				s.Fatal(err)
			}
			_, err := s.client.CreateQueue(s.Context(), &sqs.CreateQueueInput{QueueName: aws.String(nameOf(url))})
			typed[*types.QueueDeletedRecently](s, err)
		}},
		{name: "and free after it, for a queue without the old one's messages", slow: true, run: func(s *suite) {
			url := s.queue()
			s.send(url, "old")
			if _, err := s.client.DeleteQueue(s.Context(), &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
				s.Fatal(err)
			}
			pause(60*time.Second + s.Slack)
			if again := s.named(nameOf(url)); again != url {
				s.Fatalf("the new queue is %s, want %s", again, url)
			}
			s.nothing(url)
		}},
	}
}

func defaults(s *suite) {
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
}

func attributeChecks() []check {
	return []check{
		{name: "changed, and the others kept", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "7", "MaximumMessageSize", "2048")
			if err := s.set(url, "VisibilityTimeout", "0", "MessageRetentionPeriod", "60"); err != nil {
				s.Fatal(err)
			}
			s.eventually("VisibilityTimeout, MessageRetentionPeriod, MaximumMessageSize", func() (any, bool) {
				got := [3]string{s.attribute(url, "VisibilityTimeout"), s.attribute(url, "MessageRetentionPeriod"), s.attribute(url, "MaximumMessageSize")}
				return got, got == [3]string{"0", "60", "2048"}
			})
		}},
		{name: "none are told unless asked for", run: func(s *suite) {
			url := s.queue()
			none, err := s.client.GetQueueAttributes(s.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url})
			if err != nil || len(none.Attributes) != 0 {
				s.Fatalf("asked for none, got %v, %v", none, err)
			}
		}},
		{name: "an empty RedrivePolicy removes it", run: func(s *suite) {
			dead := s.queue()
			url := s.queue("RedrivePolicy", s.redrive(dead, "5"))
			if got := s.attribute(url, "RedrivePolicy"); !strings.Contains(got, s.arn(dead)) {
				s.Fatalf("RedrivePolicy = %s", got)
			}
			if err := s.set(url, "RedrivePolicy", ""); err != nil {
				s.Fatal(err)
			}
			s.eventually("RedrivePolicy", func() (any, bool) {
				got := s.attribute(url, "RedrivePolicy")
				return got, got == ""
			})
		}},
		{name: "an unknown name is a typed error, to set and to get", run: func(s *suite) {
			url := s.queue()
			typed[*types.InvalidAttributeName](s, s.set(url, "NoSuchThing", "1"))
			_, err := s.client.GetQueueAttributes(s.Context(), &sqs.GetQueueAttributesInput{
				QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"NoSuchThing"},
			})
			typed[*types.InvalidAttributeName](s, err)
		}},
		{name: "a bad value is a typed error", run: func(s *suite) {
			typed[*types.InvalidAttributeValue](s, s.set(s.queue(), "DelaySeconds", "-1"))
		}},
		{name: "a new visibility timeout is for later receives", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "600")
			s.send(url, "x")
			s.one(url)
			if err := s.set(url, "VisibilityTimeout", "0"); err != nil {
				s.Fatal(err)
			}
			s.nothing(url)
		}},
	}
}

func countChecks() []check {
	return []check{
		{name: "ready, in flight, delayed", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			for range 3 {
				s.send(url, "x")
			}
			s.send(url, "x", delayed(900))
			s.counts(url, "3", "0", "1")
			m := s.one(url)
			s.counts(url, "2", "1", "1")
			s.delete(url, m.ReceiptHandle)
			s.counts(url, "2", "0", "1")
		}},
		{name: "ready again after the timeout", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			s.giveBack(url, s.one(url))
			s.counts(url, "1", "0", "0")
		}},
	}
}

func purgeChecks() []check {
	purge := func(s *suite, url string) error {
		_, err := s.client.PurgeQueue(s.Context(), &sqs.PurgeQueueInput{QueueUrl: &url})
		return err
	}
	return []check{
		{name: "empties: ready, in flight and delayed", run: func(s *suite) {
			url := s.queue()
			s.send(url, "a")
			s.send(url, "b")
			s.one(url) // one in flight
			s.send(url, "c", delayed(900))
			if err := purge(s, url); err != nil {
				s.Fatal(err)
			}
			s.counts(url, "0", "0", "0")
		}},
		{name: "a second within a minute is refused", run: func(s *suite) {
			url := s.queue()
			if err := purge(s, url); err != nil {
				s.Fatal(err)
			}
			err := purge(s, url)
			typed[*types.PurgeQueueInProgress](s, err)
			s.code(err, "AWS.SimpleQueueService.PurgeQueueInProgress")
		}},
		{name: "a second after a minute is not", slow: true, run: func(s *suite) {
			url := s.queue()
			if err := purge(s, url); err != nil {
				s.Fatal(err)
			}
			pause(60*time.Second + s.Slack)
			if err := purge(s, url); err != nil {
				s.Fatal(err)
			}
		}},
	}
}

func listChecks() []check {
	list := func(s *suite, in *sqs.ListQueuesInput) *sqs.ListQueuesOutput {
		s.Helper()
		out, err := s.client.ListQueues(s.Context(), in)
		if err != nil {
			s.Fatal(err)
		}
		return out
	}
	three := func(s *suite) (prefix string, want []string) {
		prefix = newName()
		for _, suffix := range []string{"-a", "-b", "-c"} {
			want = append(want, s.named(prefix+suffix))
		}
		s.eventually("queues", func() (any, bool) {
			got := list(s, &sqs.ListQueuesInput{QueueNamePrefix: &prefix}).QueueUrls
			slices.Sort(got)
			return got, slices.Equal(got, want)
		})
		return prefix, want
	}
	return []check{
		{name: "by prefix, without pages no token", run: func(s *suite) {
			prefix, _ := three(s)
			if out := list(s, &sqs.ListQueuesInput{QueueNamePrefix: &prefix}); out.NextToken != nil || len(out.QueueUrls) != 3 {
				s.Fatalf("got %+v, want all three and no token", out)
			}
		}},
		{name: "in pages", run: func(s *suite) {
			prefix, want := three(s)
			first := list(s, &sqs.ListQueuesInput{QueueNamePrefix: &prefix, MaxResults: aws.Int32(2)})
			if len(first.QueueUrls) != 2 || first.NextToken == nil {
				s.Fatalf("first page %+v, want two and a token", first)
			}
			second := list(s, &sqs.ListQueuesInput{QueueNamePrefix: &prefix, MaxResults: aws.Int32(2), NextToken: first.NextToken})
			got := slices.Concat(first.QueueUrls, second.QueueUrls)
			slices.Sort(got)
			if !slices.Equal(got, want) || second.NextToken != nil {
				s.Fatalf("two pages gave %v and the token %v, want %v and none", got, second.NextToken, want)
			}
		}},
	}
}

func sourcesChecks() []check {
	return []check{{name: "in pages, only those of this queue", run: func(s *suite) {
		dead := s.queue()
		policy := s.redrive(dead, "3")
		want := []string{s.queue("RedrivePolicy", policy), s.queue("RedrivePolicy", policy)}
		slices.Sort(want)
		s.queue()
		s.eventually("sources", func() (any, bool) {
			var got []string
			pages := sqs.NewListDeadLetterSourceQueuesPaginator(s.client, &sqs.ListDeadLetterSourceQueuesInput{
				QueueUrl: &dead, MaxResults: aws.Int32(1),
			})
			for range 10 { // bounded: a server may give tokens without end
				if !pages.HasMorePages() {
					break
				}
				page, err := pages.NextPage(s.Context())
				if err != nil {
					s.Fatal(err)
				}
				got = append(got, page.QueueUrls...)
			}
			slices.Sort(got)
			return got, slices.Equal(got, want)
		})
	}}}
}

func missingQueueChecks() []check {
	var checks []check
	for name, call := range map[string]func(s *suite, url *string) error{
		"GetQueueUrl": func(s *suite, _ *string) error {
			_, err := s.client.GetQueueUrl(s.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("llmq-none-such")})
			return err
		},
		"SendMessage": func(s *suite, url *string) error {
			_, err := s.client.SendMessage(s.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("x")})
			return err
		},
		"ReceiveMessage": func(s *suite, url *string) error {
			_, err := s.client.ReceiveMessage(s.Context(), &sqs.ReceiveMessageInput{QueueUrl: url})
			return err
		},
		"DeleteMessageBatch": func(s *suite, url *string) error {
			_, err := s.client.DeleteMessageBatch(s.Context(), &sqs.DeleteMessageBatchInput{
				QueueUrl: url, Entries: []types.DeleteMessageBatchRequestEntry{{Id: aws.String("a"), ReceiptHandle: aws.String("b")}},
			})
			return err
		},
	} {
		checks = append(checks, check{name: name, run: func(s *suite) {
			url := s.queue() + "-none-such"
			err := call(s, &url)
			typed[*types.QueueDoesNotExist](s, err)
			s.code(err, "AWS.SimpleQueueService.NonExistentQueue")
		}})
	}
	return checks
}

func tagChecks() []check {
	return []check{{name: "set, removed, listed", run: func(s *suite) {
		url := s.queue()
		if _, err := s.client.TagQueue(s.Context(), &sqs.TagQueueInput{QueueUrl: &url, Tags: map[string]string{"a": "1", "b": "2"}}); err != nil {
			s.Fatal(err)
		}
		if _, err := s.client.UntagQueue(s.Context(), &sqs.UntagQueueInput{QueueUrl: &url, TagKeys: []string{"a"}}); err != nil {
			s.Fatal(err)
		}
		s.eventually("tags", func() (any, bool) {
			out, err := s.client.ListQueueTags(s.Context(), &sqs.ListQueueTagsInput{QueueUrl: &url})
			return errors.Join(err), err == nil && len(out.Tags) == 1 && out.Tags["b"] == "2"
		})
	}}}
}
