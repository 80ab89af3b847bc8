package engine

import (
	"context"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// A reply that is wanted while it comes is kept whole here, for the result, and passed on in pieces by the state store. Until
// its first content nothing is passed on, so that another target may still answer; from then on the run ends with it.

const (
	// passEvery is the least time between two pieces of a stream: a piece costs a script and a wake, and nobody
	// reads faster.
	passEvery = 20 * time.Millisecond
	// pieceBytes is what a piece has at most, where it is not one event that is larger.
	pieceBytes = 64 << 10
	// passWithin bounds one try to pass a piece on, and the last one once the reply has ended: the result has it too.
	passWithin = time.Second
)

// tape is what one attempt's reply has said so far. One goroutine writes it and one passes it on.
type tape struct {
	wake chan struct{} // capacity 1: there is something to pass on
	over chan struct{} // closed when the attempt has ended

	mu    sync.Mutex // guards all below
	body  []byte
	ends  []int // of the events in body that are not passed on
	sent  int   // bytes of body that are
	begun bool  // content has come
}

func newTape() *tape {
	return &tape{wake: make(chan struct{}, 1), over: make(chan struct{})}
}

// add is the attempt's [provider.Emit].
func (t *tape) add(event []byte, content bool) {
	t.mu.Lock()
	t.body = append(t.body, event...)
	t.ends = append(t.ends, len(t.body))
	t.begun = t.begun || content
	begun := t.begun
	t.mu.Unlock()
	if begun {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// hasBegun reports whether content has come. A nil tape has none.
func (t *tape) hasBegun() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun
}

// next is the piece to pass on next, and its offset. It is valid for good: what was written is never changed.
func (t *tape) next() (piece []byte, at int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun || len(t.ends) == 0 {
		return nil, t.sent
	}
	end := t.ends[0]
	for _, e := range t.ends {
		if e-t.sent > pieceBytes {
			break
		}
		end = e
	}
	return t.body[t.sent:end:end], t.sent
}

// passed notes how far the reply has been passed on, and reports whether a whole piece waits already.
func (t *tape) passed(to int) (more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = to
	n := 0
	for n < len(t.ends) && t.ends[n] <= to {
		n++
	}
	t.ends = t.ends[n:]
	return len(t.body)-to >= pieceBytes
}

// stream makes an attempt whose reply is passed on while it comes. It returns only when nothing is passed on any more.
func (r *run) stream(ctx context.Context, p provider.Provider, req provider.Request) (*provider.Response, error) {
	s, can := p.(provider.Streamer)
	if !can {
		return nil, &provider.Error{Class: provider.TargetFatal, Code: llmq.CodeUnsupported, Message: "the provider has no streams", Unsent: true}
	}
	req.Pace = provider.Pace{FirstContent: r.cfg.FirstContent, Stall: r.cfg.Stall}
	t := newTape()
	r.tape = t
	var passing sync.WaitGroup
	passing.Go(func() { r.passOn(context.WithoutCancel(ctx), t) })
	resp, err := s.Stream(ctx, req, t.add)
	close(t.over)
	passing.Wait()
	if err != nil {
		return nil, err
	}
	whole := *resp
	whole.Body = t.body // nobody writes it any more
	return &whole, nil
}

// passOn passes a reply on until the attempt has ended and all of it is passed on, or the claim is lost. Where the state
// store does not answer, the pieces wait: they are all in the tape.
func (r *run) passOn(ctx context.Context, t *tape) {
	for {
		select {
		case <-t.wake:
		case <-t.over:
		}
		for piece, at := t.next(); len(piece) > 0; piece, at = t.next() {
			wait := passEvery
			switch hold, err := r.keepPiece(ctx, int64(at), piece); {
			case err != nil:
				r.storeFailed("piece of a stream", err)
				if isClosed(t.over) {
					return
				}
				wait = passWithin
			case hold == claims.Lost:
				r.look() // what that means is the keeper's business
				return
			default:
				if hold == claims.Cancelled {
					r.look()
				}
				if t.passed(at + len(piece)) {
					wait = 0
				}
			}
			rest(t.over, wait)
		}
		if isClosed(t.over) {
			return
		}
	}
}

func (r *run) keepPiece(ctx context.Context, at int64, piece []byte) (claims.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, passWithin)
	defer cancel()
	var b luascript.Batch
	kept := r.Claims.Append(&b, r.claim, at, piece)
	if err := b.Run(ctx, r.Valkey); err != nil {
		return claims.Lost, err
	}
	return kept()
}

// brokeOff is the end of a request whose reply broke off after its caller had got a part of it. What the limiter is
// told is what the failure says; what it has cost nobody knows.
func (r *run) brokeOff(err error, code llmq.Code) *ending {
	came := outcomeOf(err)
	why := r.explain(came, err)
	why.Code, why.RetryAfter = code, 0
	why.Message = "the reply broke off: " + why.Message
	told := failed(came, err)
	told.Tokens = capacity.Unknown
	return &ending{result: llmq.Result{Err: why}, slot: told}
}

// endBroken ends a request whose last owner died when its caller had got a part of the reply (FEATURES A22). It reports
// false where none had been passed on.
func (r *run) endBroken(ctx context.Context) (Verdict, bool) {
	if !r.Request.Stream || r.claim.Takeovers == 0 && r.Request.Generation == 0 {
		return Verdict{}, false
	}
	var b luascript.Batch
	streamed := r.Claims.Streamed(&b, r.Request)
	err := b.Run(ctx, r.Valkey)
	if err == nil {
		var begun bool
		if begun, err = streamed(); err == nil && !begun {
			return Verdict{}, false
		}
	}
	if err != nil {
		// Not known, so not run: the claim lapses, and the next owner asks again.
		r.abandonSlot(ctx)
		return r.storeDown("look for a stream", err), true
	}
	return r.finish(ctx, llmq.Result{Err: claims.StreamBroken()}, cutOff()), true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// rest waits for d, or until over is closed.
func rest(over <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	}
}
