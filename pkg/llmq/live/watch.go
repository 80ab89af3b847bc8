package live

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/settings"
)

// readWithin bounds a look at the store: a call waits for it.
const readWithin = time.Second

// tryAgain is how soon a store that could not be read is read again, at most.
const tryAgain = 5 * time.Second

// Causes of which the last good one is kept.
const (
	CauseStore      = "store"      // it does not answer
	CauseUnreadable = "unreadable" // no document
	CauseNewer      = "newer"      // a newer release's
	CauseInvalid    = "invalid"    // this process's configuration does not take it
)

// Watch is what a process knows of live settings. T is what it makes of them. It is safe for concurrent use.
type Watch[T any] struct {
	load   func(context.Context) (State, error)
	every  time.Duration
	build  func(State) (T, error)
	failed func(cause string, err error)

	reading chan struct{} // capacity 1: a token for whoever reads
	known   atomic.Pointer[known[T]]
}

// NewWatch begins with first, which holds until the store was read. every is how old what is known may become. build makes a T of
// what is stored; where it can't, the last one stays. failed is told each time that the last good one stays.
func NewWatch[T any](s *Store, every time.Duration, first T, build func(State) (T, error), failed func(cause string, err error)) *Watch[T] {
	w := &Watch[T]{load: s.Load, every: every, build: build, failed: failed, reading: make(chan struct{}, 1)}
	w.known.Store(&known[T]{value: first})
	return w
}

// Now is what holds. Once in a while it asks the store, and its caller waits for that; others have what was known before
// meanwhile, but for the first time, when all wait.
func (w *Watch[T]) Now(ctx context.Context) T {
	k := w.known.Load()
	if time.Now().Round(0).Before(k.until) {
		return k.value
	}
	if k.until.IsZero() {
		select {
		case w.reading <- struct{}{}:
		case <-ctx.Done():
			return k.value
		}
	} else {
		select {
		case w.reading <- struct{}{}:
		default:
			return k.value
		}
	}
	defer func() { <-w.reading }()
	if k = w.known.Load(); time.Now().Round(0).Before(k.until) {
		return k.value // another has just read it
	}
	k = w.read(ctx, k)
	w.known.Store(k)
	return k.value
}

// Last is what was known last, without a look at the store.
func (w *Watch[T]) Last() T { return w.known.Load().value }

// read is what is known after a look at the store.
func (w *Watch[T]) read(ctx context.Context, before *known[T]) *known[T] {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin) // others have use for the answer too
	defer cancel()
	now := time.Now().Round(0) // on the wall clock: a frozen process's other one stands still
	st, err := w.load(ctx)
	after := *before
	after.until = now.Add(w.every)
	switch {
	case err != nil:
		after.until = now.Add(min(w.every, tryAgain))
		w.failed(CauseStore, err)
	case errors.Is(st.Err, settings.ErrNewer):
		w.failed(CauseNewer, st.Err)
	case st.Err != nil:
		w.failed(CauseUnreadable, st.Err)
	case before.built && st.change == before.change && st.Revision == before.revision:
	default:
		value, err := w.build(st)
		if err != nil {
			w.failed(CauseInvalid, err)
			break
		}
		after.value, after.revision, after.change, after.built = value, st.Revision, st.change, true
	}
	return &after
}

// known is a value, and until when it is taken without a question.
type known[T any] struct {
	value    T
	built    bool // of what is stored, by the two that follow
	revision int
	change   string
	until    time.Time // zero before the first look
}
