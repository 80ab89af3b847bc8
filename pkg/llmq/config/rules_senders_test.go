package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// MS1, MS2: a sender is one of ours, a worker, or a producer with one tenant.
func TestFaults_Senders(t *testing.T) {
	t.Parallel()
	const (
		at   = "kind: aws"
		arn  = `role_arn: "arn:aws:iam::111122223333:role/billing"`
		good = `{name: billing, sender_id: AROABILLING00001, ` + arn + `, tenant: billing}`
	)
	with := func(entries string) string { return "kind: aws\nproducers: [" + entries + "]" }
	runFaults(t, []faultCase{
		{"a producer", "aws", at, with(good), nil, nil},
		{"nothing of it", "aws", at, with("{name: b}"), nil, []string{
			`aws:2:13: producers[0].sender_id: is missing: unique id of its role or user: AROA… of ` + "`aws iam get-role`" + `. A role that is made anew has a new one`,
			`aws:2:13: producers[0].tenant: is missing: whose requests it sends`,
			`aws:2:13: producers[0].role_arn: is missing: on aws the queues' policies let nobody send who is not named; give arn:aws:iam::ACCOUNT:role/NAME`,
		}},
		{
			"with its session", "aws", at, with(`{name: b, sender_id: "AROABILLING00001:host", ` + arn + `, tenant: b}`), nil,
			[]string{`aws:2:34: producers[0].sender_id: must match [A-Za-z0-9._-]{1,128}, not "AROABILLING00001:host": ` + whySender},
		},
		{
			"by its name", "aws", at, with(`{name: b, sender_id: billing, ` + arn + `, tenant: b}`), nil,
			[]string{`aws:2:34: producers[0].sender_id: must be the unique id of a role or user, AROA… or AIDA…, as ` + "`aws iam get-role`" + ` tells it, not its name`},
		},
		{
			"role of a session", "aws", at, with(`{name: b, sender_id: AROABILLING00001, role_arn: "arn:aws:sts::111122223333:assumed-role/b/s", tenant: b}`), nil,
			[]string{`aws:2:62: producers[0].role_arn: must match ` + shape(roleARN) + `, not "arn:aws:sts::111122223333:assumed-role/b/s"`},
		},
		{
			"two of a name, and of an id", "aws", at, with(good + ", " + good), nil,
			[]string{
				`aws:2:135: producers[1].name: "billing" is the name of producers[0] already`,
				`aws:2:155: producers[1].sender_id: is producers[0].sender_id already; who sends is one of ours, a worker or a producer of one tenant`,
			},
		},
		{
			"the door's", "aws", at, with(good),
			[]string{"LLMQ_SQS_SENDER_IDS=AROADOOR00000001, AROABILLING00001", "LLMQ_SQS_WORKER_IDS=AROADOOR00000001"},
			[]string{
				`aws:2:40: producers[0].sender_id: is queues.sender_ids[1] already; who sends is one of ours, a worker or a producer of one tenant`,
				`LLMQ_SQS_WORKER_IDS: queues.worker_ids[0]: is queues.sender_ids[0] already; who sends is one of ours, a worker or a producer of one tenant`,
			},
		},
		{
			"a list with a gap", "aws", at, at,
			[]string{"LLMQ_SQS_SENDER_IDS=AROADOOR00000001,,AROAADMIN0000001"},
			[]string{`LLMQ_SQS_SENDER_IDS: queues.sender_ids: is empty`},
		},
		{
			"one twice", "aws", at, at,
			[]string{"LLMQ_SQS_SENDER_IDS=AROADOOR00000001,AROADOOR00000001"},
			[]string{`LLMQ_SQS_SENDER_IDS: queues.sender_ids: "AROADOOR00000001" is named twice`},
		},
		{
			"a program", "aws", at, with(`{name: b, sender_id: AROABILLING00001, ` + arn + `, tenant: b, program: true}`), nil, nil,
		},
		{
			"a program of a long name", "aws", at, with(`{name: reports-of-every-night-in-the-year, sender_id: AROABILLING00001, ` + arn + `, tenant: b, program: true}`), nil,
			[]string{"aws:2:157: producers[0].program: makes the user llmq-dev-prog-reports-of-every-night-in-the-year of the cache, whose name may have 40 characters; shorten the producer's name by 8"},
		},
		{
			"replies", "aws", at, with(`{name: b, sender_id: AROABILLING00001, ` + arn + `, tenant: b, replies: ["done=sqs:b-replies", archive=s3]}`), nil, nil,
		},
		{
			"replies that are none", "aws", at, with(`{name: b, sender_id: AROABILLING00001, ` + arn + `, tenant: b, replies: ["done=https://x.example"]}`), nil,
			[]string{`aws:2:125: producers[0].replies[0]: must match ` + shape(replyPattern) + `, not "done=https://x.example": a reply is alias=sqs:QUEUE, a queue of this account and region, or alias=s3, the data bucket`},
		},
		{"locally any name", "local", "kind: local", "kind: local\nproducers: [{name: a, sender_id: local, tenant: t}]", nil, nil},
	})
}

// MS5: a reply on one of our own queues would come back as a message; an alias means one thing to a tenant.
func TestReplies_NoLoopAndNoDoubt(t *testing.T) {
	t.Parallel()
	producers := `
queues: {sender_ids: [o], worker_ids: [w]}
producers:
  - {name: a, sender_id: a, tenant: t, replies: [x=sqs:llm-chat-rt, y=sqs:llm-chat-dlq, z=sqs:own]}
  - {name: b, sender_id: b, tenant: t, replies: [z=sqs:other, s=s3]}
  - {name: c, sender_id: c, tenant: u, replies: [z=sqs:own]}
`
	_, err := Parse("f", []byte(example+producers), []string{"LLMQ_DEV_PEPPER=x"})
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		"producers[0].replies[0]: llm-chat-rt is a queue of llmq's own: a reply would come back as a message",
		"producers[0].replies[1]: llm-chat-dlq is a queue of llmq's own",
		`producers[1].replies[0]: the alias "z" of tenant t is producers[0].replies[2] already`,
		"producers[1].replies[1]: s3 needs storage.bucket",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "producers[2]") || strings.Contains(err.Error(), "replies[2]: ") {
		t.Errorf("a good one is refused:\n%v", err)
	}
}

// MS1: the deployment's variables take the place of what the file says, and reach the worker.
func TestSenders_AreOursTheWorkersAndTheProducers(t *testing.T) {
	t.Parallel()
	c, err := Parse("f", []byte(example+"queues: {sender_ids: [a, b], worker_ids: [w]}\nproducers: [{name: n, sender_id: p, tenant: t, replies: [done=sqs:r]}]\n"), []string{"LLMQ_DEV_PEPPER=x", "LLMQ_SQS_SENDER_IDS=door, admin"})
	if err != nil {
		t.Fatal(err)
	}
	want := queue.Senders{
		Own: []string{"door", "admin"}, Workers: []string{"w"}, Producers: []queue.Producer{{
			Name: "n", SenderID: "p", Tenant: "t", Replies: []queue.Reply{{Alias: "done", Queue: "r"}}, Program: true,
		}},
	}
	if diff := cmp.Diff(want, c.Senders()); diff != "" {
		t.Error(diff)
	}
	text, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("f", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, again, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Errorf("written and read back: %s", diff)
	}
}

// MS4: the bucket's owner is the account of the queues.
func TestQueues_AccountIsThatOfTheURL(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"": "", "https://sqs.eu-west-1.amazonaws.com/111122223333": "111122223333", "http://127.0.0.1:9324/000000000000": "000000000000",
		"http://127.0.0.1:9324/queue": "", "http://127.0.0.1:9324": "",
	} {
		if got := (Queues{URLBase: base}).Account(); got != want {
			t.Errorf("account of %q is %q, want %q", base, got, want)
		}
	}
}
