package eventsource

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

func (w *world) state(uuid string) State {
	w.t.Helper()
	info, err := w.mappings.Get(uuid)
	if err != nil {
		w.t.Fatal(err)
	}
	return info.State
}

func (w *world) create(enabled bool) string {
	w.t.Helper()
	info, err := w.mappings.Create(w.t.Context(), Mapping{Function: "worker", QueueARN: callsARN, ReportBatchItemFailures: true}, enabled)
	if err != nil {
		w.t.Fatal(err)
	}
	return info.UUID
}

func (w *world) update(uuid string, c Change) Info {
	w.t.Helper()
	info, err := w.mappings.Update(w.t.Context(), uuid, c)
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

func TestMappings_StatesOfALife(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		uuid := w.create(true)
		w.send("a")
		step := func(during, after State) {
			t.Helper()
			if got := w.state(uuid); got != during {
				t.Errorf("%s, want %s", got, during)
			}
			time.Sleep(DefaultOptions().Transition - time.Nanosecond)
			if got := w.state(uuid); got != during {
				t.Errorf("%s just before the end of %s", got, during)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if got := w.state(uuid); got != after {
				t.Errorf("%s, want %s", got, after)
			}
		}
		step(StateCreating, StateEnabled)
		w.once([]string{"a"}) // not before
		if at := w.invocations()[0].at; at != 3*time.Second {
			t.Errorf("delivered after %v", at)
		}
		w.update(uuid, Change{BatchSize: new(5)})
		step(StateUpdating, StateEnabled)
		w.update(uuid, Change{Enabled: new(false)})
		step(StateDisabling, StateDisabled)
		w.send("b")
		time.Sleep(time.Hour)
		if len(w.invocations()) != 1 || w.mappings.Source(uuid).Stats().Workers != 0 {
			t.Error("a disabled mapping works")
		}
		w.update(uuid, Change{BatchSize: new(7)})
		step(StateUpdating, StateDisabled)
		w.update(uuid, Change{Enabled: new(true)})
		step(StateEnabling, StateEnabled)
		w.once([]string{"a", "b"})
		if _, err := w.mappings.Delete(uuid); err != nil {
			t.Fatal(err)
		}
		if got := w.state(uuid); got != StateDeleting {
			t.Errorf("%s", got)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if _, err := w.mappings.Get(uuid); !errors.Is(err, CodeNotFound) || w.mappings.Source(uuid) != nil {
			t.Errorf("got %v, want it gone", err)
		}
	})
}

func TestMappings_CreatedDisabled(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		uuid := w.create(false)
		w.send("a")
		time.Sleep(time.Hour)
		if got := w.state(uuid); got != StateDisabled || len(w.invocations()) != 0 {
			t.Errorf("%s with %d invocations", got, len(w.invocations()))
		}
	})
}

func TestMappings_NoTransition(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", func(o *Options) { o.Transition = 0 }, func(t *testing.T, w *world) {
		uuid := w.create(true)
		synctest.Wait()
		w.update(uuid, Change{Enabled: new(false)})
		time.Sleep(pollGrace) // of the polls that had just begun
		synctest.Wait()
		if got := w.state(uuid); got != StateDisabled {
			t.Errorf("%s", got)
		}
	})
}

// What was before holds until the transition is over, so nobody can build a brake on an update.
func TestMappings_AnUpdateTakesItsTime(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", func(o *Options) { o.Transition = time.Minute }, func(t *testing.T, w *world) {
		w.on(slowly(time.Second))
		s := w.add(func(m *Mapping) { m.BatchSize, m.MaximumConcurrency = 1, 10 })
		w.send(numbered(1000)...)
		time.Sleep(10 * time.Second)
		info := w.update(w.mappings.List("", "")[0].UUID, Change{MaximumConcurrency: new(2)})
		if info.Mapping.MaximumConcurrency != 2 {
			t.Error("the answer does not show what was asked for")
		}
		time.Sleep(59*time.Second + time.Second/2)
		if got := s.Stats().Concurrency; got != 10 {
			t.Errorf("%d at once before the update is in force", got)
		}
		time.Sleep(3 * time.Second)
		if got := s.Stats().Concurrency; got != 2 {
			t.Errorf("%d at once after", got)
		}
	})
}

func TestMappings_OneChangeAtATime(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		uuid := w.create(true)
		_, update := w.mappings.Update(t.Context(), uuid, Change{BatchSize: new(5)})
		_, remove := w.mappings.Delete(uuid)
		for _, err := range []error{update, remove} {
			if !errors.Is(err, CodeInUse) {
				t.Errorf("got %v", err)
			}
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		w.update(uuid, Change{BatchSize: new(5)})
	})
}

// Disabling lets running invocations end, however long they take, and settles them.
func TestMappings_DisablingDrains(t *testing.T) {
	t.Parallel()
	inWorld(t, "900", nil, func(t *testing.T, w *world) {
		w.on(slowly(10 * time.Minute))
		w.add(nil)
		w.send("a")
		synctest.Wait()
		uuid := w.mappings.List("", "")[0].UUID
		w.update(uuid, Change{Enabled: new(false)})
		w.send("b") // still polled for: the transition has only begun
		time.Sleep(9 * time.Minute)
		if got := w.state(uuid); got != StateDisabling {
			t.Errorf("%s while an invocation runs", got)
		}
		w.send("c")
		time.Sleep(10 * time.Minute)
		if visible, hidden := w.left(); w.state(uuid) != StateDisabled || visible != "1" || hidden != "0" {
			t.Errorf("%s, %s visible, %s hidden", w.state(uuid), visible, hidden)
		}
	})
}

func TestMappings_LoadSurvivesPausesAndUpdates(t *testing.T) {
	t.Parallel()
	inWorld(t, "120", nil, func(t *testing.T, w *world) {
		bodies := numbered(1500)
		w.on(slowly(time.Second))
		w.add(func(m *Mapping) { m.MaximumConcurrency = 10 })
		uuid := w.mappings.List("", "")[0].UUID
		go func() {
			for i := 0; i < len(bodies); i += 50 {
				w.send(bodies[i : i+50]...)
				time.Sleep(time.Second)
			}
		}()
		for _, c := range []Change{
			{MaximumConcurrency: new(2)},
			{Enabled: new(false)},
			{Enabled: new(true), BatchSize: new(1)},
			{MaximumConcurrency: new(50)},
			{BatchSize: new(100), Window: new(2 * time.Second)},
			{Enabled: new(false)},
			{Enabled: new(true)},
			{Function: new("other")},
		} {
			time.Sleep(7500 * time.Millisecond)
			w.update(uuid, c)
		}
		time.Sleep(time.Hour)
		w.once(bodies)
	})
}

func TestMappings_Refusals(t *testing.T) {
	t.Parallel()
	inWorld(t, "29", nil, func(t *testing.T, w *world) {
		tests := []struct {
			name string
			edit func(*Mapping)
			code Code
			text string
		}{
			{"visibility below the function's timeout", func(*Mapping) {}, CodeInvalid, "Queue visibility timeout: 29 seconds is less than Function timeout: 30 seconds"},
			{"unknown function", func(m *Mapping) { m.Function = "nobody" }, CodeInvalid, "Function does not exist"},
			{"unknown alias", func(m *Mapping) { m.Function = "arn:aws:lambda:us-east-1:000000000000:function:worker:live" }, CodeInvalid, "Function does not exist"},
			{"no function", func(m *Mapping) { m.Function = "" }, CodeInvalid, "Function does not exist"},
			{"unknown queue", func(m *Mapping) { m.QueueARN += "2" }, CodeInvalid, "Error occurred while ReceiveMessage. SQS Error Code: AWS.SimpleQueueService.NonExistentQueue. SQS Error Message: The specified queue does not exist."},
			{"stream", func(m *Mapping) { m.QueueARN = "arn:aws:kinesis:us-east-1:000000000000:stream/s" }, CodeInvalid, "Unrecognized event source."},
			{"FIFO queue", func(m *Mapping) { m.QueueARN += ".fifo" }, CodeInvalid, "FIFO queues are not supported by this Lambda."},
			{"batch without window", func(m *Mapping) { m.BatchSize = 11 }, CodeInvalid, "Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than 10"},
			{"batch too large", func(m *Mapping) { m.BatchSize = 10_001 }, CodeValidation, "1 validation error detected: Value '10001' at 'batchSize' failed to satisfy constraint: Member must have value less than or equal to 10000"},
			{"window too long", func(m *Mapping) { m.Window = 301 * time.Second }, CodeValidation, "1 validation error detected: Value '301' at 'maximumBatchingWindowInSeconds' failed to satisfy constraint: Member must have value less than or equal to 300"},
			{"concurrency of 1", func(m *Mapping) { m.MaximumConcurrency = 1 }, CodeValidation, "1 validation error detected: Value '1' at 'scalingConfig.maximumConcurrency' failed to satisfy constraint: Member must have value greater than or equal to 2"},
		}
		for _, tt := range tests {
			m := Mapping{Function: "worker", QueueARN: callsARN}
			tt.edit(&m)
			_, err := w.mappings.Create(t.Context(), m, true)
			var e *Error
			if !errors.As(err, &e) || e.Code != tt.code || e.Message != tt.text {
				t.Errorf("%s: got %v", tt.name, err)
			}
		}
		if got := w.mappings.List("", ""); len(got) != 0 {
			t.Errorf("%d mappings", len(got))
		}
	})
}

func TestMappings_SecondOfAPairIsAConflict(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		uuid := w.create(true)
		_, err := w.mappings.Create(t.Context(), Mapping{Function: "arn:aws:lambda:us-east-1:000000000000:function:worker", QueueARN: callsARN}, true)
		want := `eventsource: ResourceConflictException: An event source mapping with SQS arn (" ` + callsARN + ` ") and function (" worker ") already exists. ` +
			`Please update or delete the existing mapping with UUID ` + uuid
		if err == nil || err.Error() != want {
			t.Errorf("got %v", err)
		}
		if _, err := w.mappings.Create(t.Context(), Mapping{Function: "other", QueueARN: callsARN}, true); err != nil {
			t.Error(err)
		}
		if got := w.mappings.List("worker", ""); len(got) != 1 || got[0].UUID != uuid {
			t.Errorf("got %v", got)
		}
	})
}

func TestMappings_CloseIsTheEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		w.on(func(ctx context.Context, _ events.SQSEvent) (any, error) {
			<-ctx.Done() // longer than anyone waits
			return nil, ctx.Err()
		})
		s := w.add(nil)
		w.send("a")
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		w.mappings.Close(ctx)
		if d := time.Since(began); d != 4*time.Second || s.Stats().Workers != 0 {
			t.Errorf("closed after %v with %d workers", d, s.Stats().Workers)
		}
		uuid := w.mappings.List("", "")[0].UUID
		_, update := w.mappings.Update(t.Context(), uuid, Change{BatchSize: new(5)})
		_, create := w.mappings.Create(t.Context(), Mapping{Function: "other", QueueARN: callsARN}, true)
		for _, err := range []error{update, create} {
			if !errors.Is(err, CodeService) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// Published is what CloudWatch would show: nothing before EventCount is asked for.
func TestMappings_EventCountIsPublishedWhenAskedFor(t *testing.T) {
	t.Parallel()
	inWorld(t, "60", nil, func(t *testing.T, w *world) {
		w.on(func(_ context.Context, e events.SQSEvent) (any, error) {
			if e.Records[0].Body == "throttled" && e.Records[0].Attributes["ApproximateReceiveCount"] == "1" && len(w.invocations()) == 2 {
				return nil, &lambda.Error{Code: lambda.CodeThrottled, Function: "worker"}
			}
			return failures(), nil
		})
		s := w.add(nil)
		w.send("a")
		time.Sleep(time.Second)
		w.update(w.mappings.List("", "")[0].UUID, Change{EventCount: new(true)})
		time.Sleep(4 * time.Second)
		w.send("throttled")
		time.Sleep(time.Second)
		st := s.Stats()
		if diff := cmp.Diff(EventCounts{Polled: 2, Invoked: 3, FailedInvoke: 1, Deleted: 2}, st.EventCounts); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(EventCounts{Polled: 1, Invoked: 2, FailedInvoke: 1, Deleted: 1}, st.Published); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNewMappings_RefusesWhatItCannotRun(t *testing.T) {
	t.Parallel()
	edits := []func(*Options){
		func(o *Options) { o.Region = "" },
		func(o *Options) { o.AccountID = "" },
		func(o *Options) { o.Queue = nil },
		func(o *Options) { o.Invoker = nil },
		func(o *Options) { o.Transition = -1 },
		func(o *Options) { o.Tuning.Pollers = 0 },
	}
	for i, edit := range slices.Insert(edits, 0, func(*Options) {}) {
		o := DefaultOptions()
		o.Region, o.AccountID, o.Queue, o.Invoker = "us-east-1", "000000000000", sqsClient(nil), fakeInvoker(nil)
		edit(&o)
		if _, err := NewMappings(o); (err == nil) != (i == 0) {
			t.Errorf("%d: got %v", i, err)
		}
	}
}
