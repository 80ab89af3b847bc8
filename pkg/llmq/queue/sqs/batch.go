package sqs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// batch is one request about several messages of a queue. It names its entries by their places among all
// that the caller gave, for neither a message's id nor its receipt is sure to come once (cases H10).
type batch struct {
	doing  string
	queue  queue.Name
	places []int
	errs   []error // of all that the caller gave
}

// tens cuts what the caller gave into requests of ten, and returns what became of each.
func tens(doing string, q queue.Name, n int, request func(b batch)) []error {
	errs := make([]error, n)
	places := make([]int, n)
	for i := range places {
		places[i] = i
	}
	for some := range slices.Chunk(places, batchEntries) {
		request(batch{doing, q, some, errs})
	}
	return errs
}

// entry is the name of what stands at a place.
func entry(place int) *string { return aws.String(strconv.Itoa(place)) }

// told notes what became of the entries. An entry that the answer does not name may be done or not, and so may
// all where there is no answer.
func (b batch) told(err error, done []*string, failed []types.BatchResultErrorEntry) {
	if err == nil {
		err = errUntold
	}
	for _, i := range b.places {
		b.errs[i] = unavailable(b.doing, b.queue, err)
	}
	for _, id := range done {
		if i, ok := b.place(id); ok {
			b.errs[i] = nil
		}
	}
	for _, f := range failed {
		if i, ok := b.place(f.Id); ok {
			b.errs[i] = b.explain(f)
		}
	}
}

func (b batch) place(id *string) (int, bool) {
	i, err := strconv.Atoi(aws.ToString(id))
	return i, err == nil && slices.Contains(b.places, i)
}

// errUntold is of an entry that its batch's answer does not name.
var errUntold = errors.New("the answer does not name the message")

// explain words an entry's failure. It is [llmq.CodeQueueUnavailable] where another try may go well.
func (b batch) explain(f types.BatchResultErrorEntry) error {
	code := aws.ToString(f.Code)
	err := fmt.Errorf("%s: %s", code, aws.ToString(f.Message))
	switch code[strings.LastIndexByte(code, '.')+1:] { // some come with the service's name before them
	case "InvalidMessageContents":
		return badCharacter(err)
	case "ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue": // the receipt is good for nothing any more
		return llmq.Errorf(llmq.CodeInternal, "the queue knows no such message in flight").Because(fmt.Errorf("%s %s: %w", b.doing, b.queue, err))
	}
	if !f.SenderFault {
		err = fmt.Errorf("%w: %w", queue.ErrRefused, err)
	}
	return unavailable(b.doing, b.queue, err)
}

// ids are the names of the entries that an answer reports as done.
func ids[E any](entries []E, id func(E) *string) []*string {
	out := make([]*string, len(entries))
	for i, e := range entries {
		out[i] = id(e)
	}
	return out
}
