package eventsource

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

func TestRun_SettlesByTheReply(t *testing.T) {
	t.Parallel()
	all := []string{"h-m1", "h-m2", "h-m3"}
	tests := []struct {
		name    string
		ignores bool // ReportBatchItemFailures off
		result  lambda.Result
		err     error
		want    []string // handles deleted
	}{
		{name: "nothing listed", result: lambda.Result{Payload: []byte(`{"batchItemFailures":[]}`)}, want: all},
		{name: "one listed", result: lambda.Result{Payload: []byte(`{"batchItemFailures":[{"itemIdentifier":"m2"}]}`)}, want: []string{"h-m1", "h-m3"}},
		{name: "unknown id", result: lambda.Result{Payload: []byte(`{"batchItemFailures":[{"itemIdentifier":"m9"}]}`)}},
		{name: "invalid JSON", result: lambda.Result{Payload: []byte(`oops`)}},
		{name: "function error", result: lambda.Result{Payload: []byte(`{"errorType":"E"}`), FunctionError: "Unhandled"}},
		{name: "invoke fails", err: &lambda.Error{Code: lambda.CodeNotFound, Function: "worker"}},
		{name: "list ignored when not asked for", ignores: true, result: lambda.Result{Payload: []byte(`{"batchItemFailures":[{"itemIdentifier":"m2"}]}`)}, want: all},
		{name: "any reply when not asked for", ignores: true, result: lambda.Result{Payload: []byte(`oops`)}, want: all},
		{name: "function error when not asked for", ignores: true, result: lambda.Result{FunctionError: "Unhandled"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench()
				b.mapping.ReportBatchItemFailures = !tt.ignores
				b.invoke = func(context.Context, string, []byte) (lambda.Result, error) { return tt.result, tt.err }
				s, stop := b.start(t)
				b.arrive <- texts("m1", "m2", "m3")
				synctest.Wait()
				stop()
				if diff := cmp.Diff(append([]string{}, tt.want...), b.handles()); diff != "" {
					t.Error(diff)
				}
				if st := s.Stats(); st.Deleted != int64(len(tt.want)) || st.Kept != int64(3-len(tt.want)) {
					t.Errorf("stats %+v", st)
				}
			})
		})
	}
}

func TestRun_AsksForEverythingByLongPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		var asked atomic.Pointer[sqs.ReceiveMessageInput]
		b.queue.receive = func(ctx context.Context, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
			asked.Store(in)
			return b.receive(ctx, in)
		}
		_, stop := b.start(t)
		synctest.Wait()
		stop()
		in := asked.Load()
		if in.WaitTimeSeconds != 20 || in.MaxNumberOfMessages != 10 || in.MessageSystemAttributeNames[0] != "All" || in.MessageAttributeNames[0] != "All" {
			t.Errorf("got %+v", in)
		}
	})
}

func TestRun_ThrottleIsRetriedWithinTheVisibility(t *testing.T) {
	t.Parallel()
	throttled := &lambda.Error{Code: lambda.CodeThrottled, Function: "worker"}
	t.Run("until there is room", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			var tries atomic.Int64
			b.invoke = func(context.Context, string, []byte) (lambda.Result, error) {
				if tries.Add(1) < 4 {
					return lambda.Result{}, throttled
				}
				return lambda.Result{}, nil
			}
			s, stop := b.start(t)
			b.arrive <- texts("m1")
			time.Sleep(10 * time.Second)
			stop()
			if st := s.Stats(); st.Throttles != 3 || st.Deleted != 1 {
				t.Errorf("stats %+v", st)
			}
		})
	})
	t.Run("then given back", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			var last atomic.Int64
			begun := time.Now()
			b.invoke = func(context.Context, string, []byte) (lambda.Result, error) {
				last.Store(int64(time.Since(begun)))
				return lambda.Result{}, throttled
			}
			s, stop := b.start(t)
			b.arrive <- texts("m1")
			time.Sleep(time.Minute)
			stop()
			if st := s.Stats(); st.Kept != 1 || st.Deleted != 0 || st.Throttles < 5 {
				t.Errorf("stats %+v", st)
			}
			if at := time.Duration(last.Load()); at >= 30*time.Second || at < 15*time.Second {
				t.Errorf("last try after %v, want it well within the visibility timeout of 30s", at)
			}
		})
	})
}

func TestRun_FailingFunctionSlowsPollsOnlyWithoutItemFailures(t *testing.T) {
	t.Parallel()
	invokes := func(report bool) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			b.mapping.ReportBatchItemFailures, b.mapping.MaximumConcurrency = report, 2
			b.invoke = func(ctx context.Context, _ string, _ []byte) (lambda.Result, error) {
				sleep(ctx, 100*time.Millisecond)
				return lambda.Result{FunctionError: "Unhandled"}, nil
			}
			for range 1000 {
				b.arrive <- texts("m1")
			}
			s, stop := b.start(t)
			time.Sleep(30 * time.Second)
			stop()
			n = s.Stats().Invokes
		})
		return n
	}
	if with, without := invokes(true), invokes(false); with < 500 || without > 30 {
		t.Errorf("%d invokes with item failures, %d without; want about 600 and a handful", with, without)
	}
}

func TestRun_WindowGathersABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.mapping.BatchSize, b.mapping.Window, b.mapping.MaximumConcurrency = 25, 5*time.Second, 2
		b.tuning.Pollers = 1
		type call struct {
			at time.Duration
			n  int
		}
		var calls []call
		begun := time.Now()
		b.invoke = func(_ context.Context, _ string, event []byte) (lambda.Result, error) {
			calls = append(calls, call{time.Since(begun), records(event)})
			return lambda.Result{}, nil
		}
		b.queue.receive = func(ctx context.Context, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
			out, err := b.receive(ctx, in)
			if err == nil && len(out.Messages) > int(in.MaxNumberOfMessages) {
				t.Errorf("asked for %d messages", in.MaxNumberOfMessages)
			}
			return out, err
		}
		_, stop := b.start(t)
		b.arrive <- many("a", 10)
		b.arrive <- many("b", 10)
		b.arrive <- many("c", 5) // full: at once
		time.Sleep(10 * time.Second)
		b.arrive <- many("d", 3) // not full: when the window is over
		time.Sleep(10 * time.Second)
		stop()
		want := []call{{0, 25}, {15 * time.Second, 3}}
		if !slices.Equal(want, calls) {
			t.Errorf("got %v, want %v", calls, want)
		}
		if got := len(b.handles()); got != 28 {
			t.Errorf("%d deleted, want 28", got)
		}
	})
}

func TestRun_StopWaitsForRunningInvocations(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		takes   time.Duration
		deleted int
		ends    time.Duration
	}{
		{"that end in time", 4 * time.Second, 1, 4 * time.Second},
		{"but not for ever", time.Hour, 0, 10 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench()
				b.invoke = func(ctx context.Context, _ string, _ []byte) (lambda.Result, error) {
					if !sleep(ctx, tt.takes) {
						return lambda.Result{}, ctx.Err()
					}
					return lambda.Result{}, nil
				}
				_, stop := b.start(t)
				b.arrive <- texts("m1")
				synctest.Wait()
				begun := time.Now()
				stop()
				if got := time.Since(begun); got != tt.ends || len(b.handles()) != tt.deleted {
					t.Errorf("ended after %v with %d deleted, want %v and %d", got, len(b.handles()), tt.ends, tt.deleted)
				}
			})
		})
	}
}

func TestRun_ReceiveErrorsArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.mapping.MaximumConcurrency = 2
		var tries atomic.Int64
		b.queue.receive = func(ctx context.Context, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
			if tries.Add(1) <= 20 {
				return nil, errors.New("refused")
			}
			return b.receive(ctx, in)
		}
		_, stop := b.start(t)
		b.arrive <- texts("m1")
		time.Sleep(10 * time.Second)
		if n := tries.Load(); n > 16 {
			t.Errorf("%d receives in 10s of errors", n)
		}
		time.Sleep(5 * time.Minute)
		stop()
		if diff := cmp.Diff([]string{"h-m1"}, b.handles()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRun_DeleteIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		var calls []string
		b.queue.remove = func(in *sqs.DeleteMessageBatchInput) (*sqs.DeleteMessageBatchOutput, error) {
			var ids []string
			for _, e := range in.Entries {
				ids = append(ids, aws.ToString(e.ReceiptHandle))
			}
			calls = append(calls, strings.Join(ids, " "))
			switch len(calls) {
			case 1:
				return nil, errors.New("refused")
			case 2:
				return &sqs.DeleteMessageBatchOutput{
					Successful: []types.DeleteMessageBatchResultEntry{{Id: aws.String("0")}},
					Failed: []types.BatchResultErrorEntry{
						{Id: aws.String("1"), Code: aws.String("InternalError")},
						{Id: aws.String("2"), Code: aws.String("ReceiptHandleIsInvalid"), SenderFault: true},
					},
				}, nil
			}
			return b.remove(in)
		}
		s, stop := b.start(t)
		b.arrive <- texts("m1", "m2", "m3")
		time.Sleep(5 * time.Second)
		stop()
		if diff := cmp.Diff([]string{"h-m1 h-m2 h-m3", "h-m1 h-m2 h-m3", "h-m2"}, calls); diff != "" {
			t.Error(diff)
		}
		if st := s.Stats(); st.Deleted != 2 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestRun_UnreadableQueueIsAnError(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.queue.attributes = func(*sqs.GetQueueAttributesInput) (*sqs.GetQueueAttributesOutput, error) {
		return nil, &types.QueueDoesNotExist{}
	}
	s, err := New(b.mapping, b.tuning, Deps{Queue: b.queue, Invoker: b.invoke})
	if err != nil {
		t.Fatal(err)
	}
	var missing *types.QueueDoesNotExist
	if err := s.Run(t.Context()); !errors.As(err, &missing) {
		t.Errorf("got %v", err)
	}
}

func TestNew_RefusesWhatAWSRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		edit func(*Mapping, *Tuning)
		ok   bool
	}{
		{"as it is", func(*Mapping, *Tuning) {}, true},
		{"largest", func(m *Mapping, _ *Tuning) {
			m.BatchSize, m.Window, m.MaximumConcurrency = 10_000, 300*time.Second, 1000
		}, true},
		{"no function", func(m *Mapping, _ *Tuning) { m.Function = "" }, false},
		{"no batch", func(m *Mapping, _ *Tuning) { m.BatchSize = 0 }, false},
		{"batch over 10 without window", func(m *Mapping, _ *Tuning) { m.BatchSize = 11 }, false},
		{"window too long", func(m *Mapping, _ *Tuning) { m.Window = 301 * time.Second }, false},
		{"window of half a second", func(m *Mapping, _ *Tuning) { m.Window = 500 * time.Millisecond }, false},
		{"concurrency of 1", func(m *Mapping, _ *Tuning) { m.MaximumConcurrency = 1 }, false},
		{"concurrency of 1001", func(m *Mapping, _ *Tuning) { m.MaximumConcurrency = 1001 }, false},
		{"poll over 20s", func(_ *Mapping, u *Tuning) { u.PollWait = 21 * time.Second }, false},
		{"no pollers", func(_ *Mapping, u *Tuning) { u.Pollers = 0 }, false},
	}
	for _, tt := range tests {
		b := newBench()
		tt.edit(&b.mapping, &b.tuning)
		_, err := New(b.mapping, b.tuning, Deps{Queue: b.queue, Invoker: b.invoke})
		if (err == nil) != tt.ok {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
}
