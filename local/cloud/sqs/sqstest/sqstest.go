// Package sqstest is a conformance suite for SQS: what a worker relies on, asked of a server through the AWS SDK. It is written from
// the API reference, the SDK's typed errors and checksums recorded on AWS.
//
// It has rows, one a behaviour, named as docs/EMULATORS.md names them, and one check or more in each. It knows nothing of the server
// but what a client can see, so it runs on the embedded server, on another emulator and on AWS alike; a [Profile] says how much
// patience each needs.
package sqstest

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// Profile says what a server promises about time. The zero value is the strictest: everything is seen at once, and what is due comes
// in the very instant. That is the embedded server's in a testing/synctest bubble.
type Profile struct {
	// Slack is how much later than due a message, or the end of a poll, may come: the network's time and a busy machine's.
	Slack time.Duration

	// Lag is how long counts, attributes, lists and purges may take to show a change, and that a short poll may miss a message; on
	// AWS a minute. 0 means at once.
	Lag time.Duration

	// Slow admits the checks that wait for a minute: what comes after a purge, a deletion or a retention.
	Slow bool

	// Only admits the rows it is true for; nil admits all.
	Only func(row string) bool
}

// Exercise runs the suite on the server of a client, the checks side by side. It makes queues with random names and deletes them.
// The client should retry little, so that a lost response shows.
func Exercise(t *testing.T, client *sqs.Client, p Profile) {
	t.Helper()
	ExerciseIn(t, p, func(t *testing.T, check func(*testing.T, *sqs.Client)) {
		t.Helper()
		check(t, client)
	})
}

// ExerciseIn runs the suite with a server for each check. in is called in a parallel subtest of each check's own; it must call check
// once, with a client and a t that may be another, such as that of a testing/synctest bubble. Two checks never share a queue.
func ExerciseIn(t *testing.T, p Profile, in func(t *testing.T, check func(*testing.T, *sqs.Client))) {
	t.Helper()
	for _, r := range rows() {
		if p.Only != nil && !p.Only(r.name) {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range r.checks {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					if c.slow && !p.Slow {
						t.Skip("waits for a minute or longer, and this server's clock is the real one")
					}
					in(t, func(t *testing.T, client *sqs.Client) {
						t.Helper()
						c.run(&suite{T: t, Profile: p, client: client})
					})
				})
			}
		})
	}
}

// Row is one behaviour of the suite, and the names of the checks of it.
type Row struct {
	Name   string
	Checks []string
	Slow   []string // those of a [Profile] that admits slow checks only
}

// Rows is the whole suite, in the order of the table in docs/EMULATORS.md.
func Rows() []Row {
	var list []Row
	for _, r := range rows() {
		entry := Row{Name: r.name}
		for _, c := range r.checks {
			if c.slow {
				entry.Slow = append(entry.Slow, c.name)
				continue
			}
			entry.Checks = append(entry.Checks, c.name)
		}
		list = append(list, entry)
	}
	return list
}

// row is one behaviour, in one check or more.
type row struct {
	name   string
	checks []check
}

// check is one thing that a server does or doesn't do as AWS does.
type check struct {
	name string
	run  func(*suite)
	slow bool // it waits for a minute or longer
}

// rows is the whole suite. A name holds no slash, for that would be two levels to go test -run.
func rows() []row {
	return []row{
		{"CreateQueue: attributes, defaults, conflict error", createChecks()},
		{"SendMessage and SendMessageBatch with message attributes", sendChecks()},
		{"DelaySeconds: message, batch entry, queue", delayChecks()},
		{"MessageGroupId on a standard queue: taken, given back", groupChecks()},
		{"Long poll wakes at once on a send", wakeChecks()},
		{"Long poll wakes when a timeout ends", wakeLaterChecks()},
		{"Client gone during a long poll: next message safe", goneChecks()},
		{"MaxNumberOfMessages 10; 11 refused", maximumChecks()},
		{"Receive count, SentTimestamp, first receive, filters", receiveChecks()},
		{"ReceiveMessage VisibilityTimeout; queue timeout 0", ownTimeoutChecks()},
		{"ChangeMessageVisibility 0, longer, 43201 refused", changeChecks()},
		{"ChangeMessageVisibilityBatch, partial failure", changeBatchChecks()},
		{"MessageNotInflight", notInFlightChecks()},
		{"Stale handle, delete: 200 and the message stays", staleDeleteChecks()},
		{"Stale handle cannot change the new holder's timeout", staleChangeChecks()},
		{"DeleteMessageBatch, one bad handle", deleteBatchChecks()},
		{"maxReceiveCount to DLQ, id and attributes kept", redriveChecks()},
		{"DeadLetterQueueSourceArn on the DLQ message", sourceChecks()},
		{"Missing DLQ refused", policyChecks()},
		{"StartMessageMoveTask, list, its errors", moveChecks()},
		{"Counts: visible, not visible, delayed", countChecks()},
		{"PurgeQueue; second within 60 s refused", purgeChecks()},
		{"SetQueueAttributes; drop RedrivePolicy; unknown name", attributeChecks()},
		{"ListQueues prefix and paging", listChecks()},
		{"ListDeadLetterSourceQueues", sourcesChecks()},
		{"1 MiB body, MaximumMessageSize kept", sizeChecks()},
		{"BatchRequestTooLong over 1 MiB", batchSizeChecks()},
		{"InvalidMessageContents", characterChecks()},
		{"QueueDoesNotExist as a typed error", missingQueueChecks()},
		{"ReceiptHandleIsInvalid", handleChecks()},
		{"Ids not distinct, too many, empty, invalid id", entryIDChecks()},
		{"8 consumers, 400 messages: no loss, no double", loadChecks()},
		{"Fair choice between message groups", fairChecks()},
		{"Received three times without a delete: back of the queue", backOfQueueChecks()},
		{"Retention: too old is gone, wherever it is", retentionChecks()},
		{"Tags", tagChecks()},
	}
}
