package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeHost keeps what it is given.
type fakeHost struct {
	refuse error // while it is not nil

	mu     sync.Mutex
	events []events.CloudWatchEvent
	raw    []string
}

func (h *fakeHost) InvokeAsync(name string, payload []byte, _ lambda.InvokeOptions) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		return "", h.refuse
	}
	var e events.CloudWatchEvent
	if err := json.Unmarshal(payload, &e); err != nil || name != "governor" {
		return "", errors.Join(err, errors.New("wrong function "+name))
	}
	h.events, h.raw = append(h.events, e), append(h.raw, string(payload))
	return "id", nil
}

func (h *fakeHost) Invoke(_ context.Context, name string, payload []byte, _ lambda.InvokeOptions) (lambda.Result, error) {
	if _, err := h.InvokeAsync(name, payload, lambda.InvokeOptions{}); err != nil {
		return lambda.Result{}, err
	}
	return lambda.Result{Payload: []byte("done")}, nil
}

func (h *fakeHost) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse = err
}

// got returns the events that were taken.
func (h *fakeHost) got() []events.CloudWatchEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// payloads returns them as they came.
func (h *fakeHost) payloads() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.raw)
}

func options(h *fakeHost) Options {
	return Options{Name: "llmq-governor", Function: "governor", Every: time.Minute, Region: "us-east-1", AccountID: "000000000000", Invoker: h}
}

// inBubble runs a schedule while a test does.
func inBubble(t *testing.T, edit func(*Options), test func(*testing.T, *Schedule, *fakeHost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHost{}
		o := options(h)
		if edit != nil {
			edit(&o)
		}
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		test(t, s, h)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestRun_EveryMinuteFromTheFirst(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *Schedule, h *fakeHost) {
		began := time.Now()
		time.Sleep(10*time.Minute + time.Second) // bubble time
		if len(h.got()) != 11 {
			t.Fatalf("%d events in ten minutes", len(h.got()))
		}
		ids := map[string]bool{}
		for i, e := range h.got() {
			if want := began.Add(time.Duration(i) * time.Minute); !e.Time.Equal(want) {
				t.Errorf("event %d is of %v, want %v", i, e.Time, want)
			}
			ids[e.ID] = true
		}
		if len(ids) != 11 {
			t.Errorf("%d ids", len(ids))
		}
		if diff := cmp.Diff(Stats{Due: 11, Accepted: 11}, s.Stats()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRun_EventIsSchedulers(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, _ *Schedule, h *fakeHost) {
		synctest.Wait()
		want := `{"version":"0","id":"` + h.got()[0].ID + `","detail-type":"Scheduled Event","source":"aws.scheduler","account":"000000000000",` +
			`"time":"2000-01-01T00:00:00Z","region":"us-east-1","resources":["arn:aws:scheduler:us-east-1:000000000000:schedule/default/llmq-governor"],"detail":"{}"}`
		if diff := cmp.Diff(want, h.payloads()[0]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRun_InputWithItsPlaces(t *testing.T) {
	t.Parallel()
	input := `{"id":"<aws.scheduler.execution-id>","time":"<aws.scheduler.scheduled-time>","n":"<aws.scheduler.attempt-number>","arn":"<aws.scheduler.schedule-arn>"}`
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHost{}
		o := options(h)
		o.Input = input
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := `{"id":"` + h.got()[0].ID + `","time":"2000-01-01T00:00:00Z","n":"1","arn":"arn:aws:scheduler:us-east-1:000000000000:schedule/default/llmq-governor"}`
		if diff := cmp.Diff(want, h.payloads()[0]); diff != "" || h.got()[0].ID == "" {
			t.Error(diff)
		}
	})
}

// The schedule does not wait for the host: while one event is refused, the next are due.
func TestRun_RefusedEventIsTriedAgainBesideTheNext(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *Schedule, h *fakeHost) {
		h.set(&lambda.Error{Code: lambda.CodeThrottled, Function: "governor"})
		time.Sleep(2*time.Minute + time.Second)
		h.set(nil)
		time.Sleep(5 * time.Minute)
		var times []string
		for _, e := range h.got() {
			times = append(times, e.Time.Format("04:05"))
		}
		if len(times) < 8 || s.Stats().Refused < 3 || s.Stats().Dropped != 0 {
			t.Errorf("events of %v, %+v", times, s.Stats())
		}
	})
}

func TestRun_EventForNobodyIsDropped(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *Schedule, h *fakeHost) {
		synctest.Wait()
		h.set(&lambda.Error{Code: lambda.CodeNotFound, Function: "governor"})
		time.Sleep(time.Minute + time.Second)
		if diff := cmp.Diff(Stats{Due: 2, Refused: 1, Dropped: 1, Accepted: 1}, s.Stats()); diff != "" {
			t.Error(diff)
		}
	})
}

// After a day an event is given up.
func TestRun_EventIsGivenUpAfterADay(t *testing.T) {
	t.Parallel()
	inBubble(t, func(o *Options) { o.Every = 1000 * time.Hour }, func(t *testing.T, s *Schedule, h *fakeHost) {
		synctest.Wait()
		h.set(&lambda.Error{Code: lambda.CodeThrottled, Function: "governor"})
		time.Sleep(1000*time.Hour + 30*time.Hour)
		st := s.Stats()
		if st.Dropped != 1 || st.Refused > maxAttempts || st.Refused < 150 {
			t.Errorf("got %+v", st)
		}
	})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *Schedule, h *fakeHost) {
		s.SetFault(Fault{Twice: true})
		time.Sleep(time.Minute + time.Second)
		if n := len(h.got()); n < 3 || h.got()[n-1].ID != h.got()[n-2].ID {
			t.Errorf("%d events; want the last two to be one and the same", n)
		}
		before := len(h.got())
		s.SetFault(Fault{Miss: true})
		time.Sleep(10 * time.Minute)
		if len(h.got()) != before {
			t.Errorf("%d events while all are missed", len(h.got())-before)
		}
		s.SetFault(Fault{})
		time.Sleep(time.Minute)
		if len(h.got()) != before+1 {
			t.Error("it does not go on")
		}
	})
}

func TestNow_WaitsForTheReply(t *testing.T) {
	t.Parallel()
	h := &fakeHost{}
	s, err := New(options(h))
	if err != nil {
		t.Fatal(err)
	}
	result, err := s.Now(t.Context())
	if err != nil || string(result.Payload) != "done" || len(h.got()) != 1 {
		t.Errorf("got %q, %v", result.Payload, err)
	}
	h.refuse = &lambda.Error{Code: lambda.CodeThrottled, Function: "governor"}
	if _, err := s.Now(t.Context()); !errors.Is(err, lambda.CodeThrottled) {
		t.Errorf("got %v", err)
	}
}

func TestNew_RefusesWhatItCannotRun(t *testing.T) {
	t.Parallel()
	edits := []func(*Options){
		func(*Options) {},
		func(o *Options) { o.Name = "" },
		func(o *Options) { o.Function = "" },
		func(o *Options) { o.Region = "" },
		func(o *Options) { o.AccountID = "" },
		func(o *Options) { o.Invoker = nil },
		func(o *Options) { o.Every = 0 },
		func(o *Options) { o.Input = "{" },
	}
	for i, edit := range edits {
		o := options(&fakeHost{})
		edit(&o)
		if _, err := New(o); (err == nil) != (i == 0) {
			t.Errorf("%d: got %v", i, err)
		}
	}
}
