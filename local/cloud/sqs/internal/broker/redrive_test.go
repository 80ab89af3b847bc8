package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// redriveTo makes a dead-letter queue of that name for the test's queue.
func redriveTo(t *testing.T, b *Broker, name, limit string) {
	t.Helper()
	create(t, b, name, nil)
	policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%s}`, b.ARN(name), limit)
	if err := b.SetQueueAttributes(queueName, map[string]string{attrRedrive: policy}); err != nil {
		t.Fatal(err)
	}
}

func TestRedrive_KeepsTheMessage(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrVisibility: "5"}, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "2")
		sent := time.Now()
		o := Outgoing{Body: "x", GroupID: "g", TraceHeader: "Root=1", Attributes: map[string]Attribute{"a": {Type: "String", Text: "b"}}}
		id := send(t, b, o)
		first := one(t, b, queueName, 0)
		one(t, b, queueName, 20)
		if got := receive(t, b, queueName, 20); len(got) != 0 {
			t.Fatalf("received %d times, limit 2", got[0].Receives)
		}
		want := Message{
			Outgoing: o, ID: id, SenderID: "sender", SourceARN: b.ARN(queueName), SentAt: sent, FirstReceivedAt: first.FirstReceivedAt, Receives: 3,
		}
		if diff := cmp.Diff(want, one(t, b, "dead", 0), cmpopts.IgnoreFields(Message{}, "Handle", "key")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestRedrive_WakesAPollOnTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrVisibility: "5"}, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "1")
		send(t, b, Outgoing{Body: "x"})
		one(t, b, queueName, 0)
		p := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)}) // on the source: it is what moves the message
		began := time.Now()
		one(t, b, "dead", 20)
		elapsed(t, began, 5*time.Second)
		<-p.done
		if len(p.got) != 0 {
			t.Fatal("the source gave out a dead letter")
		}
	})
}

func TestRedrive_DeletedTargetKeepsTheMessageComing(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrVisibility: "0"}, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "1")
		send(t, b, Outgoing{Body: "x"})
		if err := b.DeleteQueue("dead"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			one(t, b, queueName, 0)
		}
	})
}

func TestRedrive_DeadLetterQueueMayHaveOneOfItsOwn(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrVisibility: "0"}, func(t *testing.T, b *Broker) {
		create(t, b, "last", nil)
		create(t, b, "dead", map[string]string{
			attrVisibility: "0", attrRedrive: fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":2}`, b.ARN("last")),
		})
		policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":3}`, b.ARN("dead"))
		if err := b.SetQueueAttributes(queueName, map[string]string{attrRedrive: policy}); err != nil {
			t.Fatal(err)
		}
		send(t, b, Outgoing{Body: "x"})
		for range 3 {
			one(t, b, queueName, 0)
		}
		receive(t, b, queueName, 0)
		for range 2 { // its count begins anew here, though ApproximateReceiveCount does not
			one(t, b, "dead", 0)
		}
		receive(t, b, "dead", 0)
		if m := one(t, b, "last", 0); m.Receives != 6 || m.SourceARN != b.ARN("dead") {
			t.Fatalf("in the last queue: %+v", m)
		}
	})
}

func TestRedrive_ExpiresByTheTimeItWasSent(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrVisibility: "0"}, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "1")
		if err := b.SetQueueAttributes("dead", map[string]string{attrRetention: "60"}); err != nil {
			t.Fatal(err)
		}
		send(t, b, Outgoing{Body: "x"})
		one(t, b, queueName, 0)
		time.Sleep(time.Minute)
		receive(t, b, queueName, 0)
		counts(t, b, "dead", "0", "0", "0")
	})
}

func TestRedrivePolicy_Refused(t *testing.T) {
	t.Parallel()
	b := plain(t)
	create(t, b, "closed", map[string]string{attrAllow: `{"redrivePermission":"denyAll"}`})
	create(t, b, "picky", map[string]string{attrAllow: `{"redrivePermission":"byQueue","sourceQueueArns":["` + b.ARN("friend") + `"]}`})
	for name, c := range map[string]struct{ policy, reason string }{
		"no JSON":            {`x`, "not a valid JSON map"},
		"no target":          {`{"maxReceiveCount":3}`, "mandatory attribute: deadLetterTargetArn"},
		"no count":           {`{"deadLetterTargetArn":"` + b.ARN(queueName) + `"}`, "mandatory attribute: maxReceiveCount"},
		"more than that":     {`{"deadLetterTargetArn":"` + b.ARN(queueName) + `","maxReceiveCount":3,"x":1}`, "Only following attributes"},
		"target is no ARN":   {`{"deadLetterTargetArn":"dummy","maxReceiveCount":3}`, "Invalid value for deadLetterTargetArn"},
		"target is missing":  {`{"deadLetterTargetArn":"` + b.ARN("none") + `","maxReceiveCount":3}`, "target does not exist"},
		"target elsewhere":   {`{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:000000000000:calls","maxReceiveCount":3}`, "target does not exist"},
		"count 0":            {`{"deadLetterTargetArn":"` + b.ARN(queueName) + `","maxReceiveCount":0}`, "from 1 to 1000"},
		"count 1001":         {`{"deadLetterTargetArn":"` + b.ARN(queueName) + `","maxReceiveCount":1001}`, "from 1 to 1000"},
		"count is no number": {`{"deadLetterTargetArn":"` + b.ARN(queueName) + `","maxReceiveCount":"x"}`, "from 1 to 1000"},
		"target denies all":  {`{"deadLetterTargetArn":"` + b.ARN("closed") + `","maxReceiveCount":3}`, "does not allow"},
		"target denies us":   {`{"deadLetterTargetArn":"` + b.ARN("picky") + `","maxReceiveCount":3}`, "does not allow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := b.CreateQueue("source", map[string]string{attrRedrive: c.policy}, nil)
			wantCode(t, err, InvalidParameterValue)
			if !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("error %q, want the reason %q", err, c.reason)
			}
		})
	}
	create(t, b, "friend", map[string]string{attrRedrive: `{"deadLetterTargetArn":"` + b.ARN("picky") + `","maxReceiveCount":"3"}`})
}

func TestRedriveAllowPolicy_Refused(t *testing.T) {
	t.Parallel()
	b := plain(t)
	for _, policy := range []string{
		`x`, `{}`, `{"redrivePermission":"some"}`, `{"redrivePermission":"byQueue"}`, `{"redrivePermission":"allowAll","sourceQueueArns":["a"]}`,
		`{"redrivePermission":"byQueue","sourceQueueArns":["1","2","3","4","5","6","7","8","9","10","11"]}`,
	} {
		wantCode(t, b.SetQueueAttributes(queueName, map[string]string{attrAllow: policy}), InvalidParameterValue)
	}
}
