package sqs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// unavailable words why a request failed, with what that says of the queue as a whole.
func unavailable(doing string, q queue.Name, err error) error {
	if says := fault(err); says != nil {
		err = fmt.Errorf("%w: %w", says, err)
	}
	return llmq.Errorf(llmq.CodeQueueUnavailable, "the queue can't be reached").Because(fmt.Errorf("%s %s: %w", doing, q, err))
}

// fault is nil where the message, its queue or our rights are at fault, which no wait mends.
func fault(err error) error {
	var timed net.Error
	if errors.Is(err, context.Canceled) {
		return nil // the caller left
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil // this process, or its machine, has no connection left
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timed) && timed.Timeout() {
		return queue.ErrUnanswered
	}
	if told, ok := errors.AsType[smithy.APIError](err); ok {
		answer, ok := errors.AsType[*smithyhttp.ResponseError](err)
		if _, throttles := retry.DefaultThrottleErrorCodes[told.ErrorCode()]; throttles || told.ErrorCode() == "OverLimit" || ok && answer.HTTPStatusCode() >= http.StatusInternalServerError {
			return queue.ErrRefused
		}
		return nil
	}
	if _, ok := errors.AsType[*smithyhttp.RequestSendError](err); ok {
		return queue.ErrRefused
	}
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && answer.HTTPStatusCode() >= http.StatusInternalServerError {
		return queue.ErrRefused // by something before SQS, whose words are none of its
	}
	return nil
}
