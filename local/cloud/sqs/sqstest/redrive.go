package sqstest

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// poison makes a queue and its dead-letter queue, and a message whose consumers have let its timeout end once too often.
func poison(s *suite, change ...func(*sqs.SendMessageInput)) (url, dead string, sent *sqs.SendMessageOutput, first types.Message) {
	s.Helper()
	dead = s.queue("VisibilityTimeout", "900")
	url = s.queue("RedrivePolicy", s.redrive(dead, "2"), "VisibilityTimeout", "1")
	sent = s.send(url, "poison", change...)
	first = s.one(url)
	s.one(url, waiting(5))
	if got := s.receive(url, waiting(3)); len(got) != 0 {
		s.Fatalf("it came a third time: %+v", got)
	}
	return url, dead, sent, first
}

func redriveChecks() []check {
	return []check{
		{name: "id, body and attributes", run: func(s *suite) {
			_, dead, sent, _ := poison(s, attributed(map[string]types.MessageAttributeValue{"Foo": text("Bar")}))
			m := s.one(dead)
			if *m.MessageId != *sent.MessageId || *m.Body != "poison" || aws.ToString(m.MessageAttributes["Foo"].StringValue) != "Bar" {
				s.Errorf("dead letter %+v, sent as %s", m, *sent.MessageId)
			}
		}},
		{name: "the time of sending and the group", run: func(s *suite) {
			_, dead, _, first := poison(s, grouped("tenant"))
			m := s.one(dead)
			for name, want := range map[string]string{"SentTimestamp": first.Attributes["SentTimestamp"], "MessageGroupId": "tenant"} {
				if m.Attributes[name] != want {
					s.Errorf("%s = %q, want %q", name, m.Attributes[name], want)
				}
			}
		}},
		{name: "the count of receives goes on", run: func(s *suite) {
			_, dead, _, _ := poison(s)
			if got := s.one(dead).Attributes["ApproximateReceiveCount"]; got != "3" {
				s.Errorf("ApproximateReceiveCount = %s, want 3", got)
			}
		}},
		{name: "a message that is given back moves too", run: func(s *suite) {
			dead := s.queue()
			url := s.queue("RedrivePolicy", s.redrive(dead, "1"), "VisibilityTimeout", "900")
			s.send(url, "poison")
			s.giveBack(url, s.one(url))
			s.nothing(url)
			s.one(dead)
		}},
		{name: "it leaves its queue", run: func(s *suite) {
			url, dead, _, _ := poison(s)
			s.counts(url, "0", "0", "0")
			s.counts(dead, "1", "0", "0")
		}},
	}
}

func sourceChecks() []check {
	return []check{
		{name: "names the queue it came from", run: func(s *suite) {
			url, dead, _, _ := poison(s)
			if got, want := s.one(dead).Attributes["DeadLetterQueueSourceArn"], s.arn(url); got != want {
				s.Errorf("DeadLetterQueueSourceArn = %q, want %q", got, want)
			}
		}},
		{name: "is not told of a message that was sent there", run: func(s *suite) {
			dead := s.queue()
			s.queue("RedrivePolicy", s.redrive(dead, "2"))
			s.send(dead, "x")
			if got, ok := s.one(dead).Attributes["DeadLetterQueueSourceArn"]; ok {
				s.Errorf("DeadLetterQueueSourceArn = %q", got)
			}
		}},
	}
}

func policyChecks() []check {
	create := func(s *suite, attribute, value string) error {
		_, err := s.client.CreateQueue(s.Context(), &sqs.CreateQueueInput{
			QueueName: aws.String(newName()), Attributes: map[string]string{attribute: value},
		})
		return err
	}
	return []check{
		{name: "at creation", run: func(s *suite) {
			arn := s.arn(s.queue())
			s.code(create(s, "RedrivePolicy", `{"deadLetterTargetArn":"`+arn+`-none-such","maxReceiveCount":"3"}`), "InvalidParameterValue")
		}},
		{name: "of a queue that exists", run: func(s *suite) {
			url := s.queue()
			err := s.set(url, "RedrivePolicy", `{"deadLetterTargetArn":"`+s.arn(url)+`-none-such","maxReceiveCount":"3"}`)
			s.code(err, "InvalidParameterValue")
		}},
		{name: "policies that are none", run: func(s *suite) {
			arn := s.arn(s.queue())
			for _, bad := range []string{
				`{"deadLetterTargetArn":"dummy","maxReceiveCount":"3"}`,
				`{"deadLetterTargetArn":"` + arn + `","maxReceiveCount":"0"}`,
				`{"deadLetterTargetArn":"` + arn + `","maxReceiveCount":"1001"}`,
				`{"maxReceiveCount":"3"}`,
				`nonsense`,
			} {
				s.code(create(s, "RedrivePolicy", bad), "InvalidParameterValue")
			}
		}},
		{name: "a queue that allows no source", run: func(s *suite) {
			dead := s.queue("RedriveAllowPolicy", `{"redrivePermission":"denyAll"}`)
			s.code(create(s, "RedrivePolicy", s.redrive(dead, "3")), "InvalidParameterValue")
		}},
	}
}
