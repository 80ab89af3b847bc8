package eventsource

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// pollGrace is how long a poll that has just begun may take to end by itself when polls are to end: messages may be on
// their way, and hanging up would hide them for a visibility timeout. One that waits longer waits in vain. It is long for a
// server on the same machine, but the machine may be busy.
const pollGrace = time.Second

// poll is a receive.
type poll struct {
	mapping Mapping // to receive by
	began   time.Time
	ctx     context.Context // its life is this receive
	cancel  context.CancelFunc
	ended   bool // the source hung up; that is no fault
}

// beginLocked registers a poll before it is made, under the lock that its mapping was read under: an update, a fault or an
// end either is seen by whoever asked for the poll or sees the poll.
func (s *Source) beginLocked(work context.Context) *poll {
	p := &poll{mapping: s.mapping, began: time.Now()}
	p.ctx, p.cancel = context.WithCancel(work)
	s.polls[p] = struct{}{}
	return p
}

// endPollsLocked has the polls under way end soon.
func (s *Source) endPollsLocked() {
	for p := range s.polls {
		if left := pollGrace - time.Since(p.began); left > 0 {
			time.AfterFunc(left, p.cancel)
		} else {
			p.cancel()
		}
	}
}

// receive makes a poll, which it ends.
func (s *Source) receive(p *poll, wait time.Duration, n int) ([]message, error) {
	defer func() {
		p.cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.polls, p)
	}()
	out, err := s.deps.Queue.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{
		QueueUrl:                    aws.String(p.mapping.QueueURL),
		MaxNumberOfMessages:         int32(n),                  // at most 10
		WaitTimeSeconds:             int32(wait / time.Second), // at most 20
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		MessageAttributeNames:       []string{"All"},
	})
	if err != nil {
		if p.ended = p.ctx.Err() != nil; !p.ended {
			s.log.Warn("receive failed", "err", err)
			s.tally(func(st *Stats) { st.PollErrors++ })
		}
		return nil, err //nolint:wrapcheck // it has been dealt with
	}
	received := time.Now()
	s.tally(func(st *Stats) {
		for _, m := range out.Messages {
			n, _ := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)]) // SQS says it of each
			st.MostReceives = max(st.MostReceives, n)
		}
	})
	messages := make([]message, 0, len(out.Messages))
	for _, m := range out.Messages {
		msg, err := newMessage(m, p.mapping, received)
		if err != nil {
			s.log.Error("message left in the queue", "err", err) // can't happen with what SQS lets in
			continue
		}
		messages = append(messages, msg)
	}
	return messages, nil
}

// gather receives further messages until the batch is full, by number or size, or its window is over. The window is kept to
// the second, as that is how receives wait; one that has begun is not cut short, since its messages might be lost to view.
// It is over as well when the mapping changes or the source ends: what is there is delivered then.
func (s *Source) gather(ctx, work context.Context, m Mapping, messages []message) []message {
	if m.Window == 0 {
		return messages
	}
	size := 0
	for _, msg := range messages {
		size += len(msg.record) + 1
	}
	over := messages[0].received.Add(m.Window)
	for len(messages) < m.BatchSize && size < maxEventBytes {
		left := time.Until(over).Round(time.Second)
		if left <= 0 {
			break
		}
		p := s.more(ctx, work, m)
		if p == nil {
			break
		}
		more, err := s.receive(p, min(left, maxPollWait), min(m.BatchSize-len(messages), receiveMax))
		if err != nil {
			break
		}
		s.countPoll(len(more))
		for _, msg := range more {
			size += len(msg.record) + 1
		}
		messages = append(messages, more...)
	}
	return messages
}

// more begins a poll for a batch that is not full; nil if there is to be none.
func (s *Source) more(ctx, work context.Context, m Mapping) *poll {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || s.fault.Hang || s.mapping != m {
		return nil
	}
	return s.beginLocked(work)
}

func (s *Source) countPoll(got int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countPollLocked(got)
}
