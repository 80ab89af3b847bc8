package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/forecast"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// foretold has so many bg calls wait for a rate of one a second, as of now.
func (r *rig) foretold(bg int) {
	r.t.Helper()
	r.Forecast = forecast.NewStore(r.space)
	var b luascript.Batch
	done, err := r.Forecast.Keep(&b, "m", forecast.Snapshot{
		TakenMS: time.Now().UnixMilli(), Waiting: map[llmq.Lane]int{llmq.LaneBG: bg}, Rates: forecast.Rates{RT: 1, Background: 1},
	}, forecast.Memory{})
	if err == nil {
		err = b.Run(r.t.Context(), r.valkey)
	}
	if err == nil {
		_, err = done()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func timed(i int, lane llmq.Lane, left time.Duration) llmq.Request {
	req := request()
	req.ID, req.Lane, req.Deadline = fmt.Sprintf("req-%d", i), lane, time.UnixMilli(time.Now().Add(left).UnixMilli())
	return req
}

// A16: each call is told how long those before it take, those that were sent since the snapshot among them, in the round
// trips that it makes anyway.
func TestDo_TellsWhenAQueuedCallStarts(t *testing.T) {
	t.Parallel()
	bubble(t, replies(time.Millisecond), func(t *testing.T, r *rig) {
		r.foretold(0)
		r.trips.Seen()
		for i := range 3 {
			reply := r.wantReply(timed(i, llmq.LaneRT, time.Minute))
			if reply.Meta.Eta == nil {
				t.Fatalf("call %d has no forecast", i)
			}
			if got, want := reply.Meta.Eta.Round(time.Second), time.Duration(i)*time.Second; got != want {
				t.Errorf("call %d starts in %s, want %s", i, got, want)
			}
		}
		if diff := cmp.Diff([]string{"evalsha", "hgetall"}, r.trips.Seen()[0]); diff != "" {
			t.Errorf("the first round trip (-want +got):\n%s", diff)
		}
		time.Sleep(forecast.MaxAge)
		if reply := r.wantReply(timed(9, llmq.LaneRT, time.Minute)); reply.Meta.Eta != nil {
			t.Errorf("forecast %s from an old snapshot", *reply.Meta.Eta)
		}
	})
}

// What is known of a call that is under way is no forecast of one that is sent now.
func TestDo_RepeatHasNoForecast(t *testing.T) {
	t.Parallel()
	bubble(t, replies(time.Millisecond), func(t *testing.T, r *rig) {
		r.foretold(5)
		if first := r.wantReply(request()); first.Meta.Eta == nil {
			t.Error("the first has no forecast")
		}
		if again := r.wantReply(request()); again.Meta.Eta != nil {
			t.Errorf("a repeat has the forecast %s", *again.Meta.Eta)
		}
	})
}

// A16, DS52: what can't start within twice the time that it has is refused before it is sent, and taken when it comes back as it was told.
func TestDo_RefusesWhatWouldStartTooLate(t *testing.T) {
	t.Parallel()
	bubble(t, replies(time.Millisecond), func(t *testing.T, r *rig) {
		r.foretold(100)
		e := r.failure(t.Context(), timed(1, llmq.LaneBG, 20*time.Second), llmq.CodeNoCapacity)
		if e.RetryAfter != 60*time.Second || e.Meta.Eta == nil || *e.Meta.Eta != 100*time.Second || e.Final {
			t.Errorf("refused with %+v, starts in %v", e, e.Meta.Eta)
		}
		r.want(0, 0)
		r.wantReply(timed(2, llmq.LaneBG, 50*time.Second)) // twice 50 s is enough
		r.wantReply(timed(3, llmq.LaneRT, 20*time.Second)) // rt is never refused
		time.Sleep(e.RetryAfter)
		r.wantReply(timed(1, llmq.LaneBG, 22*time.Second)) // two calls were sent since
		r.want(3, 3)
	})
}

// An error tells of the forecast too; a refused stream is refused at once.
func TestDo_ErrorsAndStreamsTellIt(t *testing.T) {
	t.Parallel()
	fails := func(r llmq.Request) *llmq.Result {
		return &llmq.Result{Err: &llmq.Error{Code: llmq.CodeProviderError, Message: "no", Meta: llmq.Meta{RequestID: r.ID, Lane: r.Lane}}}
	}
	bubble(t, fails, func(t *testing.T, r *rig) {
		r.foretold(100)
		if e := r.failure(t.Context(), timed(1, llmq.LaneBG, time.Minute), llmq.CodeProviderError); e.Meta.Eta == nil || *e.Meta.Eta != 100*time.Second {
			t.Errorf("error of a call that starts in %v", e.Meta.Eta)
		}
		req := timed(2, llmq.LaneBG, 5*time.Second)
		req.Stream, req.Body = true, []byte(`{"model":"m","stream":true}`)
		_, err := r.Stream(t.Context(), req)
		e, ok := errors.AsType[*llmq.Error](err)
		if !ok || e.Code != llmq.CodeNoCapacity || e.RetryAfter < 89*time.Second {
			t.Errorf("stream: %v", err)
		}
		req = timed(3, llmq.LaneBG, 90*time.Second)
		req.Stream, req.Body = true, []byte(`{"model":"m","stream":true}`)
		s, err := r.Stream(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if q, ok := s.(interface{ Eta() *time.Duration }); !ok || q.Eta() == nil || q.Eta().Round(time.Second) != 101*time.Second {
			t.Error("the stream does not tell it")
		}
		s.Close()
	})
}

// A caller whose wait ends first is told too.
func TestDo_WaitThatEndsTellsIt(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.foretold(10)
		if e := r.failure(t.Context(), timed(1, llmq.LaneBG, 20*time.Second), llmq.CodeExpired); e.Meta.Eta == nil || *e.Meta.Eta != 10*time.Second {
			t.Errorf("error %+v of a call that starts in %v", e, e.Meta.Eta)
		}
	})
}

func TestDo_UnreadableForecastIsNone(t *testing.T) {
	t.Parallel()
	bubble(t, replies(time.Millisecond), func(t *testing.T, r *rig) {
		r.foretold(1000)
		if err := r.valkey.HSet(t.Context(), r.space.Forecast("m").Snapshot, "snapshot", "{").Err(); err != nil {
			t.Fatal(err)
		}
		if reply := r.wantReply(timed(1, llmq.LaneBG, 5*time.Second)); reply.Meta.Eta != nil {
			t.Errorf("starts in %s", *reply.Meta.Eta)
		}
	})
}
