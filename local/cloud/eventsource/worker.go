package eventsource

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// Pauses, doubled from the first to the last.
const (
	pauseFirst = 100 * time.Millisecond
	pauseLast  = 10 * time.Second
)

// deleteTries bounds how often a delete is tried. A message that is not deleted comes back; the function must bear it.
const deleteTries = 3

// worker polls, invokes and settles until ctx ends or it is one too many. It counts as polling when it starts.
func (s *Source) worker(ctx, work context.Context, wait time.Duration) {
	if !sleep(ctx, wait) {
		s.stopped(true)
		return
	}
	faults, empty, failed := 0, 0, 0 // in a row: receives in error, receives without message, failed invocations
	for {
		messages, err := s.receive(ctx, s.tuning.PollWait, min(s.mapping.BatchSize, receiveMax))
		received := time.Now()
		if err != nil {
			faults++
			if ctx.Err() == nil {
				s.log.Warn("receive failed", "err", err)
			}
			if !sleep(ctx, pause(faults)) {
				s.stopped(true)
				return
			}
			continue
		}
		faults = 0
		if len(messages) > 0 {
			empty = 0
		} else {
			empty++
		}
		if s.afterPoll(ctx, work, len(messages), empty) {
			return
		}
		if s.work(ctx, work, messages, received) {
			failed = 0
		} else {
			failed++
		}
		if !sleep(ctx, pause(failed)) {
			s.stopped(false)
			return
		}
		s.polls()
	}
}

// work delivers what a poll gave. It is false if the next poll shall be put off.
func (s *Source) work(ctx, work context.Context, messages []message, received time.Time) bool {
	if len(messages) == 0 {
		return true
	}
	ok := true
	for _, batch := range split(s.fill(ctx, messages, received), s.mapping.BatchSize, maxEventBytes) {
		ok = s.deliver(work, batch, received) && ok
	}
	// With ReportBatchItemFailures on, AWS does not slow its polls when a function fails. So neither do we: a function that
	// fails messages without hiding them makes a hot loop, here as there.
	return ok || s.mapping.ReportBatchItemFailures
}

// receive asks for messages once.
func (s *Source) receive(ctx context.Context, wait time.Duration, n int) ([]message, error) {
	out, err := s.deps.Queue.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl:                    aws.String(s.mapping.QueueURL),
		MaxNumberOfMessages:         int32(n),                  // at most 10
		WaitTimeSeconds:             int32(wait / time.Second), // at most 20
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		MessageAttributeNames:       []string{"All"},
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller logs it as a failed receive
	}
	messages := make([]message, 0, len(out.Messages))
	for _, m := range out.Messages {
		msg, err := newMessage(m, s.mapping)
		if err != nil {
			s.log.Error("message left in the queue", "err", err) // can't happen with what SQS lets in
			continue
		}
		messages = append(messages, msg)
	}
	return messages, nil
}

// fill receives further messages until the batch is full, by number or size, or its window is over. The window is kept to
// the second, as that is how receives wait; one that has begun is not cut short, since its messages might be lost to view.
func (s *Source) fill(ctx context.Context, messages []message, first time.Time) []message {
	size := 0
	for _, m := range messages {
		size += len(m.record) + 1
	}
	for len(messages) < s.mapping.BatchSize && size < maxEventBytes {
		left := time.Until(first.Add(s.mapping.Window)).Round(time.Second)
		if left <= 0 {
			break
		}
		more, err := s.receive(ctx, min(left, 20*time.Second), min(s.mapping.BatchSize-len(messages), receiveMax))
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("receive failed", "err", err)
			}
			break // what is there is delivered
		}
		s.tally(func(st *Stats) {
			st.Polls++
			st.Received += int64(len(more))
			if len(more) == 0 {
				st.EmptyPolls++
			}
		})
		for _, m := range more {
			size += len(m.record) + 1
		}
		messages = append(messages, more...)
	}
	return messages
}

// deliver invokes the function with a batch and deletes what is done. It reports whether the function succeeded.
func (s *Source) deliver(ctx context.Context, batch []message, received time.Time) bool {
	result, ok := s.invoke(ctx, event(batch), received)
	if !ok {
		s.tally(func(st *Stats) { st.Failures++; st.Kept += int64(len(batch)) })
		return false
	}
	var keep map[string]bool
	if s.mapping.ReportBatchItemFailures {
		var err error
		if keep, err = kept(result.Payload, batch); err != nil {
			s.log.Warn("whole batch kept", "err", err, "request_id", result.RequestID, "messages", len(batch))
			s.tally(func(st *Stats) { st.Failures++; st.Kept += int64(len(batch)) })
			return false
		}
	}
	var done []message
	for _, m := range batch {
		if !keep[m.id] {
			done = append(done, m)
		}
	}
	s.tally(func(st *Stats) { st.Kept += int64(len(batch) - len(done)) })
	s.remove(ctx, done)
	return true
}

// invoke runs the function. A throttle is tried again while the messages are ours: up to their visibility timeout.
func (s *Source) invoke(ctx context.Context, payload []byte, received time.Time) (lambda.Result, bool) {
	for try := 1; ; try++ {
		s.tally(func(st *Stats) { st.Invokes++ })
		result, err := s.deps.Invoker.Invoke(ctx, s.mapping.Function, payload, lambda.InvokeOptions{})
		switch {
		case err == nil && result.FunctionError == "":
			return result, true
		case err == nil:
			s.log.Warn("function failed", "error_type", result.ErrorType, "request_id", result.RequestID)
			return result, false
		case !errors.Is(err, lambda.CodeThrottled):
			s.log.Warn("invoke failed", "err", err)
			return result, false
		}
		s.tally(func(st *Stats) { st.Throttles++ })
		wait := pause(try)
		if time.Since(received)+wait >= s.visibility {
			s.log.Warn("throttled for a whole visibility timeout, batch given back", "tries", try)
			return result, false
		}
		if !sleep(ctx, wait) {
			return result, false
		}
	}
}

// remove deletes messages, ten at a time.
func (s *Source) remove(ctx context.Context, done []message) {
	for len(done) > 0 {
		n := min(len(done), receiveMax)
		s.removeTen(ctx, done[:n])
		done = done[n:]
	}
}

func (s *Source) removeTen(ctx context.Context, done []message) {
	pending := make([]types.DeleteMessageBatchRequestEntry, len(done))
	for i, m := range done {
		pending[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(m.handle)}
	}
	for try := 1; len(pending) > 0 && try <= deleteTries; try++ {
		if try > 1 && !sleep(ctx, pause(try)) {
			return
		}
		out, err := s.deps.Queue.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(s.mapping.QueueURL), Entries: pending})
		if err != nil {
			s.log.Warn("delete failed", "err", err, "messages", len(pending))
			continue
		}
		s.tally(func(st *Stats) { st.Deleted += int64(len(out.Successful)) })
		var again []types.DeleteMessageBatchRequestEntry
		for _, f := range out.Failed {
			s.log.Warn("message not deleted", "code", aws.ToString(f.Code), "again", !f.SenderFault)
			if f.SenderFault {
				continue // a handle that SQS does not take will not get better
			}
			for _, e := range pending {
				if aws.ToString(e.Id) == aws.ToString(f.Id) {
					again = append(again, e)
				}
			}
		}
		pending = again
	}
}

// pause returns the n-th pause; there is none for 0.
func pause(n int) time.Duration {
	if n == 0 {
		return 0
	}
	d := pauseFirst
	for i := 1; i < n && d < pauseLast; i++ {
		d *= 2
	}
	return min(d, pauseLast)
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
