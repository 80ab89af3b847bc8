package sqstest

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func moveChecks() []check {
	return []check{
		{name: "back to the source, as a new message", run: func(s *suite) {
			url, dead, sent, _ := poison(s)
			s.holds(dead, "1")
			source := s.arn(dead)
			s.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: &source})
			m := s.one(url, waiting(20))
			if *m.MessageId == *sent.MessageId || m.Attributes["ApproximateReceiveCount"] != "1" || *m.Body != "poison" {
				s.Errorf("moved message %+v", m)
			}
			task := s.move(source, "COMPLETED")
			if task.ApproximateNumberOfMessagesMoved != 1 || aws.ToInt64(task.ApproximateNumberOfMessagesToMove) != 1 ||
				task.TaskHandle != nil || task.DestinationArn != nil || task.StartedTimestamp == 0 {
				s.Errorf("task %+v", task)
			}
		}},
		{name: "to another queue", run: func(s *suite) {
			_, dead, _, _ := poison(s)
			s.holds(dead, "1")
			other := s.queue()
			s.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: aws.String(s.arn(dead)), DestinationArn: aws.String(s.arn(other))})
			s.one(other, waiting(20))
		}},
		{name: "one at a time", run: func(s *suite) {
			source, in := slowMove(s)
			started := s.startMove(in)
			_, err := s.client.StartMessageMoveTask(s.Context(), in)
			s.code(err, "InvalidParameterValue")
			if task := s.move(source, "RUNNING"); aws.ToString(task.TaskHandle) != *started.TaskHandle ||
				aws.ToInt32(task.MaxNumberOfMessagesPerSecond) != 1 || aws.ToString(task.DestinationArn) != *in.DestinationArn {
				s.Errorf("task %+v", task)
			}
		}},
		{name: "keeps to its rate", run: func(s *suite) {
			_, in := slowMove(s)
			began := time.Now()
			s.startMove(in)
			s.eventually("moved", func() (any, bool) {
				pause(3 * time.Second)
				task := s.latest(*in.SourceArn)
				limit := int64(time.Since(began)/time.Second) + 1
				return task, task.ApproximateNumberOfMessagesMoved >= 1 && task.ApproximateNumberOfMessagesMoved <= limit
			})
		}},
		{name: "can be cancelled, once", run: func(s *suite) {
			source, in := slowMove(s)
			started := s.startMove(in)
			cancel := func() error {
				_, err := s.client.CancelMessageMoveTask(s.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: started.TaskHandle})
				return err
			}
			if err := cancel(); err != nil {
				s.Fatal(err)
			}
			s.move(source, "CANCELLED")
			if err := cancel(); err == nil {
				s.Fatal("a cancelled task was cancelled again")
			}
		}},
		{name: "a source that is nobody's dead-letter queue", run: func(s *suite) {
			_, err := s.client.StartMessageMoveTask(s.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(s.arn(s.queue()))})
			s.code(err, "InvalidParameterValue")
		}},
		{name: "a source or a destination that is not there", run: func(s *suite) {
			source, in := slowMove(s)
			_, err := s.client.StartMessageMoveTask(s.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(source + "-none-such")})
			typed[*types.ResourceNotFoundException](s, err)
			in.DestinationArn = aws.String(*in.DestinationArn + "-none-such")
			_, err = s.client.StartMessageMoveTask(s.Context(), in)
			typed[*types.ResourceNotFoundException](s, err)
		}},
		{name: "a rate over 500", run: func(s *suite) {
			_, in := slowMove(s)
			in.MaxNumberOfMessagesPerSecond = aws.Int32(501)
			_, err := s.client.StartMessageMoveTask(s.Context(), in)
			s.code(err, "InvalidParameterValue")
		}},
		{name: "a handle that is none", run: func(s *suite) {
			_, err := s.client.CancelMessageMoveTask(s.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: aws.String("nonsense")})
			s.code(err, "InvalidParameterValue")
		}},
	}
}

// slowMove makes a dead-letter queue with ten messages, and the request to move them elsewhere, one a second.
func slowMove(s *suite) (source string, in *sqs.StartMessageMoveTaskInput) {
	s.Helper()
	dead := s.queue()
	s.queue("RedrivePolicy", s.redrive(dead, "1"))
	for range 10 { // no batch: whether those work is another row's
		s.send(dead, "x")
	}
	s.holds(dead, "10")
	source = s.arn(dead)
	return source, &sqs.StartMessageMoveTaskInput{
		SourceArn: &source, DestinationArn: aws.String(s.arn(s.queue())), MaxNumberOfMessagesPerSecond: aws.Int32(1),
	}
}

func (s *suite) startMove(in *sqs.StartMessageMoveTaskInput) *sqs.StartMessageMoveTaskOutput {
	s.Helper()
	out, err := s.client.StartMessageMoveTask(s.Context(), in)
	if err != nil {
		s.Fatalf("start a move task: %v", err)
	}
	return out
}

// latest returns the latest task of a source.
func (s *suite) latest(source string) types.ListMessageMoveTasksResultEntry {
	s.Helper()
	out, err := s.client.ListMessageMoveTasks(s.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: &source})
	if err != nil || len(out.Results) != 1 {
		s.Fatalf("list move tasks: %+v, %v", out, err)
	}
	return out.Results[0]
}

// move waits until the latest task of a source has a status, and returns it.
func (s *suite) move(source, status string) types.ListMessageMoveTasksResultEntry {
	s.Helper()
	deadline := time.Now().Add(5*time.Second + s.Lag)
	for {
		task := s.latest(source)
		if aws.ToString(task.Status) == status {
			return task
		}
		if time.Now().After(deadline) {
			s.Fatalf("the task is %s, want %s", aws.ToString(task.Status), status)
		}
		pause(50 * time.Millisecond)
	}
}
