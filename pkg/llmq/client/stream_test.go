package client_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

func streamed() llmq.Request {
	r := request()
	r.Body, r.Stream = []byte(`{"model":"m","stream":true}`), true
	return r
}

// speaker is a worker in the hands of a test.
type speaker struct {
	r     *rig
	req   llmq.Request
	claim claims.Claim
	said  string
}

func batch[T any](r *rig, add func(b *luascript.Batch) luascript.Pending[T]) T {
	r.t.Helper()
	var b luascript.Batch
	pending := add(&b)
	if err := b.Run(context.Background(), r.valkey); err != nil {
		r.t.Fatalf("run: %v", err)
	}
	got, err := pending()
	if err != nil {
		r.t.Fatalf("answer: %v", err)
	}
	return got
}

// speak takes the claim on a request.
func (r *rig) speak(req llmq.Request) *speaker {
	r.t.Helper()
	take := batch(r, func(b *luascript.Batch) luascript.Pending[claims.Take] {
		return r.claims.Take(b, req, claims.BodyHash(req), llmq.NewID())
	})
	if take.State != claims.Taken {
		r.t.Fatalf("take: %+v", take)
	}
	return &speaker{r: r, req: req, claim: take.Claim}
}

func (s *speaker) say(piece string) {
	s.r.t.Helper()
	if hold := batch(s.r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
		return s.r.claims.Append(b, s.claim, int64(len(s.said)), []byte(piece))
	}); hold != claims.Kept {
		s.r.t.Errorf("piece %q: %v", piece, hold)
	}
	s.said += piece
}

// end stores the reply, or an error.
func (s *speaker) end(body string, err *llmq.Error) claims.Hold {
	s.r.t.Helper()
	res := llmq.Result{RID: s.req.RID(), Tenant: s.req.Tenant, BodyHash: claims.BodyHash(s.req), Err: err}
	if err == nil {
		res.Reply = &llmq.Reply{Status: 200, ContentType: "text/event-stream", Stream: true, Body: []byte(body)}
	}
	stored, encodeErr := llmq.EncodeResult(res, nil)
	if encodeErr != nil {
		s.r.t.Fatal(encodeErr)
	}
	return batch(s.r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
		return s.r.claims.Finish(b, s.claim, stored, false)
	})
}

// told is what a reader of a stream has got.
type told struct {
	pieces []string
	err    error
	after  time.Duration // since its begin
}

// read reads a stream to its end, with a pause before each piece but the first.
func read(ctx context.Context, s llmq.Stream, pause time.Duration) told {
	defer s.Close()
	var got told
	begun := time.Now()
	for {
		piece, err := s.Next(ctx)
		if err != nil {
			got.err, got.after = err, time.Since(begun)
			return got
		}
		got.pieces = append(got.pieces, string(piece))
		if pause > 0 {
			time.Sleep(pause)
		}
	}
}

func (r *rig) stream(req llmq.Request) llmq.Stream {
	r.t.Helper()
	s, err := r.Stream(r.t.Context(), req)
	if err != nil {
		r.t.Fatalf("stream: %v", err)
	}
	return s
}

func (t told) text() string { return strings.Join(t.pieces, "") }

func codeOf(err error) llmq.Code {
	if e, ok := errors.AsType[*llmq.Error](err); ok {
		return e.Code
	}
	return ""
}

// A11, DS51: a reader gets the pieces as they come, what follows the last of them from the result, and the end.
func TestStream_PiecesThenTheRestThenTheEnd(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := streamed()
		s := r.stream(req)
		r.want(1, 0)
		done := make(chan told, 1)
		go func() { done <- read(t.Context(), s, 0) }()
		w := r.speak(req)
		synctest.Wait()
		w.say("a ")
		synctest.Wait()
		time.Sleep(time.Second)
		w.say("b ")
		synctest.Wait()
		w.end("a b c ", nil)
		got := <-done
		if strings.Join(got.pieces, "|") != "a |b |c " || !errors.Is(got.err, io.EOF) || got.after != time.Second {
			t.Errorf("told %+v", got)
		}
		again := read(t.Context(), r.stream(req), 0)
		if again.text() != "a b c " || !errors.Is(again.err, io.EOF) {
			t.Errorf("taken up after its end: %+v", again)
		}
		r.want(1, 0)
	})
}

// A22: the stored end of a stream that broke is its end for everybody, after what came of it.
func TestStream_ErrorAfterPieces(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := streamed()
		s := r.stream(req)
		w := r.speak(req)
		w.say("a ")
		w.end("", llmq.Errorf(llmq.CodeStreamBroken, "it broke off"))
		for i, s := range []llmq.Stream{s, r.stream(req)} {
			got := read(t.Context(), s, 0)
			e := llmq.AsError(got.err)
			if got.text() != "a " || e.Code != llmq.CodeStreamBroken || e.Final != (i == 1) {
				t.Errorf("reader %d: %+v", i, got)
			}
		}
	})
}

// A22: the death of a stream's owner is told when its lease ends, to the millisecond almost, and ends the request.
func TestStream_DeadOwnerIsNoticedWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := streamed()
		s := r.stream(req)
		time.Sleep(3 * time.Second)
		w := r.speak(req)
		w.say("a ")
		time.Sleep(10 * time.Second)
		batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
			return r.claims.Renew(b, w.claim, claims.Progress{}, false)
		})
		died := time.Now()
		got := read(t.Context(), s, 0)
		if took := time.Since(died); got.text() != "a " || codeOf(got.err) != llmq.CodeStreamBroken || took < claims.Lease || took > claims.Lease+time.Second {
			t.Errorf("told %+v after %v", got, took)
		}
		if hold := w.end("a b ", nil); hold != claims.Lost {
			t.Errorf("the dead owner stored its end: %v", hold)
		}
		if got := read(t.Context(), r.stream(req), 0); codeOf(got.err) != llmq.CodeStreamBroken {
			t.Errorf("taken up again: %+v", got)
		}
	})
}

// One whose owner died before it had said anything is for another worker to run: the reader waits.
func TestStream_DeadOwnerThatSaidNothing(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := streamed()
		s := r.stream(req)
		r.speak(req)
		done := make(chan told, 1)
		go func() { done <- read(t.Context(), s, 0) }()
		time.Sleep(claims.Lease + 5*time.Second)
		next := r.speak(req)
		next.say("b ")
		next.end("b ", nil)
		if got := <-done; got.text() != "b " || !errors.Is(got.err, io.EOF) {
			t.Errorf("told %+v", got)
		}
	})
}

// A reader whose patience ends may ask again: nothing is lost in between.
func TestStream_PatienceThatEndsLosesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := streamed()
		s := r.stream(req)
		defer s.Close()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if piece, err := s.Next(ctx); piece != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("next = %q, %v", piece, err)
			}
			cancel()
		}
		r.speak(req).say("a ")
		if piece, err := s.Next(t.Context()); string(piece) != "a " || err != nil {
			t.Errorf("next = %q, %v", piece, err)
		}
	})
}

// What came while the state store was away comes when it is back.
func TestStream_OutlastsASilentStore(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		req := streamed()
		begun := time.Now()
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
			if since := time.Since(begun); since > time.Second && since < 20*time.Second {
				return errors.New("connection refused")
			}
			return nil
		})
		s := r.stream(req)
		done := make(chan told, 1)
		go func() { done <- read(t.Context(), s, 0) }()
		w := r.speak(req)
		w.say("a ")
		time.Sleep(20 * time.Second)
		w.say("b ")
		w.end("a b ", nil)
		if got := <-done; got.text() != "a b " || !errors.Is(got.err, io.EOF) {
			t.Errorf("told %+v", got)
		}
	})
}

func TestStream_NothingComesPastTheDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		got := read(t.Context(), r.stream(streamed()), 0)
		if codeOf(got.err) != llmq.CodeExpired || got.after < 90*time.Second || got.after > 93*time.Second {
			t.Errorf("told %+v", got)
		}
	})
}

// A4: a JSON call and a stream are different requests, and one id stands for one of them.
func TestStream_IsAnotherRequestThanAJSONCall(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		r.wantReply(request())
		if _, err := r.Stream(t.Context(), streamed()); codeOf(err) != llmq.CodeIdempotencyMismatch {
			t.Errorf("stream under the id of a call: %v", err)
		}
		r.want(1, 1)
	})
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.stream(streamed()).Close()
		r.wantError(t.Context(), request(), llmq.CodeIdempotencyMismatch)
		r.want(1, 0)
	})
}

func TestStream_RefusesWhatItCanNotRun(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		for name, change := range map[string]func(*llmq.Request){
			"no stream": func(q *llmq.Request) { *q = request() }, "a body that asks for none": func(q *llmq.Request) { q.Body = request().Body },
			"a request that asks for none": func(q *llmq.Request) { q.Stream = false },
		} {
			req := streamed()
			change(&req)
			if _, err := r.Stream(t.Context(), req); codeOf(err) != llmq.CodeInvalidRequest {
				t.Errorf("%s: %v", name, err)
			}
		}
		req := streamed()
		req.Op = llmq.OpEmbeddings
		if _, err := r.Stream(t.Context(), req); codeOf(err) != llmq.CodeUnsupported {
			t.Errorf("of embeddings: %v", err)
		}
		r.want(0, 0)
	})
}

// A send that failed ends it at once, and leaves no subscription behind.
func TestStream_SendThatFails(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.sendErr = llmq.Errorf(llmq.CodeQueueUnavailable, "down").Because(queue.ErrNotSent)
		s, err := r.Stream(t.Context(), streamed())
		if codeOf(err) != llmq.CodeQueueUnavailable || s != nil {
			t.Errorf("stream = %v, %v", s, err)
		}
	})
}
