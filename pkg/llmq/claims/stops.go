package claims

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/pubsub"
)

const (
	// stopsWithin bounds how long the end of a session waits for the server.
	stopsWithin = 500 * time.Millisecond
	// stopsAsk is how long after a subscription stands those ask that had begun before, for what was said in
	// between. The first subscription of a process is often a little later than its first take; who has
	// ended by then need not ask.
	stopsAsk = 25 * time.Millisecond
)

// Stops tells a process which of its runs are cancelled. One subscription serves all of them: it
// stands only while something runs, since a Lambda's process is frozen between calls, and its
// connection is kept. Nothing waits for it: a word that was missed is told by the next renewal.
//
// A Stops is safe for concurrent use. The zero value is not usable.
type Stops struct {
	client  redis.UniversalClient
	worker  string
	channel string
	spare   pubsub.Spare // between sessions

	mu      sync.Mutex        // guards all below
	runs    map[string]*Watch // by owner
	session *stopSession      // nil while nothing runs
}

// NewStops is one process's.
func NewStops(client redis.UniversalClient, space keys.Space) *Stops {
	worker := strings.TrimPrefix(llmq.NewID(), "req_")
	return &Stops{client: client, worker: worker, channel: space.Stop(worker), runs: map[string]*Watch{}}
}

// Owner makes a unique owner for a take, by which a cancellation finds this process.
func (s *Stops) Owner() string { return s.worker + "/" + strings.TrimPrefix(llmq.NewID(), "req_") }

// Watch is one run that wants to be told.
type Watch struct {
	stops *Stops
	owner string
	stop  func()
	look  func()
	begun time.Time    // when its claim was taken; zero before; guarded by stops.mu
	over  *stopSession // the session that ends with it; guarded by stops.mu
}

// Watch begins to listen for a cancellation of what owner runs, and returns at once. stop is called when
// one comes; look is called when one may have been missed: the claim then tells.
// Neither may block. The caller must call [Watch.Close].
func (s *Stops) Watch(owner string, stop, look func()) *Watch {
	w := &Watch{stops: s, owner: owner, stop: stop, look: look}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[owner] = w
	if s.session == nil {
		s.session = newStopSession(s)
	}
	return w
}

// Begun says that the claim has been taken.
func (w *Watch) Begun() {
	w.stops.mu.Lock()
	defer w.stops.mu.Unlock()
	w.begun = time.Now()
}

// Leave ends the watch without waiting, so that what the last one has to say to the server
// travels beside what its run has. It is idempotent.
func (w *Watch) Leave() {
	s := w.stops
	s.mu.Lock()
	var last *stopSession
	if s.runs[w.owner] == w {
		delete(s.runs, w.owner)
		if len(s.runs) == 0 {
			last, s.session = s.session, nil
			w.over = last
		}
	}
	s.mu.Unlock()
	if last != nil {
		last.end()
	}
}

// Close is Leave, and returns when nothing of what ended with it is left.
func (w *Watch) Close() {
	w.Leave()
	w.stops.mu.Lock()
	over := w.over
	w.over = nil
	w.stops.mu.Unlock()
	if over != nil {
		over.wait()
	}
}

// Close drops the connection that is kept for the next run. No watch may be left.
func (s *Stops) Close() error { return s.spare.Close() }

// tell passes a word on to the run that it is for.
func (s *Stops) tell(owner string) {
	s.mu.Lock()
	w := s.runs[owner]
	s.mu.Unlock()
	if w != nil {
		w.stop()
	}
}

// missed makes those look that began before the subscription stood.
func (s *Stops) missed(stood time.Time) {
	s.mu.Lock()
	var looks []func()
	for _, w := range s.runs {
		if !w.begun.IsZero() && w.begun.Before(stood) {
			looks = append(looks, w.look)
		}
	}
	s.mu.Unlock()
	for _, look := range looks {
		look()
	}
}

// stopSession is the life of the subscription while something runs.
type stopSession struct {
	stops  *Stops
	sub    *redis.PubSub
	ending atomic.Bool
	quiet  chan struct{} // closed by listen when it ends
	clean  atomic.Bool   // the server has confirmed that no subscription is left
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newStopSession(s *Stops) *stopSession {
	ctx, cancel := context.WithCancel(context.Background())
	x := &stopSession{stops: s, sub: s.spare.Take(ctx, s.client), quiet: make(chan struct{}), ctx: ctx, cancel: cancel}
	x.done.Go(func() { defer close(x.quiet); x.listen(ctx) })
	return x
}

// end asks the server to end the subscription.
func (x *stopSession) end() {
	x.ending.Store(true)
	x.done.Go(func() {
		ctx, cancel := context.WithTimeout(x.ctx, stopsWithin)
		defer cancel()
		context.AfterFunc(ctx, x.cancel)            // also ends a dial that holds the library's lock
		_ = x.sub.Unsubscribe(ctx, x.stops.channel) // listen sees whether it is confirmed
		select {
		case <-x.quiet:
		case <-ctx.Done():
		}
		x.cancel()
		if !x.clean.Load() {
			_ = x.sub.Close() // ends a read under way; nothing is left to be told
		}
	})
}

// wait returns when the session has ended, and keeps its connection where it is clean.
func (x *stopSession) wait() {
	x.done.Wait()
	if x.clean.Load() {
		x.stops.spare.Keep(x.sub)
	}
}

func (x *stopSession) listen(ctx context.Context) {
	if x.sub.Subscribe(ctx, x.stops.channel) != nil && ctx.Err() != nil {
		return
	}
	// A failed one is made up for when the library connects anew, on the next receive.
	for ctx.Err() == nil {
		msg, err := x.sub.Receive(ctx)
		switch m := msg.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				stood := time.Now()
				x.done.Go(func() {
					if rest(ctx, stopsAsk) {
						x.stops.missed(stood)
					}
				})
			}
			if m.Count == 0 && x.ending.Load() {
				x.clean.Store(true)
				return
			}
		case *redis.Message:
			x.stops.tell(m.Payload)
		}
		if err != nil && x.ending.Load() {
			return
		}
		if err != nil {
			rest(ctx, 100*time.Millisecond)
		}
	}
}

// rest reports whether it rested for d: false when ctx ended first.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
