package valkey

import (
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

const inProcessKind = "miniredis (in process; limits are approximate)"

// tick is how often miniredis is told that time has passed: its TTLs stand still otherwise.
// (miniredis can follow the clock by itself, but then walks every key with a TTL at each access.)
const tick = 10 * time.Millisecond

// inProcess is a miniredis with a goroutine that moves its TTLs.
type inProcess struct {
	mini  *miniredis.Miniredis
	stop  chan struct{} // closed by close
	ended chan struct{} // closed when the server and the goroutine have ended

	closing sync.Once
}

func startInProcess(password string) (*Server, error) {
	m := miniredis.NewMiniRedis()
	m.RequireAuth(password)
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("start miniredis: %w", err)
	}
	llmqtest.HookLua(m)
	p := &inProcess{mini: m, stop: make(chan struct{}), ended: make(chan struct{})}
	go p.run()
	return &Server{backend: p, addr: m.Addr(), password: password, kind: inProcessKind}, nil
}

// run moves the TTLs by the time that really passed. It rests at least four times as long as a
// walk took (35 ms at 100,000 keys), so that many keys cost precision, not the machine.
func (p *inProcess) run() {
	defer close(p.ended)
	defer p.mini.Close()
	last := time.Now()
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-timer.C:
		}
		now := time.Now()
		p.mini.FastForward(now.Sub(last))
		last = now
		timer.Reset(max(tick, 4*time.Since(now)))
	}
}

func (p *inProcess) close() error {
	p.closing.Do(func() { close(p.stop) })
	<-p.ended
	return nil
}

func (p *inProcess) done() <-chan struct{} { return p.ended }
