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

// deleteTries bounds how often a delete is tried. A message that is not deleted comes back; the function must bear it.
const deleteTries = 3

// outcome is how an invocation ended.
type outcome int

const (
	succeeded outcome = iota
	failed            // the function ran and failed, or can't be invoked at all
	throttled         // it did not run for want of concurrency
)

// deliver invokes the function with a batch and deletes what is done. It is false if that is a reason to poll less.
func (s *Source) deliver(ctx context.Context, batch []message) bool {
	sleep(ctx, s.currentFault().Delay)
	m, ok := s.enter(ctx)
	if !ok {
		s.keepAll(batch)
		return true
	}
	result, how := s.invoke(ctx, m, batch)
	s.exit()
	// With ReportBatchItemFailures on, AWS does not slow its polls when a function fails. So neither do we: a function that
	// fails messages without hiding them makes a hot loop, here as there.
	slower := how == throttled || !m.ReportBatchItemFailures
	if how != succeeded {
		s.keepAll(batch)
		return !slower
	}
	var keep map[string]bool
	if m.ReportBatchItemFailures {
		var err error
		if keep, err = kept(result.Payload, batch); err != nil {
			s.log.Warn("whole batch kept", "err", err, "request_id", result.RequestID, "messages", len(batch))
			s.count(func(c *EventCounts) { c.FailedInvoke += int64(len(batch)) })
			s.keepAll(batch)
			return !slower
		}
	}
	done := make([]message, 0, len(batch))
	for _, msg := range batch {
		if !keep[msg.id] {
			done = append(done, msg)
		}
	}
	left := int64(len(batch) - len(done))
	s.tally(func(st *Stats) { st.Kept += left })
	s.count(func(c *EventCounts) { c.FailedInvoke += left })
	s.remove(ctx, m, done)
	return true
}

// keepAll counts a batch of which nothing is deleted.
func (s *Source) keepAll(batch []message) {
	s.tally(func(st *Stats) { st.Failures++; st.Kept += int64(len(batch)) })
}

// invoke runs the function. A throttle is tried again while the messages are ours: up to their visibility timeout.
func (s *Source) invoke(ctx context.Context, m Mapping, batch []message) (lambda.Result, outcome) {
	payload, n := event(batch), int64(len(batch))
	visibility := time.Duration(-1)
	for try := 1; ; try++ {
		s.tally(func(st *Stats) { st.Invokes++ })
		s.count(func(c *EventCounts) { c.Invoked += n })
		result, err := s.call(ctx, m, payload)
		if err == nil && result.FunctionError == "" {
			s.recovered()
			return result, succeeded
		}
		s.count(func(c *EventCounts) { c.FailedInvoke += n })
		if err == nil {
			s.log.Warn("function failed", "error_type", result.ErrorType, "request_id", result.RequestID)
			return result, failed
		}
		if !errors.Is(err, lambda.CodeThrottled) {
			s.log.Warn("invoke failed", "err", err)
			return result, failed
		}
		s.tally(func(st *Stats) { st.Throttles++ })
		wait := pause(try)
		s.backOff(wait)
		if visibility < 0 {
			if visibility, err = s.visibility(ctx); err != nil {
				s.log.Warn("throttled batch given back", "err", err)
				return result, throttled
			}
		}
		if time.Since(batch[0].received)+wait >= visibility {
			s.log.Warn("throttled for a whole visibility timeout, batch given back", "tries", try)
			return result, throttled
		}
		if !sleep(ctx, wait) {
			return result, throttled
		}
	}
}

// call invokes the function once.
func (s *Source) call(ctx context.Context, m Mapping, payload []byte) (lambda.Result, error) {
	if s.currentFault().Refuse {
		return lambda.Result{}, &lambda.Error{Code: lambda.CodeThrottled, Function: m.Function, Reason: "refused by a fault"}
	}
	return s.deps.Invoker.Invoke(ctx, m.Function, payload, lambda.InvokeOptions{}) //nolint:wrapcheck // the caller logs it as such
}

// remove deletes messages, ten at a time. A handle that is no longer valid, because the function has deleted its message
// itself or because the message came back meanwhile, is no matter.
func (s *Source) remove(ctx context.Context, m Mapping, done []message) {
	for len(done) > 0 {
		n := min(len(done), receiveMax)
		s.removeTen(ctx, m, done[:n])
		done = done[n:]
	}
}

func (s *Source) removeTen(ctx context.Context, m Mapping, done []message) {
	pending := make([]types.DeleteMessageBatchRequestEntry, len(done))
	for i, msg := range done {
		pending[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(msg.handle)}
	}
	for try := 1; len(pending) > 0 && try <= deleteTries; try++ {
		if try > 1 && !sleep(ctx, pause(try)) {
			return
		}
		out, err := s.deps.Queue.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(m.QueueURL), Entries: pending})
		if err != nil {
			s.log.Warn("delete failed", "err", err, "messages", len(pending))
			continue
		}
		s.count(func(c *EventCounts) { c.Deleted += int64(len(out.Successful)) })
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
