package sqs_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/llm-queue/llmq/local/cloud/sqs"
)

// bench is a server in a bubble, with a client and a queue.
type bench struct {
	*testing.T
	server *sqs.Server
	client *awssqs.Client
	queue  string
}

// bubble runs a test on a server in time of its own.
func bubble(t *testing.T, run func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := sqs.New(sqs.Options{})
		t.Cleanup(server.Close)
		client := clientOf("http://sqs.test", server.Transport())
		run(&bench{t, server, client, createQueue(t, client, "calls", nil)})
	})
}

func (b *bench) send(body string) (*awssqs.SendMessageOutput, error) {
	return b.client.SendMessage(b.Context(), &awssqs.SendMessageInput{QueueUrl: &b.queue, MessageBody: &body})
}

// mustSend sends a message that must be taken, and returns its id.
func (b *bench) mustSend(body string) string {
	b.Helper()
	out, err := b.send(body)
	if err != nil {
		b.Fatalf("send: %v", err)
	}
	return *out.MessageId
}

// receive asks once for up to ten messages, without a wait.
func (b *bench) receive() []types.Message {
	b.Helper()
	out, err := b.client.ReceiveMessage(b.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &b.queue, MaxNumberOfMessages: 10})
	if err != nil {
		b.Fatalf("receive: %v", err)
	}
	return out.Messages
}

// want checks the bodies of what a receive gets now.
func (b *bench) want(bodies ...string) []types.Message {
	b.Helper()
	var got []string
	messages := b.receive()
	for _, m := range messages {
		got = append(got, *m.Body)
	}
	if strings.Join(got, ",") != strings.Join(bodies, ",") {
		b.Fatalf("received %v, want %v", got, bodies)
	}
	return messages
}

func (b *bench) delete(m types.Message) error {
	_, err := b.client.DeleteMessage(b.Context(), &awssqs.DeleteMessageInput{QueueUrl: &b.queue, ReceiptHandle: m.ReceiptHandle})
	return err
}

// isCut checks that a call ended without an answer.
func isCut(t *testing.T, err error) {
	t.Helper()
	if _, answered := errors.AsType[smithy.APIError](err); err == nil || answered || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("error %v, want a connection that was cut", err)
	}
}

func TestFault_DropOfASend(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Drop, Op: "SendMessage", Times: 1})
		if b.mustSend("lost") == "" {
			b.Fatal("no message id")
		}
		b.mustSend("kept")
		b.want("kept")
	})
}

func TestFault_DropOfABatchEntry(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Drop, Op: "SendMessageBatch", Skip: 1, Times: 1})
		out, err := b.client.SendMessageBatch(b.Context(), &awssqs.SendMessageBatchInput{QueueUrl: &b.queue, Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("a"), MessageBody: aws.String("a")}, {Id: aws.String("b"), MessageBody: aws.String("b")}, {Id: aws.String("c"), MessageBody: aws.String("c")},
		}})
		if err != nil || len(out.Successful) != 3 {
			b.Fatalf("%+v, %v, want three successes", out, err)
		}
		b.want("a", "c")
	})
}

func TestFault_DropOfADeleteBringsTheMessageBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Drop, Op: "DeleteMessage", Queue: "calls", Times: 1})
		b.mustSend("x")
		if err := b.delete(b.want("x")[0]); err != nil {
			b.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		m := b.want("x")[0]
		if err := b.delete(m); err != nil {
			b.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		b.want()
	})
}

func TestFault_DropOfAChangeLeavesTheTimeout(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Drop, Op: "ChangeMessageVisibilityBatch"})
		b.mustSend("x")
		m := b.want("x")[0]
		out, err := b.client.ChangeMessageVisibilityBatch(b.Context(), &awssqs.ChangeMessageVisibilityBatchInput{
			QueueUrl: &b.queue, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{{Id: aws.String("a"), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 900}},
		})
		if err != nil || len(out.Successful) != 1 {
			b.Fatalf("%+v, %v, want a success", out, err)
		}
		time.Sleep(30 * time.Second)
		b.want("x")
	})
}

func TestFault_DropOfAReceiveFindsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Drop, Op: "ReceiveMessage", Times: 1})
		b.mustSend("x")
		b.want()
		b.want("x")
	})
}

func TestFault_DuplicateOfASendIsOneMessageTwice(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Duplicate, Op: "SendMessage", Times: 1})
		id := b.mustSend("x")
		got := b.want("x", "x")
		if *got[0].MessageId != id || *got[1].MessageId != id || *got[0].ReceiptHandle == *got[1].ReceiptHandle {
			b.Fatalf("received %+v", got)
		}
		if err := b.delete(got[0]); err != nil {
			b.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		b.want("x")
	})
}

func TestFault_DuplicateOfAReceiveHandsOutTwice(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Duplicate, Op: "ReceiveMessage", Times: 1})
		b.mustSend("x")
		first := b.want("x")[0]
		second := b.want("x")[0]
		if *first.MessageId != *second.MessageId {
			b.Fatal("another message came")
		}
		b.want()
	})
}

func TestFault_DelayHoldsARequest(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Delay, Op: "SendMessage", Wait: 3 * time.Second, Times: 1})
		began := time.Now()
		b.mustSend("x")
		if d := time.Since(began); d != 3*time.Second {
			b.Fatalf("took %v, want 3s", d)
		}
		b.want("x")
	})
}

func TestFault_DelayedRequestOfACallerWhoLeftHasNoEffect(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Delay, Op: "SendMessage", Wait: 3 * time.Second})
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		_, err := b.client.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &b.queue, MessageBody: aws.String("x")})
		if err == nil {
			b.Fatal("the call succeeded")
		}
		time.Sleep(10 * time.Second)
		b.want()
	})
}

func TestFault_RefuseWithTheErrorChosen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   string
		status int
		want   string // the code SDKs tell
		got    int    // the status
		typed  func(error) bool
	}{
		"unavailable by default": {"", 0, "ServiceUnavailable", 503, nil},
		"throttled": {"RequestThrottled", 0, "RequestThrottled", 403, func(err error) bool {
			_, ok := errors.AsType[*types.RequestThrottled](err)
			return ok
		}},
		"over the limit": {"OverLimit", 0, "OverLimit", 403, func(err error) bool {
			_, ok := errors.AsType[*types.OverLimit](err)
			return ok
		}},
		"a status of its own":   {"InternalFailure", 500, "InternalFailure", 500, nil},
		"a code of AWS's front": {"ThrottlingException", 429, "ThrottlingException", 429, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(b *bench) {
				b.server.Inject(sqs.Fault{Kind: sqs.Refuse, Op: "SendMessage", Code: c.code, Status: c.status, Times: 1})
				_, err := b.send("x")
				api, ok := errors.AsType[smithy.APIError](err)
				response, hasStatus := errors.AsType[interface {
					error
					HTTPStatusCode() int
				}](err)
				if !ok || api.ErrorCode() != c.want || !hasStatus || response.HTTPStatusCode() != c.got || c.typed != nil && !c.typed(err) {
					b.Fatalf("error %v, want %s with %d", err, c.want, c.got)
				}
				b.want()
				b.mustSend("x")
			})
		})
	}
}

func TestFault_HangUntilTheCallerLeaves(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Hang, Op: "SendMessage"})
		ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		_, err := b.client.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &b.queue, MessageBody: aws.String("x")})
		if err == nil || time.Since(began) != time.Hour {
			b.Fatalf("ended with %v after %v", err, time.Since(began))
		}
		b.want()
	})
}

func TestFault_HangEndsWhenItIsRemovedOrTheServerCloses(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *bench, remove func()){
		"removed": func(_ *bench, remove func()) { remove(); remove() },
		"closed":  func(b *bench, _ func()) { b.server.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(b *bench) {
				remove := b.server.Inject(sqs.Fault{Kind: sqs.Hang, Op: "SendMessage"})
				done := make(chan error, 1)
				go func() {
					_, err := b.send("x")
					done <- err
				}()
				synctest.Wait()
				end(b, remove)
				isCut(b.T, <-done)
			})
		})
	}
}

func TestFault_CutHasNoEffect(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Cut, Op: "SendMessage", Times: 1})
		_, err := b.send("x")
		isCut(b.T, err)
		b.want()
	})
}

func TestFault_LoseAnswerAfterTheEffect(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.LoseAnswer, Op: "SendMessage", Times: 1})
		_, err := b.send("x")
		isCut(b.T, err)
		b.mustSend("x") // what a careful sender does, and an SDK by itself
		b.want("x", "x")

		b.server.Inject(sqs.Fault{Kind: sqs.LoseAnswer, Op: "ReceiveMessage", Times: 1})
		b.mustSend("hidden")
		_, err = b.client.ReceiveMessage(b.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &b.queue})
		isCut(b.T, err)
		b.want() // it is in flight, though nobody has it
		time.Sleep(30 * time.Second)
		b.want("x", "x", "hidden")
	})
}
