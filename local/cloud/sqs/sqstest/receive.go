package sqstest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func receiveChecks() []check {
	return []check{
		{"receive: ten at once, eleven refused", func(s *suite) {
			url := s.queue()
			if _, err := s.client.SendMessageBatch(s.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: batchOf(10, "x")}); err != nil {
				s.Fatal(err)
			}
			if got := s.receive(url); len(got) != 10 {
				s.Fatalf("received %d, want 10", len(got))
			}
			for _, bad := range []int32{-1, 11} {
				_, err := s.client.ReceiveMessage(s.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: bad})
				s.code(err, "InvalidParameterValue")
			}
			_, err := s.client.ReceiveMessage(s.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 21})
			s.code(err, "InvalidParameterValue")
		}},
		{"receive: counts and times", func(s *suite) {
			url := s.queue()
			before := time.Now().UnixMilli()
			s.send(url, "x")
			first := s.one(url, hiding(1)).Attributes
			second := s.one(url, waiting(5)).Attributes
			if first["ApproximateReceiveCount"] != "1" || second["ApproximateReceiveCount"] != "2" {
				s.Errorf("counts %s, %s, want 1, 2", first["ApproximateReceiveCount"], second["ApproximateReceiveCount"])
			}
			if first["SenderId"] == "" {
				s.Error("no SenderId")
			}
			for _, name := range []string{"SentTimestamp", "ApproximateFirstReceiveTimestamp"} {
				ms, err := strconv.ParseInt(first[name], 10, 64)
				if err != nil || ms < before-60_000 || ms > time.Now().UnixMilli()+60_000 { // a minute for a clock that differs
					s.Errorf("%s = %s", name, first[name])
				}
				if second[name] != first[name] {
					s.Errorf("%s changed from %s to %s", name, first[name], second[name])
				}
			}
		}},
		{"receive: only the attributes asked for", func(s *suite) {
			url := s.queue("VisibilityTimeout", "0")
			s.send(url, "x", func(in *sqs.SendMessageInput) {
				in.MessageAttributes = map[string]types.MessageAttributeValue{"Help.Me": text("Me"), "Hello": text("There"), "General": text("Kenobi")}
			})
			for _, c := range []struct{ ask, want []string }{
				{nil, nil},
				{[]string{"All"}, []string{"General", "Hello", "Help.Me"}},
				{[]string{".*"}, []string{"General", "Hello", "Help.Me"}},
				{[]string{"Hello", "None"}, []string{"Hello"}},
				{[]string{"Hel.*"}, []string{"Hello", "Help.Me"}},
				{[]string{"hello"}, nil},
			} {
				m := s.one(url, func(in *sqs.ReceiveMessageInput) {
					in.MessageAttributeNames, in.MessageSystemAttributeNames = c.ask, nil
				})
				if got := slices.Sorted(maps.Keys(m.MessageAttributes)); !slices.Equal(got, c.want) {
					s.Errorf("asked for %v, got %v, want %v", c.ask, got, c.want)
				}
				if (aws.ToString(m.MD5OfMessageAttributes) == "") != (len(c.want) == 0) {
					s.Errorf("asked for %v, got the checksum %q", c.ask, aws.ToString(m.MD5OfMessageAttributes))
				}
				if len(m.Attributes) != 0 {
					s.Errorf("system attributes %v without asking", m.Attributes)
				}
			}
			named := s.one(url, func(in *sqs.ReceiveMessageInput) {
				in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{types.MessageSystemAttributeNameSenderId}
			})
			old := s.one(url, func(in *sqs.ReceiveMessageInput) {
				in.MessageSystemAttributeNames = nil
				in.AttributeNames = []types.QueueAttributeName{"SenderId"} //nolint:staticcheck // the older name still works
			})
			if len(named.Attributes) != 1 || len(old.Attributes) != 1 || named.Attributes["SenderId"] != old.Attributes["SenderId"] {
				s.Errorf("SenderId by name %v, by the older parameter %v", named.Attributes, old.Attributes)
			}
		}},
		{"receive: own visibility timeout, and a queue's of 0", func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			began := time.Now()
			s.one(url, hiding(1))
			s.nothing(url)
			s.one(url, waiting(5))
			s.took(began, time.Second, time.Second+soon)
			_, err := s.client.ReceiveMessage(s.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, VisibilityTimeout: 43201})
			s.code(err, "InvalidParameterValue")

			zero := s.queue("VisibilityTimeout", "0")
			s.send(zero, "x")
			s.one(zero)
			s.one(zero)
		}},
		{"counts: ready, in flight, delayed", func(s *suite) {
			url := s.queue()
			for range 3 {
				s.send(url, "x")
			}
			s.send(url, "x", func(in *sqs.SendMessageInput) { in.DelaySeconds = 900 })
			s.counts(url, "3", "0", "1")
			m := s.one(url, atMost(1))
			s.counts(url, "2", "1", "1")
			s.delete(url, m.ReceiptHandle)
			s.counts(url, "2", "0", "1")
		}},
	}
}

func pollChecks() []check {
	return []check{
		{"poll: wakes at once on a send", func(s *suite) {
			url := s.queue()
			got := make(chan time.Time, 1)
			go func() {
				defer close(got)
				out, err := s.client.ReceiveMessage(s.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 10})
				if err == nil && len(out.Messages) == 1 {
					got <- time.Now()
				}
			}()
			settle() // let the poll begin
			s.send(url, "x")
			sent := time.Now()
			at, ok := <-got
			if !ok {
				s.Fatal("the poll got no message")
			}
			if d := at.Sub(sent); d > soon {
				s.Fatalf("woke %v after the send", d)
			}
		}},
		{"poll: wakes when a visibility timeout ends or is set to 0", func(s *suite) {
			url := s.queue("VisibilityTimeout", "1")
			s.send(url, "x")
			began := time.Now()
			s.one(url)
			m := s.one(url, waiting(5), hiding(900))
			s.took(began, time.Second, time.Second+soon)
			began = time.Now()
			changed := make(chan error, 1)
			time.AfterFunc(300*time.Millisecond, func() { changed <- s.change(url, m.ReceiptHandle, 0) })
			s.one(url, waiting(5))
			s.took(began, 300*time.Millisecond, 300*time.Millisecond+soon)
			if err := <-changed; err != nil {
				s.Error(err)
			}
		}},
		{"poll: an empty one takes its time", func(s *suite) {
			url := s.queue("ReceiveMessageWaitTimeSeconds", "1")
			began := time.Now()
			out, err := s.client.ReceiveMessage(s.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url})
			if err != nil || len(out.Messages) != 0 {
				s.Fatalf("got %v, %v", out, err)
			}
			s.took(began, time.Second, time.Second+soon)
		}},
		{"poll: one whose client has left hides no message", func(s *suite) {
			url := s.queue()
			for range 5 {
				ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
				_, err := s.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20})
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					s.Fatalf("poll ended with %v, want the client's deadline", err)
				}
			}
			settle() // let the server see that the last one has left
			s.send(url, "x")
			s.one(url)
		}},
	}
}

// settle gives the other side of a connection time to do what cannot be seen from here: to begin a poll, or to notice its end.
// Where it is too short a check still holds; it only proves less.
func settle() { <-time.After(200 * time.Millisecond) }
