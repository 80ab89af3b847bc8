package client_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

func (r *rig) submit(req llmq.Request) llmq.Call {
	r.t.Helper()
	call, err := r.Submit(r.t.Context(), req)
	if err != nil {
		r.t.Fatalf("submit: %v", err)
	}
	return call
}

// find fails unless the call stands so.
func (r *rig) find(id string, want llmq.State) llmq.Call {
	r.t.Helper()
	call, err := r.Find(r.t.Context(), "team", id)
	if err != nil || call.State != want || call.ID != id {
		r.t.Fatalf("find = %+v, %v; want %s", call, err, want)
	}
	return call
}

// A9, A10, E10, DS54, DS55: submitted, queued, done; sent once, however often it is submitted; its end is there for 24 h.
func TestSubmit_IsSentOnceAndKeptForADay(t *testing.T) {
	t.Parallel()
	bubble(t, replies(2*time.Second), func(t *testing.T, r *rig) {
		req := request()
		call := r.submit(req)
		if call.State != llmq.StateQueued || !call.Deadline.Equal(req.Deadline) || call.Created.IsZero() {
			t.Errorf("submitted: %+v", call)
		}
		time.Sleep(time.Second)
		r.find(req.ID, llmq.StateRunning)
		again := req
		again.Deadline = req.Deadline.Add(time.Hour)
		if call := r.submit(again); call.State != llmq.StateRunning || !call.Deadline.Equal(req.Deadline) {
			t.Errorf("submitted again: %+v", call)
		}
		begun := time.Now()
		call, err := r.Wait(t.Context(), "team", req.ID)
		if err != nil || call.State != llmq.StateDone || string(call.Reply.Body) != `{"for":"req-1"}` || call.Attempts != 1 || time.Since(begun) != time.Second {
			t.Errorf("waited %s for %+v, %v", time.Since(begun), call, err)
		}
		r.mini.FastForward(23*time.Hour + 59*time.Minute) // it counts lives itself
		if call := r.find(req.ID, llmq.StateDone); string(call.Reply.Body) != `{"for":"req-1"}` {
			t.Errorf("a day later: %+v", call)
		}
		r.mini.FastForward(2 * time.Minute)
		if _, err := r.Find(t.Context(), "team", req.ID); err == nil {
			t.Error("its end is there for longer")
		}
		r.want(1, 1)
	})
}

// A10: another body under the id is refused, whether it was submitted or came over a queue.
func TestSubmit_AnotherBodyIsRefused(t *testing.T) {
	t.Parallel()
	bubble(t, replies(time.Minute), func(t *testing.T, r *rig) {
		req := request()
		r.submit(req)
		req.Body = []byte(`{"model":"m","x":1}`)
		if _, err := r.Submit(t.Context(), req); !errors.Is(err, llmq.CodeIdempotencyMismatch) {
			t.Errorf("got %v", err)
		}
		theirs := request()
		theirs.ID = "theirs"
		r.speak(theirs).end("x", nil)
		theirs.Body = req.Body
		if _, err := r.Submit(t.Context(), theirs); !errors.Is(err, llmq.CodeIdempotencyMismatch) {
			t.Errorf("got %v", err)
		}
	})
}

// A9: nobody waits who could be served here, so a queue that takes nothing is an error to come back after.
func TestSubmit_QueueDownIsUnavailable(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.sendErr = llmq.Errorf(llmq.CodeQueueUnavailable, "down").Because(queue.ErrRefused)
		_, err := r.Submit(t.Context(), request())
		e := llmq.AsError(err)
		if !errors.Is(err, llmq.CodeQueueUnavailable) || e.RetryAfter == 0 || e.Meta.RequestID != "req-1" {
			t.Errorf("got %+v", e)
		}
		r.sendErr = nil
		r.submit(request())
		r.want(1, 0)
	})
}

// A9, KT6, DS55: what nobody knows, what is another tenant's, and what is no id.
func TestFind_OfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.submit(request())
		for _, tc := range []struct {
			tenant, id string
			want       llmq.Code
		}{
			{"team", "unknown", llmq.CodeCallNotFound},
			{"other", "req-1", llmq.CodeCallNotFound},
			{"team", "a b", llmq.CodeInvalidRequest},
			{"", "req-1", llmq.CodeInvalidRequest},
		} {
			_, found := r.Find(t.Context(), tc.tenant, tc.id)
			_, waited := r.Wait(t.Context(), tc.tenant, tc.id)
			_, withdrawn := r.Withdraw(t.Context(), tc.tenant, tc.id)
			_, followed := r.Follow(t.Context(), tc.tenant, tc.id, 0)
			for _, err := range []error{found, waited, withdrawn, followed} {
				if codeOf(err) != tc.want {
					t.Errorf("%q of %q: %v, want %s", tc.id, tc.tenant, err, tc.want)
				}
			}
		}
		r.find("req-1", llmq.StateQueued) // the other tenant has withdrawn nothing
		if r.mini.Exists(r.space.Call("team", llmq.NewRID("team", "unknown")).Claim) {
			t.Error("looking for an id has left a trace")
		}
	})
}

// A9: each way to end, and what is told of it.
func TestFind_EachEnd(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		submitted := func(id string) *speaker {
			t.Helper()
			req := request()
			req.ID = id
			r.submit(req)
			return r.speak(req)
		}
		want := func(id string, state llmq.State, code llmq.Code) {
			t.Helper()
			if call := r.find(id, state); call.Err == nil || call.Err.Code != code || !call.Err.Final || call.Reply != nil {
				t.Errorf("%s: %+v", id, call)
			}
		}
		submitted("failed").end("", llmq.Errorf(llmq.CodeProviderError, "no"))
		want("failed", llmq.StateFailed, llmq.CodeProviderError)

		s := submitted("dead")
		batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
			res := llmq.Result{RID: s.req.RID(), Tenant: "team", Err: llmq.Errorf(llmq.CodeWorkerCrash, "five")}
			stored, err := llmq.EncodeResult(res, nil)
			if err != nil {
				t.Fatal(err)
			}
			return r.claims.Bury(b, s.claim, stored)
		})
		want("dead", llmq.StateDead, llmq.CodeWorkerCrash)

		s = submitted("told")
		call, err := r.Withdraw(t.Context(), "team", "told")
		if err != nil || call.State != llmq.StateCancelled {
			t.Errorf("withdrawn: %+v, %v", call, err)
		}
		want("told", llmq.StateCancelled, llmq.CodeCancelled) // it still runs, and nothing else can come of it
		if hold := s.end("x", nil); hold != claims.Cancelled {
			t.Errorf("its owner stores: %v", hold)
		}

		deferred := submitted("deferred")
		batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
			return r.claims.Defer(b, deferred.claim, 30*time.Second, claims.Progress{Attempts: 2})
		})
		if call := r.find("deferred", llmq.StateQueued); call.Attempts != 2 || time.Until(call.Next) <= 29*time.Second {
			t.Errorf("deferred: %+v", call)
		}

		submitted("gone").end("x", nil)
		r.mini.Del(r.space.Call("team", llmq.NewRID("team", "gone")).Result)
		if _, err := r.Find(t.Context(), "team", "gone"); codeOf(err) != llmq.CodeResultExpired {
			t.Errorf("a done mark without a result: %v", err)
		}

		req := request()
		req.ID = "late"
		r.submit(req)
		submitted("begun")
		time.Sleep(93 * time.Second)
		want("late", llmq.StateExpired, llmq.CodeExpired)
		want("begun", llmq.StateFailed, llmq.CodeTimeout) // its worker has died over it

		if call, err := r.Withdraw(t.Context(), "team", "dead"); err != nil || call.State != llmq.StateCancelled {
			t.Errorf("a dead one, which might be sent again: %+v, %v", call, err)
		}
	})
}

// A5, A9: withdrawn once for all, and what has ended stays as it is.
func TestWithdraw_QueuedAndOver(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := request()
		r.submit(req)
		waited := make(chan llmq.Call, 1)
		go func() {
			call, _ := r.Wait(t.Context(), "team", req.ID)
			waited <- call
		}()
		time.Sleep(time.Second)
		for range 2 {
			if call, err := r.Withdraw(t.Context(), "team", req.ID); err != nil || call.State != llmq.StateCancelled {
				t.Errorf("withdrawn: %+v, %v", call, err)
			}
		}
		if call := <-waited; call.State != llmq.StateCancelled {
			t.Errorf("its waiter: %+v", call)
		}
		done := request()
		done.ID = "done"
		r.submit(done)
		r.speak(done).end("data: x\n\n", nil)
		if call, err := r.Withdraw(t.Context(), "team", "done"); err != nil || call.State != llmq.StateDone || call.Reply != nil {
			t.Errorf("withdrawn after its end: %+v, %v", call, err)
		}
		r.find("done", llmq.StateDone)
	})
}

// A9: a wait that is too short tells where the call stands, and is no error.
func TestWait_TooShort(t *testing.T) {
	t.Parallel()
	bubble(t, replies(time.Minute), func(t *testing.T, r *rig) {
		r.submit(request())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		call, err := r.Wait(ctx, "team", "req-1")
		if err != nil || call.State != llmq.StateRunning || time.Since(begun) != 5*time.Second {
			t.Errorf("after %s: %+v, %v", time.Since(begun), call, err)
		}
	})
}

// A11, A22: a stream is taken up by its id where another reader had come, while it comes and after its end.
func TestFollow_FromAnOffset(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := streamed()
		r.submit(req)
		s := r.speak(req)
		s.say("data: a\n\n")
		follow := func(at int64) llmq.Stream {
			t.Helper()
			f, err := r.Follow(t.Context(), "team", req.ID, at)
			if err != nil {
				t.Fatalf("follow from %d: %v", at, err)
			}
			return f
		}
		from0, from9 := follow(0), follow(9)
		if _, err := r.Follow(t.Context(), "team", req.ID, 10); codeOf(err) != llmq.CodeInvalidRequest {
			t.Errorf("from where it has not come: %v", err)
		}
		s.say("data: b\n\n")
		s.end("data: a\n\ndata: b\n\ndata: c\n\n", nil)
		if got := read(t.Context(), from0, 0); got.text() != "data: a\n\ndata: b\n\ndata: c\n\n" || !errors.Is(got.err, io.EOF) {
			t.Errorf("from 0: %+v", got)
		}
		if got := read(t.Context(), from9, 0); got.text() != "data: b\n\ndata: c\n\n" || !errors.Is(got.err, io.EOF) {
			t.Errorf("from 9: %+v", got)
		}
		r.mini.Del(r.space.Call("team", req.RID()).Stream) // past what is kept
		for at, want := range map[int64]string{18: "data: c\n\n", 27: ""} {
			if got := read(t.Context(), follow(at), 0); got.text() != want || !errors.Is(got.err, io.EOF) {
				t.Errorf("from %d, of the result: %+v", at, got)
			}
		}
		if _, err := r.Follow(t.Context(), "team", req.ID, 28); codeOf(err) != llmq.CodeInvalidRequest {
			t.Errorf("from behind its end: %v", err)
		}
	})
}

// A11: a call that is passed on as a whole has no events, an error is the stream's, and a producer's call has no record.
func TestFollow_OfOtherCalls(t *testing.T) {
	t.Parallel()
	bubble(t, replies(time.Second), func(t *testing.T, r *rig) {
		r.submit(request())
		f, err := r.Follow(t.Context(), "team", "req-1", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t.Context(), f, 0); got.text() != "" || !errors.Is(got.err, io.EOF) {
			t.Errorf("a JSON call: %+v", got)
		}
		theirs := streamed()
		theirs.ID = "theirs"
		s := r.speak(theirs)
		s.say("data: a\n\n")
		if f, err = r.Follow(t.Context(), "team", "theirs", 0); err != nil {
			t.Fatal(err)
		}
		s.end("", llmq.Errorf(llmq.CodeStreamBroken, "broken"))
		if got := read(t.Context(), f, 0); got.text() != "data: a\n\n" || codeOf(got.err) != llmq.CodeStreamBroken {
			t.Errorf("a producer's: %+v", got)
		}
	})
}
