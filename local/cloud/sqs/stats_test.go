package sqs_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud/sqs"
)

func TestStats_BillEvery64KiBOfWhatIsSentAndReceived(t *testing.T) {
	t.Parallel()
	const kib = 1 << 10
	server := local(t, sqs.Options{})
	send := func(size int) {
		must(t, server, "SendMessage", `{"QueueUrl":"`+queueURL+`","MessageBody":"`+strings.Repeat("x", size)+`"}`)
	}
	receive := func(limit string) {
		must(t, server, "ReceiveMessage", `{"QueueUrl":"`+queueURL+`","MaxNumberOfMessages":`+limit+`,"VisibilityTimeout":900}`)
	}
	send(1)          // 1
	send(64 * kib)   // 1
	send(64*kib + 1) // 2
	receive("10")    // 3, for 128 KiB and two bytes
	send(1024 * kib) // 16
	receive("1")     // 16
	receive("1")     // 1, though nothing came
	half := strings.Repeat("x", 40*kib)
	must(t, server, "SendMessageBatch", `{"QueueUrl":"`+queueURL+`","Entries":[{"Id":"a","MessageBody":"`+half+`"},{"Id":"b","MessageBody":"`+half+`"}]}`) // 2
	ask(server, request("SendMessage", `{"QueueUrl":"`+queueURL+`"}`))                                                                                     // 1, though refused
	want := map[string]int64{"CreateQueue": 1, "SendMessage": 21, "SendMessageBatch": 2, "ReceiveMessage": 20}
	if diff := cmp.Diff(want, server.Stats().Billed); diff != "" {
		t.Fatal(diff)
	}
}

func TestStats_CountReceivesThatBringNothingAndMessagesWithAGroup(t *testing.T) {
	t.Parallel()
	server := local(t, sqs.Options{})
	queue := `{"QueueUrl":"` + queueURL + `",`
	must(t, server, "ReceiveMessage", queue+`"MaxNumberOfMessages":10}`) // nothing
	must(t, server, "SendMessage", queue+`"MessageBody":"x","MessageGroupId":"a"}`)
	must(t, server, "SendMessage", queue+`"MessageBody":"x"}`)
	must(t, server, "SendMessageBatch", queue+`"Entries":[{"Id":"a","MessageBody":"x","MessageGroupId":"b"},{"Id":"b","MessageBody":"x"}]}`)
	must(t, server, "ReceiveMessage", queue+`"MaxNumberOfMessages":10}`) // four
	must(t, server, "ReceiveMessage", queue+`"MaxNumberOfMessages":10}`) // nothing is left
	if s := server.Stats(); s.Empty != 2 || s.Grouped != 2 {
		t.Errorf("%d receives brought nothing, %d messages have a group; want 2 and 2", s.Empty, s.Grouped)
	}
}
