package sqs_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/llm-queue/llmq/local/cloud/sqs"
)

// Over a socket too nothing of an answer comes, and the SDK repeats by itself what it may.
func TestFault_OverASocket(t *testing.T) {
	t.Parallel()
	server, client := serve(t, sqs.Options{})
	queue := createQueue(t, client, "calls", nil)
	send := func(options ...func(*awssqs.Options)) error {
		_, err := client.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &queue, MessageBody: aws.String("x")}, options...)
		return err
	}
	for _, kind := range []sqs.Kind{sqs.LoseAnswer, sqs.Cut} {
		server.Inject(sqs.Fault{Kind: kind, Op: "SendMessage", Times: 1})
		err := send()
		if _, answered := errors.AsType[smithy.APIError](err); err == nil || answered {
			t.Errorf("%v: error %v, want a connection that was cut", kind, err)
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v: error %v is not what a cut connection gives", kind, err)
		}
	}
	server.Inject(sqs.Fault{Kind: sqs.LoseAnswer, Op: "SendMessage", Times: 1})
	if err := send(func(o *awssqs.Options) { o.Retryer = retry.NewStandard() }); err != nil {
		t.Errorf("the SDK with retries: %v", err)
	}
	out, err := client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: 10})
	if err != nil || len(out.Messages) != 3 { // one of LoseAnswer, none of Cut, two of the retry
		t.Fatalf("received %v, %v, want 3", out, err)
	}
}

func TestFault_StrikesOnlyWhatItNames(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		other := createQueue(b.T, b.client, "other", nil)
		b.server.Inject(sqs.Fault{Kind: sqs.Refuse, Op: "SendMessage", Queue: "other"})
		b.mustSend("x")
		b.want("x")
		_, err := b.client.SendMessage(b.Context(), &awssqs.SendMessageInput{QueueUrl: &other, MessageBody: aws.String("x")})
		if err == nil {
			b.Fatal("the other queue took it")
		}
		b.server.Inject(sqs.Fault{Kind: sqs.Refuse, Queue: "new"})
		if _, err := b.client.CreateQueue(b.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("new")}); err == nil {
			b.Fatal("the queue was created")
		}
		if got := b.server.Stats().Faults; got != 2 {
			b.Fatalf("%d faults, want 2", got)
		}
	})
}

func TestFault_SkipTimesAndRemove(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Cut, Op: "SendMessage", Skip: 1, Times: 2})
		var cut []bool
		for range 4 {
			_, err := b.send("x")
			cut = append(cut, err != nil)
		}
		if cut[0] || !cut[1] || !cut[2] || cut[3] {
			b.Fatalf("cut: %v, want the second and the third", cut)
		}
		remove := b.server.Inject(sqs.Fault{Kind: sqs.Cut, Op: "SendMessage"})
		if _, err := b.send("x"); err == nil {
			b.Fatal("not cut")
		}
		remove()
		b.mustSend("x")
	})
}

func TestFault_ChanceIsThatOfItsSeed(t *testing.T) {
	t.Parallel()
	pattern := func(seed uint64) (cut string) {
		bubble(t, func(b *bench) {
			b.server.Inject(sqs.Fault{Kind: sqs.Cut, Op: "SendMessage", Probability: 0.25, Seed: seed})
			for range 200 {
				if _, err := b.send("x"); err != nil {
					cut += "x"
					continue
				}
				cut += "."
			}
		})
		return cut
	}
	first, again, other := pattern(1), pattern(1), pattern(2)
	if first != again || first == other {
		t.Fatalf("the same seed gave\n%s\n%s\nanother\n%s", first, again, other)
	}
	if n := strings.Count(first, "x"); n < 30 || n > 70 {
		t.Fatalf("%d of 200 were cut, want about 50", n)
	}
}

func TestFault_SeveralActInTheirOrder(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bench) {
		b.server.Inject(sqs.Fault{Kind: sqs.Delay, Wait: time.Second})
		b.server.Inject(sqs.Fault{Kind: sqs.Duplicate, Op: "SendMessage", Times: 1})
		b.server.Inject(sqs.Fault{Kind: sqs.LoseAnswer, Op: "SendMessage", Times: 1})
		b.server.Inject(sqs.Fault{Kind: sqs.Refuse, Op: "SendMessage", Skip: 1, Times: 1})
		began := time.Now()
		_, err := b.send("x")
		isCut(b.T, err)
		if d := time.Since(began); d != time.Second {
			b.Fatalf("took %v, want 1s", d)
		}
		b.want("x", "x")
	})
}

func TestFault_InjectedAndRemovedWhileItRuns(t *testing.T) {
	t.Parallel()
	server, client := serve(t, sqs.Options{})
	queue := createQueue(t, client, "calls", nil)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = client.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &queue, MessageBody: aws.String("x")})
				_, _ = client.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: 10})
			}
		})
	}
	for i := range 200 {
		f := sqs.Fault{Kind: sqs.Kind(i%7) + sqs.Drop, Probability: 0.5, Seed: uint64(i)}
		if f.Kind == sqs.Delay {
			f.Wait = time.Microsecond
		}
		remove := server.Inject(f)
		if f.Kind != sqs.Hang {
			_, _ = client.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &queue, MessageBody: aws.String("x")})
		}
		remove()
	}
	if server.Stats().Faults == 0 {
		t.Error("no fault struck")
	}
	stop()
	wg.Wait()
}

func TestInject_PanicsOnWhatCannotHappen(t *testing.T) {
	t.Parallel()
	server := sqs.New(sqs.Options{})
	t.Cleanup(server.Close)
	for name, f := range map[string]sqs.Fault{
		"no kind":                {},
		"an unknown kind":        {Kind: 99},
		"an unknown operation":   {Kind: sqs.Cut, Op: "Send"},
		"a drop of a list":       {Kind: sqs.Drop, Op: "ListQueues"},
		"a duplicate delete":     {Kind: sqs.Duplicate, Op: "DeleteMessage"},
		"a chance over 1":        {Kind: sqs.Cut, Probability: 1.5},
		"a delay of nothing":     {Kind: sqs.Delay},
		"a wait before a cut":    {Kind: sqs.Cut, Wait: time.Second},
		"a code for a cut":       {Kind: sqs.Cut, Code: "OverLimit"},
		"a refusal by success":   {Kind: sqs.Refuse, Status: http.StatusOK},
		"a negative count":       {Kind: sqs.Cut, Times: -1},
		"a negative skip":        {Kind: sqs.Cut, Skip: -1},
		"a chance that is below": {Kind: sqs.Cut, Probability: -0.1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("it was taken")
				}
			}()
			server.Inject(f)
		})
	}
}

func TestKind_String(t *testing.T) {
	t.Parallel()
	if got := sqs.LoseAnswer.String() + " " + sqs.Drop.String() + " " + sqs.Kind(0).String(); got != "LoseAnswer Drop Kind(0)" {
		t.Fatal(got)
	}
}
