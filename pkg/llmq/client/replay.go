package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

const (
	// replayEvery is how often a cancellation is tried again that the state store did not hear.
	replayEvery = time.Second
	// mostReplays bounds how many are remembered; of more the oldest are forgotten, and their calls run on to their deadlines.
	mostReplays = 1000
)

// replays are cancellations that the state store did not hear (FEATURES D14). They are said again until it does, or until
// their calls have ended by their deadlines. A goroutine does so while there are any.
type replays struct {
	cancel func(ctx context.Context, tenant, id string) error

	mu      sync.Mutex // guards all below
	pending []replay
	running bool
	quit    chan struct{} // closed by close
	done    sync.WaitGroup
}

type replay struct {
	tenant, id string
	until      time.Time // the call has ended
}

func newReplays(cancel func(ctx context.Context, tenant, id string) error) *replays {
	return &replays{cancel: cancel, quit: make(chan struct{})}
}

// add remembers a cancellation.
func (p *replays) add(r replay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.quit:
		return
	default:
	}
	p.pending = append(p.pending, r)
	if extra := len(p.pending) - mostReplays; extra > 0 {
		p.pending = p.pending[extra:]
	}
	if !p.running {
		p.running = true
		p.done.Go(p.run)
	}
}

// run ends when nothing is left to be said.
func (p *replays) run() {
	tick := time.NewTicker(replayEvery)
	defer tick.Stop()
	for p.more() {
		select {
		case <-p.quit:
			return
		case <-tick.C:
		}
		p.say()
	}
}

// more reports whether something is left; the goroutine is over where not.
func (p *replays) more() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = len(p.pending) > 0
	return p.running
}

// say says all that is pending, one after the other, until the store does not hear.
func (p *replays) say() {
	for {
		p.mu.Lock()
		if len(p.pending) == 0 {
			p.mu.Unlock()
			return
		}
		next := p.pending[0]
		p.mu.Unlock()
		if time.Now().Before(next.until) {
			ctx, cancel := context.WithTimeout(context.Background(), giveUpWithin)
			err := p.cancel(ctx, next.tenant, next.id)
			cancel()
			if errors.Is(err, llmq.CodeQueueUnavailable) {
				return
			}
		}
		p.mu.Lock()
		if len(p.pending) > 0 && p.pending[0] == next {
			p.pending = p.pending[1:]
		}
		p.mu.Unlock()
	}
}

// close ends the goroutine and waits for it. What is pending is forgotten.
func (p *replays) close() {
	p.mu.Lock()
	select {
	case <-p.quit:
	default:
		close(p.quit)
	}
	p.mu.Unlock()
	p.done.Wait()
}
