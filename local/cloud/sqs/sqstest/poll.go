package sqstest

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

func wakeChecks() []check {
	return []check{
		{name: "of one message", run: func(s *suite) {
			url := s.queue()
			poll := s.poll(url)
			s.send(url, "x")
			s.woke(<-poll, time.Now())
		}},
		{name: "of a batch", run: func(s *suite) {
			url := s.queue()
			poll := s.poll(url, atMost(10))
			s.sendBatch(url, batchOf(10, "x"))
			sent := time.Now()
			p := <-poll
			if p.err != nil || len(p.messages) == 0 || p.at.Sub(sent) > s.Slack {
				s.Fatalf("%d messages, %v, %v after the send", len(p.messages), p.err, p.at.Sub(sent))
			}
		}},
		{name: "of one message, asked for ten", run: func(s *suite) {
			url := s.queue()
			poll := s.poll(url, atMost(10))
			s.send(url, "x")
			s.woke(<-poll, time.Now())
		}},
		{name: "two polls, two messages", run: func(s *suite) {
			url := s.queue()
			first, second := s.poll(url), s.poll(url)
			s.send(url, "a")
			s.send(url, "b")
			sent := time.Now()
			a, b := <-first, <-second
			if len(a.messages)+len(b.messages) != 2 {
				s.Fatalf("the polls got %d and %d messages: %v, %v", len(a.messages), len(b.messages), a.err, b.err)
			}
			if earliest := min(a.at.Sub(sent), b.at.Sub(sent)); earliest > s.Slack {
				s.Fatalf("woke %v after the send", earliest)
			}
		}},
		{name: "by the queue's own wait", run: func(s *suite) {
			url := s.queue("ReceiveMessageWaitTimeSeconds", "10")
			poll := s.poll(url, waiting(0)) // which the SDK leaves out
			s.send(url, "x")
			s.woke(<-poll, time.Now())
		}},
		{name: "an empty one takes its time, the queue's or its own", run: func(s *suite) {
			url := s.queue("ReceiveMessageWaitTimeSeconds", "1")
			for _, seconds := range []int32{0, 2} { // 0 the SDK leaves out
				began := time.Now()
				if got := s.receive(url, waiting(seconds)); len(got) != 0 {
					s.Fatalf("got %v", got)
				}
				s.took(began, time.Duration(max(seconds, 1))*time.Second)
			}
		}},
	}
}

func wakeLaterChecks() []check {
	return []check{
		{name: "a delay's", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x", delayed(2))
			due := time.Now().Add(2 * time.Second)
			s.woke(<-s.poll(url), due)
		}},
		{name: "a visibility timeout's", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			s.one(url, hiding(2))
			due := time.Now().Add(2 * time.Second)
			s.woke(<-s.poll(url), due)
		}},
		{name: "a delay's, asked for ten messages", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x", delayed(2))
			due := time.Now().Add(2 * time.Second)
			s.woke(<-s.poll(url, atMost(10)), due)
		}},
		{name: "a visibility timeout's, asked for ten messages", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			s.one(url, hiding(2))
			due := time.Now().Add(2 * time.Second)
			s.woke(<-s.poll(url, atMost(10)), due)
		}},
		{name: "a visibility timeout's that is set to 0", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			m := s.one(url)
			poll := s.poll(url)
			s.giveBack(url, m)
			s.woke(<-poll, time.Now())
		}},
		{name: "a visibility timeout's that is shortened", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			m := s.one(url)
			poll := s.poll(url)
			if err := s.change(url, m.ReceiptHandle, 1); err != nil {
				s.Fatal(err)
			}
			s.woke(<-poll, time.Now().Add(time.Second))
		}},
	}
}

func goneChecks() []check {
	// leave begins a poll and gives it up, as a client does that is stopped.
	leave := func(s *suite, url string) {
		s.Helper()
		ctx, cancel := context.WithTimeout(s.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := s.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20}); !errors.Is(err, context.DeadlineExceeded) {
			s.Fatalf("the poll ended with %v, want the client's deadline", err)
		}
	}
	return []check{
		{name: "a message sent later goes to who asks", run: func(s *suite) {
			url := s.queue()
			for range 5 {
				leave(s, url)
			}
			unseen()
			s.send(url, "x")
			s.one(url)
		}},
		{name: "a message whose timeout ends goes to who asks", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			m := s.one(url)
			for range 3 {
				leave(s, url)
			}
			unseen()
			s.giveBack(url, m)
			s.one(url)
		}},
		{name: "a poll that waits gets it", run: func(s *suite) {
			url := s.queue()
			leave(s, url)
			poll := s.poll(url)
			leave(s, url)
			unseen()
			s.send(url, "x")
			s.woke(<-poll, time.Now())
		}},
	}
}
