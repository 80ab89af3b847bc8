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

// suite is one check's test, with a client and the few requests that every check makes.
type suite struct {
	*testing.T
	Profile
	client *sqs.Client
}

// queue makes a queue for this check and returns its URL. attributes alternate names and values.
func (s *suite) queue(attributes ...string) string {
	s.Helper()
	return s.named(newName(), attributes...)
}

func newName() string { return "llmq-conformance-" + strings.ToLower(rand.Text()[:16]) }

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
	if s.Lag > 0 {
		pause(time.Second) // AWS: "you must wait at least one second after the queue is created"
	}
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

// pause lets time pass: no wait for something, but the thing under test.
func pause(d time.Duration) { <-time.After(d) }

// unseen gives the other side of a connection time to do what cannot be seen from here: to begin a poll, or to notice its end.
// Where it is too short a check still holds; it only proves less.
func unseen() { pause(200 * time.Millisecond) }

// eventually asks until it gets what is wanted, for as long as the server may lag; without a lag it asks once.
func (s *suite) eventually(what string, ask func() (got any, ok bool)) {
	s.Helper()
	s.within(s.Lag, what, ask)
}

func (s *suite) within(patience time.Duration, what string, ask func() (got any, ok bool)) {
	s.Helper()
	deadline := time.Now().Add(patience)
	for {
		got, ok := ask()
		if ok {
			return
		}
		if !time.Now().Before(deadline) {
			s.Fatalf("%s: %v", what, got)
		}
		pause(time.Second)
	}
}

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

func (s *suite) set(queue string, attributes ...string) error {
	_, err := s.client.SetQueueAttributes(s.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &queue, Attributes: pairs(attributes)})
	return err
}

// redrive is the policy that sends messages to a dead-letter queue after max receives.
func (s *suite) redrive(deadLetters, limit string) string {
	s.Helper()
	return `{"deadLetterTargetArn":"` + s.arn(deadLetters) + `","maxReceiveCount":"` + limit + `"}`
}

// sent sends a message and returns the answer, or why there is none.
func (s *suite) sent(queue, body string, change ...func(*sqs.SendMessageInput)) (*sqs.SendMessageOutput, error) {
	in := &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &body}
	for _, c := range change {
		c(in)
	}
	return s.client.SendMessage(s.Context(), in)
}

func (s *suite) send(queue, body string, change ...func(*sqs.SendMessageInput)) *sqs.SendMessageOutput {
	s.Helper()
	out, err := s.sent(queue, body, change...)
	if err != nil {
		s.Fatalf("send: %v", err)
	}
	return out
}

func (s *suite) sendBatch(queue string, entries []types.SendMessageBatchRequestEntry) *sqs.SendMessageBatchOutput {
	s.Helper()
	out, err := s.client.SendMessageBatch(s.Context(), &sqs.SendMessageBatchInput{QueueUrl: &queue, Entries: entries})
	if err != nil {
		s.Fatalf("send batch: %v", err)
	}
	return out
}

func delayed(seconds int32) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) { in.DelaySeconds = seconds }
}

func grouped(id string) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) { in.MessageGroupId = &id }
}

func attributed(attributes map[string]types.MessageAttributeValue) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) { in.MessageAttributes = attributes }
}

func text(value string) types.MessageAttributeValue { return labelled("String", value) }

func labelled(kind, value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: &kind, StringValue: &value}
}

// received asks once, for up to 10 messages with all their attributes, and waits for them for up to 1 s.
func (s *suite) received(queue string, change ...func(*sqs.ReceiveMessageInput)) ([]types.Message, error) {
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
		return nil, err
	}
	return out.Messages, nil
}

func (s *suite) receive(queue string, change ...func(*sqs.ReceiveMessageInput)) []types.Message {
	s.Helper()
	got, err := s.received(queue, change...)
	if err != nil {
		s.Fatalf("receive: %v", err)
	}
	return got
}

// one asks for one message, which must come. Where a server may miss one that is there, it asks again.
func (s *suite) one(queue string, change ...func(*sqs.ReceiveMessageInput)) types.Message {
	s.Helper()
	change = append([]func(*sqs.ReceiveMessageInput){atMost(1)}, change...)
	got := s.receive(queue, change...)
	for tries := 0; s.Lag > 0 && len(got) == 0 && tries < 5; tries++ {
		got = s.receive(queue, append(change, waiting(2))...)
	}
	if len(got) != 1 {
		s.Fatalf("received %d messages, want 1", len(got))
	}
	return got[0]
}

// all receives n messages, in one receive unless the server may give fewer than there are.
func (s *suite) all(queue string, n int, change ...func(*sqs.ReceiveMessageInput)) []types.Message {
	s.Helper()
	got := s.receive(queue, change...)
	for tries := 0; s.Lag > 0 && len(got) < n && tries < 20; tries++ {
		got = append(got, s.receive(queue, change...)...)
	}
	if len(got) != n {
		s.Fatalf("received %d messages, want %d", len(got), n)
	}
	return got
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

// polled is what a poll got that ran beside the check, and when.
type polled struct {
	messages []types.Message
	err      error
	at       time.Time
}

// poll begins a receive of one message that waits for up to 10 s, and returns when it can be taken to have begun.
func (s *suite) poll(queue string, change ...func(*sqs.ReceiveMessageInput)) <-chan polled {
	done := make(chan polled, 1)
	go func() {
		got, err := s.received(queue, append([]func(*sqs.ReceiveMessageInput){waiting(10), atMost(1)}, change...)...)
		done <- polled{got, err, time.Now()}
	}()
	unseen()
	return done
}

// woke checks that a poll got one message, by the time it was due.
func (s *suite) woke(p polled, due time.Time) types.Message {
	s.Helper()
	if p.err != nil || len(p.messages) != 1 {
		s.Fatalf("the poll got %d messages, %v, want one", len(p.messages), p.err)
	}
	if late := p.at.Sub(due); late > s.Slack {
		s.Fatalf("the poll woke %v after the message was due", late)
	}
	return p.messages[0]
}

func (s *suite) change(queue string, handle *string, seconds int32) error {
	_, err := s.client.ChangeMessageVisibility(s.Context(), &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &queue, ReceiptHandle: handle, VisibilityTimeout: seconds,
	})
	return err
}

// giveBack makes a message visible at once.
func (s *suite) giveBack(queue string, m types.Message) {
	s.Helper()
	if err := s.change(queue, m.ReceiptHandle, 0); err != nil {
		s.Fatalf("set a visibility timeout to 0: %v", err)
	}
}

func (s *suite) delete(queue string, handle *string) {
	s.Helper()
	if _, err := s.client.DeleteMessage(s.Context(), &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: handle}); err != nil {
		s.Fatalf("delete: %v", err)
	}
}

// counts checks how many messages are ready, in flight and delayed.
func (s *suite) counts(queue string, want ...string) {
	s.Helper()
	s.eventually("ready, in flight, delayed, want "+strings.Join(want, ", "), func() (any, bool) {
		got := []string{
			s.attribute(queue, types.QueueAttributeNameApproximateNumberOfMessages),
			s.attribute(queue, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible),
			s.attribute(queue, types.QueueAttributeNameApproximateNumberOfMessagesDelayed),
		}
		return got, strings.Join(got, ",") == strings.Join(want, ",")
	})
}

// holds waits until a queue has so many messages ready, where that is not the subject but what a check begins with.
func (s *suite) holds(queue, ready string) {
	s.Helper()
	s.within(s.Lag+5*time.Second, "messages that are ready, want "+ready, func() (any, bool) {
		got := s.attribute(queue, types.QueueAttributeNameApproximateNumberOfMessages)
		return got, got == ready
	})
}

// code checks an error's code, as SDKs tell it.
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

// took checks how long something took since began: as long as it should, and no longer than the slack more. A server that lags
// counts in seconds of its own and may be up to one early.
func (s *suite) took(began time.Time, want time.Duration) {
	s.Helper()
	least := want
	if s.Lag > 0 {
		least -= time.Second
	}
	if d := time.Since(began); d < least || d > want+s.Slack {
		s.Fatalf("took %v, want %v and at most %v more", d, want, s.Slack)
	}
}

func batchOf(n int, body string) []types.SendMessageBatchRequestEntry {
	entries := make([]types.SendMessageBatchRequestEntry, n)
	for i := range entries {
		entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String("id-" + string(rune('a'+i))), MessageBody: &body}
	}
	return entries
}
