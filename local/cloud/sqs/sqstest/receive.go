package sqstest

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func maximumChecks() []check {
	return []check{
		{name: "one unless asked for more", run: func(s *suite) {
			url := s.queue()
			s.sendBatch(url, batchOf(3, "x"))
			s.one(url, atMost(0)) // which the SDK leaves out
		}},
		{name: "ten at once", run: func(s *suite) {
			url := s.queue()
			s.sendBatch(url, batchOf(10, "x"))
			s.sendBatch(url, batchOf(2, "x"))
			s.all(url, 10)
		}},
		{name: "eleven, and less than one, are refused", run: func(s *suite) {
			url := s.queue()
			for _, bad := range []int32{-1, 11} {
				_, err := s.received(url, atMost(bad))
				s.code(err, "InvalidParameterValue")
			}
		}},
		{name: "a wait over 20 s is refused", run: func(s *suite) {
			_, err := s.received(s.queue(), waiting(21))
			s.code(err, "InvalidParameterValue")
		}},
	}
}

func receiveChecks() []check {
	return []check{
		{name: "the count goes up with each receive", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			for _, want := range []string{"1", "2", "3"} {
				m := s.one(url)
				if got := m.Attributes["ApproximateReceiveCount"]; got != want {
					s.Errorf("ApproximateReceiveCount = %s, want %s", got, want)
				}
				s.giveBack(url, m)
			}
		}},
		{name: "the times of sending and of the first receive stay", run: func(s *suite) {
			url := s.queue()
			before := time.Now().UnixMilli()
			s.send(url, "x")
			first := s.one(url, hiding(1)).Attributes
			second := s.one(url, waiting(5)).Attributes
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
		{name: "the sender is told, and stays the same", run: func(s *suite) {
			url := s.queue()
			s.send(url, "a")
			s.send(url, "b")
			got := s.all(url, 2)
			if a, b := got[0].Attributes["SenderId"], got[1].Attributes["SenderId"]; a == "" || a != b {
				s.Errorf("SenderId = %q and %q", a, b)
			}
		}},
		{name: "a system attribute only by name", run: func(s *suite) {
			url := s.queue()
			s.send(url, "x")
			for _, c := range []struct {
				change func(*sqs.ReceiveMessageInput)
				want   []string
			}{
				{func(*sqs.ReceiveMessageInput) {}, nil},
				{func(in *sqs.ReceiveMessageInput) {
					in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{"SenderId"}
				}, []string{"SenderId"}},
				{func(in *sqs.ReceiveMessageInput) {
					in.AttributeNames = []types.QueueAttributeName{"SentTimestamp"} //nolint:staticcheck // the older name still works
				}, []string{"SentTimestamp"}},
			} {
				m := s.one(url, func(in *sqs.ReceiveMessageInput) { in.MessageSystemAttributeNames = nil }, c.change)
				if got := slices.Sorted(maps.Keys(m.Attributes)); !slices.Equal(got, c.want) {
					s.Errorf("got %v, want %v", got, c.want)
				}
				s.giveBack(url, m)
			}
		}},
		{name: "a message attribute only by name (H31)", run: func(s *suite) {
			s.selects([][2][]string{{nil, nil}, {{"Hello", "None"}, {"Hello"}}, {{"hello"}, nil}})
		}},
		{name: "message attributes by prefix, and all (H31)", run: func(s *suite) {
			every := []string{"General", "Hello", "Help.Me"}
			s.selects([][2][]string{{{"All"}, every}, {{".*"}, every}, {{"Hel.*"}, {"Hello", "Help.Me"}}})
		}},
		{name: "an unknown system attribute is refused", run: func(s *suite) {
			_, err := s.received(s.queue(), func(in *sqs.ReceiveMessageInput) {
				in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{"NoSuchThing"}
			})
			typed[*types.InvalidAttributeName](s, err)
		}},
	}
}

// selects checks which of a message's three attributes come when some are asked for, and that the checksum is over those.
func (s *suite) selects(cases [][2][]string) {
	s.Helper()
	url := s.queue()
	all := map[string]types.MessageAttributeValue{"Help.Me": text("Me"), "Hello": text("There"), "General": text("Kenobi")}
	s.send(url, "x", attributed(all))
	for _, c := range cases {
		ask, want := c[0], c[1]
		m := s.one(url, func(in *sqs.ReceiveMessageInput) { in.MessageAttributeNames = ask })
		if got := slices.Sorted(maps.Keys(m.MessageAttributes)); !slices.Equal(got, want) {
			s.Errorf("asked for %v, got %v, want %v", ask, got, want)
		}
		sum := ""
		if len(want) > 0 {
			sum = checksum(m.MessageAttributes)
		}
		if got := aws.ToString(m.MD5OfMessageAttributes); got != sum {
			s.Errorf("asked for %v, got the checksum %q, want %q", ask, got, sum)
		}
		s.giveBack(url, m)
	}
}

func ownTimeoutChecks() []check {
	return []check{
		{name: "of one receive", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "900")
			s.send(url, "x")
			began := time.Now()
			s.one(url, hiding(2))
			s.nothing(url)
			s.one(url, waiting(10))
			s.took(began, 2*time.Second)
		}},
		{name: "is not remembered: the next receive gets the queue's", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "1")
			s.send(url, "x")
			s.giveBack(url, s.one(url, hiding(900)))
			began := time.Now()
			s.one(url)
			s.one(url, waiting(10))
			s.took(began, time.Second)
		}},
		{name: "0 of the queue leaves the message there", run: func(s *suite) {
			url := s.queue("VisibilityTimeout", "0")
			s.send(url, "x")
			s.one(url)
			s.one(url)
			s.counts(url, "1", "0", "0")
		}},
		{name: "over 12 h is refused", run: func(s *suite) {
			_, err := s.received(s.queue(), hiding(43201))
			s.code(err, "InvalidParameterValue")
		}},
	}
}

func backOfQueueChecks() []check {
	return []check{{name: "two younger messages go first", run: func(s *suite) {
		if s.Lag > 0 {
			s.Skip("this server keeps no order that a client could rely on")
		}
		url := s.queue()
		s.send(url, "often")
		s.send(url, "second")
		s.send(url, "third")
		for range 2 {
			m := s.one(url)
			if *m.Body != "often" { // until the third receive it keeps its place
				s.Fatalf("received %q, want the oldest", *m.Body)
			}
			s.giveBack(url, m)
		}
		s.giveBack(url, s.one(url))
		var order []string
		for _, m := range s.all(url, 3) {
			order = append(order, *m.Body)
		}
		if !slices.Equal(order, []string{"second", "third", "often"}) {
			s.Fatalf("then came %v", order)
		}
	}}}
}

func retentionChecks() []check {
	gone := func(s *suite, url string) {
		s.Helper()
		s.counts(url, "0", "0", "0")
		s.nothing(url)
	}
	return []check{
		{name: "ready, in flight and delayed", slow: true, run: func(s *suite) {
			url := s.queue("MessageRetentionPeriod", "60", "VisibilityTimeout", "900")
			s.send(url, "in flight")
			s.one(url)
			s.send(url, "ready")
			s.send(url, "delayed", delayed(900))
			s.counts(url, "1", "1", "1")
			pause(60*time.Second + s.Slack)
			gone(s, url)
		}},
		{name: "a dead letter's age is that of the message", slow: true, run: func(s *suite) {
			dead := s.queue("MessageRetentionPeriod", "60")
			url := s.queue("RedrivePolicy", s.redrive(dead, "1"), "VisibilityTimeout", "0")
			s.send(url, "x")
			pause(40 * time.Second)
			s.one(url)
			s.nothing(url)
			s.counts(dead, "1", "0", "0")
			pause(20*time.Second + s.Slack)
			gone(s, dead)
		}},
	}
}
