package eventsource

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// slowly lets each invocation take its time.
func slowly(d time.Duration) func(context.Context, events.SQSEvent) (any, error) {
	return func(ctx context.Context, _ events.SQSEvent) (any, error) {
		sleep(ctx, d)
		return failures(), nil
	}
}

// once reports messages that were not delivered exactly once.
func (w *world) once(bodies []string) {
	w.t.Helper()
	var got []string
	for _, c := range w.invocations() {
		got = append(got, c.ids...)
	}
	slices.Sort(got)
	if !slices.Equal(bodies, got) {
		w.t.Errorf("%d deliveries of %d messages, or not the same", len(got), len(bodies))
	}
	if visible, hidden := w.left(); visible+hidden != "00" {
		w.t.Errorf("%s visible and %s hidden are left", visible, hidden)
	}
}

func (w *world) concurrency(s *Source, n int) {
	w.t.Helper()
	m := s.Mapping()
	m.MaximumConcurrency = n
	if err := s.Update(m); err != nil {
		w.t.Fatal(err)
	}
}

// Under full load the concurrency follows the mapping down and up, and no message is lost or delivered twice.
func TestUpdate_ConcurrencyUnderLoad(t *testing.T) {
	t.Parallel()
	inWorld(t, "300", nil, func(t *testing.T, w *world) {
		bodies := numbered(1300)
		w.send(bodies...)
		w.on(slowly(2 * time.Second))
		s := w.add(func(m *Mapping) { m.BatchSize, m.MaximumConcurrency = 1, 20 })
		running := func(want int) {
			t.Helper()
			time.Sleep(20*time.Second + 30*time.Millisecond) // beside the tenths at which invocations begin and end
			if got := s.Stats().Concurrency; got != want {
				t.Errorf("%d at once, want %d", got, want)
			}
		}
		running(20)
		w.concurrency(s, 3)
		time.Sleep(2*time.Second + pollGrace) // those that run may end
		for range 20 {
			if got := s.Stats().Concurrency; got > 3 {
				t.Errorf("%d at once after the bound was lowered to 3", got)
			}
			time.Sleep(500 * time.Millisecond)
		}
		running(3)
		w.concurrency(s, 50)
		running(50)
		time.Sleep(10 * time.Minute)
		w.once(bodies)
		if got := s.Stats(); got.PeakConcurrency != 50 || got.Workers != 5 {
			t.Errorf("stats %+v", got)
		}
	})
}

// Batch size, window and the reading of replies change between one batch and the next.
func TestUpdate_BatchesFollow(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", func(o *Options) { o.Tuning.Pollers = 1 }, func(t *testing.T, w *world) {
		s := w.add(func(m *Mapping) { m.MaximumConcurrency = 2 })
		sizes := func() (n []int) {
			for _, c := range w.invocations() {
				n = append(n, len(c.ids))
			}
			slices.Sort(n)
			return n
		}
		w.send(numbered(10)...)
		time.Sleep(time.Second)
		m := s.Mapping()
		m.BatchSize = 5
		if err := s.Update(m); err != nil {
			t.Fatal(err)
		}
		w.send(numbered(10)...)
		time.Sleep(time.Second)
		if diff := cmp.Diff([]int{5, 5, 10}, sizes()); diff != "" {
			t.Error(diff)
		}
		w.on(func(context.Context, events.SQSEvent) (any, error) { return "oops", nil })
		m.ReportBatchItemFailures = false
		if err := s.Update(m); err != nil {
			t.Fatal(err)
		}
		w.send("x")
		time.Sleep(10 * time.Minute)
		if visible, hidden := w.left(); visible+hidden != "00" {
			t.Errorf("%s visible and %s hidden are left", visible, hidden)
		}
	})
}

func TestUpdate_QueueStays(t *testing.T) {
	t.Parallel()
	b := newBench()
	s, err := New(b.mapping, b.tuning, Deps{Queue: b.queue, Invoker: b.invoke})
	if err != nil {
		t.Fatal(err)
	}
	other := b.mapping
	other.QueueURL += "2"
	if s.Update(other) == nil {
		t.Error("another queue was taken")
	}
	other = b.mapping
	other.BatchSize = 0
	if s.Update(other) == nil || s.Mapping() != b.mapping {
		t.Error("a bad mapping was taken")
	}
}

// An idle poll is hung up at once; it has nothing on its way.
func TestUpdate_IdlePollsDoNotHoldItUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		s, stop := b.start(t)
		time.Sleep(5 * time.Second)
		m := b.mapping
		m.MaximumConcurrency = 2
		if err := s.Update(m); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := s.Stats(); got.Workers != 2 || got.PollErrors != 0 {
			t.Errorf("stats %+v", got)
		}
		began := time.Now()
		time.Sleep(time.Second)
		stop()
		if d := time.Since(began); d != time.Second {
			t.Errorf("the end took %v", d-time.Second)
		}
	})
}

// A poll that has just begun may have an answer on its way, and that is not given up.
func TestRun_EndLeavesAPollTheTimeToAnswer(t *testing.T) {
	t.Parallel()
	inWorld(t, "900", nil, func(t *testing.T, w *world) {
		queue := &slowQueue{queueDirectory: w.queue, answers: pollGrace / 2}
		m := Mapping{Function: "worker", QueueURL: w.url, QueueARN: callsARN, Region: "us-east-1", BatchSize: 10}
		s, err := New(m, DefaultTuning(), Deps{Queue: queue, Invoker: w.mappings.opts.Invoker})
		if err != nil {
			t.Fatal(err)
		}
		w.send(numbered(30)...)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait() // the answers are on their way
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		w.once(numbered(30))
	})
}

// slowQueue has the answers of receives travel for a while.
type slowQueue struct {
	queueDirectory
	answers time.Duration
}

func TestFault_Hang(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		s := w.add(nil)
		s.SetFault(Fault{Hang: true})
		time.Sleep(time.Minute) // a poll that was under way has ended
		w.send("a")
		time.Sleep(time.Hour)
		if visible, hidden := w.left(); visible != "1" || hidden != "0" {
			t.Errorf("%s visible, %s hidden; want it untouched", visible, hidden)
		}
		s.SetFault(Fault{})
		synctest.Wait()
		w.once([]string{"a"})
	})
}

func TestFault_DelayAndRefuse(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		s := w.add(nil)
		s.SetFault(Fault{Delay: 5 * time.Second})
		w.send("a")
		time.Sleep(10 * time.Second)
		if got := w.invocations(); len(got) != 1 || got[0].at != 5*time.Second {
			t.Errorf("got %v", got)
		}
		s.SetFault(Fault{Refuse: true})
		w.send("b")
		time.Sleep(30 * time.Second)
		if got := s.Stats(); len(w.invocations()) != 1 || got.Throttles == 0 {
			t.Errorf("%d invocations, stats %+v", len(w.invocations()), got)
		}
		s.SetFault(Fault{})
		time.Sleep(2 * time.Minute)
		w.once([]string{"a", "b"})
	})
}

// A function that fails as a whole costs its mapping concurrency, and gets it back when it succeeds.
func TestBackOff_FailuresTakeConcurrencyAway(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		report bool
		err    error
		backs  bool
	}{
		{"function error", false, errors.New("no"), true},
		{"function error with item failures on", true, errors.New("no"), false},
		{"throttle", true, &lambda.Error{Code: lambda.CodeThrottled, Function: "worker"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, "30", nil, func(t *testing.T, w *world) {
				began := time.Now()
				w.on(func(ctx context.Context, _ events.SQSEvent) (any, error) {
					sleep(ctx, time.Second)
					if since := time.Since(began); since > 20*time.Second && since < 2*time.Minute {
						return nil, tt.err
					}
					return failures(), nil
				})
				s := w.add(func(m *Mapping) { m.BatchSize, m.MaximumConcurrency, m.ReportBatchItemFailures = 1, 20, tt.report })
				w.send(numbered(1600)...)
				workers := func(at time.Duration) int {
					time.Sleep(time.Until(began.Add(at)))
					return s.Stats().Workers
				}
				before, during, after := workers(20*time.Second), workers(115*time.Second), workers(180*time.Second)
				want := 20
				if tt.backs {
					want = 2
				}
				if before != 20 || during != want || after != 20 {
					t.Errorf("%d, %d, %d workers before, during and after; want 20, %d, 20", before, during, after, want)
				}
			})
		})
	}
}

func (q *slowQueue) ReceiveMessage(ctx context.Context, in *awssqs.ReceiveMessageInput, opts ...func(*awssqs.Options)) (*awssqs.ReceiveMessageOutput, error) {
	out, err := q.queueDirectory.ReceiveMessage(ctx, in, opts...)
	if err == nil && !sleep(ctx, q.answers) {
		return nil, ctx.Err() // the caller hung up on it
	}
	return out, err
}
