// Package sqstest is a conformance suite for SQS: what a worker relies on, asked of a server through the AWS SDK. It is written from
// the API reference, the SDK's typed errors and checksums recorded on AWS.
//
// It has only been run on the embedded server. Before it can run on AWS, some checks must learn to wait: there, counts and changes of
// attributes settle within a minute, a short poll may miss messages, and a list of queues lags behind.
package sqstest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// Exercise runs the suite. It makes queues with random names and deletes them; it takes some seconds, since times on AWS are whole
// seconds. The client should retry little, so that a lost response shows.
func Exercise(t *testing.T, client *sqs.Client) {
	t.Helper()
	for _, group := range [][]check{
		queueChecks(), attributeChecks(), sendChecks(), limitChecks(), receiveChecks(), pollChecks(), visibilityChecks(), redriveChecks(), moveChecks(), loadChecks(),
	} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(&suite{T: t, client: client})
			})
		}
	}
}

// check is one behaviour that a server has or lacks.
type check struct {
	name string
	run  func(*suite)
}

// suite is a test with a client and the few requests that every check makes.
type suite struct {
	*testing.T
	client *sqs.Client
}

// soon is how long a wake-up that is due at once may take, network and a busy machine included. (That the embedded server takes no
// time at all is tested inside, where time stands still.)
const soon = 250 * time.Millisecond

// queue makes a queue for this check and returns its URL. attributes alternate names and values.
func (s *suite) queue(attributes ...string) string {
	s.Helper()
	return s.named("llmq-"+strings.ToLower(rand.Text()[:16]), attributes...)
}

func (s *suite) named(name string, attributes ...string) string {
	s.Helper()
	out, err := s.client.CreateQueue(s.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: pairs(attributes)})
	if err != nil {
		s.Fatalf("create queue %s %v: %v", name, attributes, err)
	}
	url := *out.QueueUrl
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), 5*time.Second)
		defer cancel()
		_, err := s.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &url})
		if _, gone := errors.AsType[*types.QueueDoesNotExist](err); err != nil && !gone {
			s.Errorf("delete queue %s: %v", name, err)
		}
	})
	return url
}

func pairs(list []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

func nameOf(url string) string { return url[strings.LastIndex(url, "/")+1:] }

// attribute returns one attribute of a queue.
func (s *suite) attribute(queue string, name types.QueueAttributeName) string {
	s.Helper()
	out, err := s.client.GetQueueAttributes(s.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{name},
	})
	if err != nil {
		s.Fatalf("get attribute %s: %v", name, err)
	}
	return out.Attributes[string(name)]
}

func (s *suite) arn(queue string) string { return s.attribute(queue, types.QueueAttributeNameQueueArn) }

// redrive is the policy that sends messages to a dead-letter queue after max receives.
func (s *suite) redrive(deadLetters, limit string) string {
	s.Helper()
	return `{"deadLetterTargetArn":"` + s.arn(deadLetters) + `","maxReceiveCount":"` + limit + `"}`
}

func (s *suite) send(queue, body string, change ...func(*sqs.SendMessageInput)) *sqs.SendMessageOutput {
	s.Helper()
	in := &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &body}
	for _, c := range change {
		c(in)
	}
	out, err := s.client.SendMessage(s.Context(), in)
	if err != nil {
		s.Fatalf("send: %v", err)
	}
	return out
}

// receive asks once, for up to 10 messages with all their attributes, and waits for them for up to 1 s.
func (s *suite) receive(queue string, change ...func(*sqs.ReceiveMessageInput)) []types.Message {
	s.Helper()
	in := &sqs.ReceiveMessageInput{
		QueueUrl: &queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 1,
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}
	for _, c := range change {
		c(in)
	}
	out, err := s.client.ReceiveMessage(s.Context(), in)
	if err != nil {
		s.Fatalf("receive: %v", err)
	}
	return out.Messages
}

// one receives exactly one message.
func (s *suite) one(queue string, change ...func(*sqs.ReceiveMessageInput)) types.Message {
	s.Helper()
	got := s.receive(queue, change...)
	if len(got) != 1 {
		s.Fatalf("received %d messages, want 1", len(got))
	}
	return got[0]
}

// nothing asks once, without waiting, and fails if a message comes.
func (s *suite) nothing(queue string) {
	s.Helper()
	if got := s.receive(queue, waiting(0)); len(got) != 0 {
		s.Fatalf("received %d messages, want none", len(got))
	}
}

func waiting(seconds int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = seconds }
}

func hiding(seconds int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.VisibilityTimeout = seconds }
}

func atMost(n int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = n }
}

func (s *suite) change(queue string, handle *string, seconds int32) error {
	_, err := s.client.ChangeMessageVisibility(s.Context(), &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &queue, ReceiptHandle: handle, VisibilityTimeout: seconds,
	})
	return err
}

func (s *suite) delete(queue string, handle *string) {
	s.Helper()
	if _, err := s.client.DeleteMessage(s.Context(), &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: handle}); err != nil {
		s.Fatalf("delete: %v", err)
	}
}

// counts checks how many messages are ready, in flight and delayed.
func (s *suite) counts(queue, ready, inFlight, delayed string) {
	s.Helper()
	got := [3]string{
		s.attribute(queue, types.QueueAttributeNameApproximateNumberOfMessages),
		s.attribute(queue, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible),
		s.attribute(queue, types.QueueAttributeNameApproximateNumberOfMessagesDelayed),
	}
	if want := [3]string{ready, inFlight, delayed}; got != want {
		s.Fatalf("ready, in flight, delayed = %v, want %v", got, want)
	}
}

func (s *suite) code(err error, want string) {
	s.Helper()
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		s.Fatalf("error %v, want one with code %s", err, want)
	}
	if api.ErrorCode() != want {
		s.Fatalf("code %s (%s), want %s", api.ErrorCode(), api.ErrorMessage(), want)
	}
}

// typed checks that an error is the SDK's own type, which errors.As finds only if the server names its shape.
func typed[E error](s *suite, err error) {
	s.Helper()
	if _, ok := errors.AsType[E](err); !ok {
		var want E
		s.Fatalf("error %v, want %T", err, want)
	}
}

func text(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
}

// took checks how long something took since began.
func (s *suite) took(began time.Time, least, most time.Duration) {
	s.Helper()
	if d := time.Since(began); d < least || d > most {
		s.Fatalf("took %v, want %v to %v", d, least, most)
	}
}
