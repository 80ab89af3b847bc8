package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// programs runs a test of a Go program's client, which gives up nothing before its deadline.
func programs(t *testing.T, serve func(llmq.Request) *llmq.Result, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := llmqtest.NewMiniredis(t)
		r := newRigWith(t, luatest.Pipe(t, m), client.Config{
			Names: queue.Names{Prefix: "llm"}, Catalogue: catalogue(), InlineMaxBytes: 1000, StoreWait: 10 * time.Second, OutlastStore: true,
		}, serve)
		r.mini = m
		test(t, r)
		r.working.Wait()
	})
}

// line is the way to the state store, which can be cut: what was connected is lost, and what connects then is not heard.
type line struct {
	down atomic.Bool

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func (l *line) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (l *line) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *line) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, conn)
		return lineConn{conn, l}, nil
	}
}

func (l *line) cut() {
	l.down.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close() // it is to be lost
	}
	l.conns = nil
}

func (l *line) mend() { l.down.Store(false) }

type lineConn struct {
	net.Conn
	line *line
}

func (c lineConn) Write(p []byte) (int, error) {
	if c.line.down.Load() {
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}

// S50, D14: a blip of the state store, just as long as it may fail, costs no call of a Go program, however far the call was.
func TestDo_BlipCostsAProgramNoCall(t *testing.T) {
	t.Parallel()
	const calls, blip = 40, 10 * time.Second
	for _, send := range []time.Duration{0, 300 * time.Millisecond} {
		programs(t, replies(500*time.Millisecond), func(t *testing.T, r *rig) {
			r.sendTakes = send
			l := &line{}
			r.valkey.AddHook(l)
			var all sync.WaitGroup
			for i := range calls {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 300 * time.Millisecond) // up to 12 s
					req := numbered(i)
					if i%2 == 1 {
						req.Lane = llmq.LaneBG
					}
					if reply, err := r.Do(t.Context(), req); err != nil || string(reply.Body) != `{"for":"`+req.ID+`"}` {
						t.Errorf("call %d: %+v, %v", i, reply, err)
					}
				})
			}
			time.Sleep(time.Second)
			l.cut()
			time.Sleep(blip)
			l.mend()
			all.Wait()
			if _, runs := r.counts(); runs != calls {
				t.Errorf("%d runs of %d calls", runs, calls)
			}
		})
	}
}

// One that answers that it can't serve yet is as lost as one that does not answer.
func TestDo_StoreThatLoadsIsWaitedFor(t *testing.T) {
	t.Parallel()
	programs(t, replies(0), func(t *testing.T, r *rig) {
		r.wantReply(numbered(0)) // the store learns the scripts
		r.working.Wait()
		ready := time.Now().Add(10 * time.Second)
		r.trips.OnAnswer(func(_ context.Context, cmds []redis.Cmder) error {
			if time.Now().Before(ready) {
				for _, cmd := range cmds {
					cmd.SetErr(loading{})
				}
			}
			return nil
		})
		r.wantReply(numbered(1))
		r.want(2, 2)
	})
}

// loading is what a server answers that reads its data yet.
type loading struct{}

func (loading) Error() string { return "LOADING the data is being read" }
func (loading) RedisError()   {}

// A store that stays away is told of by the deadline, and nothing was sent.
func TestDo_ProgramWaitsForTheStoreUntilItsDeadline(t *testing.T) {
	t.Parallel()
	programs(t, nil, func(t *testing.T, r *rig) {
		r.lose(0)
		req := request()
		r.wantError(t.Context(), req, llmq.CodeQueueUnavailable)
		if late := time.Since(req.Deadline); late < -time.Second || late > 0 {
			t.Errorf("told %v after the deadline, want it shortly before", late)
		}
		r.want(0, 0)
	})
}

// Who gives up before is told that nothing runs.
func TestDo_ProgramThatGivesUpOnTheStoreIsToldThatNothingWasSent(t *testing.T) {
	t.Parallel()
	programs(t, nil, func(t *testing.T, r *rig) {
		r.lose(0)
		ctx, cancel := cancelAfter(15 * time.Second)(t.Context())
		defer cancel()
		began := time.Now()
		if e := r.failure(ctx, request(), llmq.CodeTimeout); !strings.Contains(e.Message, "before the request req-1 was sent") {
			t.Errorf("told %q", e.Message)
		}
		if took := time.Since(began); took != 15*time.Second {
			t.Errorf("told after %v, want 15s", took)
		}
		r.want(0, 0)
	})
}

// What is told at the deadline is how the request ended, where that is known, and never that it goes on.
func TestDo_DeadlineTellsHowTheRequestEnded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(r *rig, req llmq.Request)
		code    llmq.Code
		text    string
	}{
		"no end is stored": {func(*rig, llmq.Request) {}, llmq.CodeExpired, "ended without a stored result by its deadline; send it again under a new id"},
		"its end is stored": {func(r *rig, req llmq.Request) {
			stored, err := llmq.EncodeResult(llmq.Result{RID: req.RID(), Tenant: req.Tenant, Err: llmq.Errorf(llmq.CodeProviderRejected, "a bad temperature")}, nil)
			if err != nil {
				r.t.Fatalf("encode: %v", err)
			}
			r.plant(req, string(stored))
		}, llmq.CodeProviderRejected, "a bad temperature"},
		"the store can't be asked": {func(*rig, llmq.Request) {}, llmq.CodeTimeout, "can't be told for now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				req := request()
				r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
					if tt.code == llmq.CodeTimeout && time.Now().After(req.Deadline) {
						return errors.New("connection refused")
					}
					return nil
				})
				r.working.Go(func() {
					time.Sleep(time.Until(req.Deadline) + 1900*time.Millisecond) // no sweep comes after it
					tt.prepare(r, req)
				})
				_, err := r.Do(t.Context(), req)
				if e := llmq.AsError(err); !errors.Is(err, tt.code) || !strings.Contains(e.Message, tt.text) || strings.Contains(e.Message, "goes on") {
					t.Errorf("told %v, want %s: … %s", err, tt.code, tt.text)
				}
			})
		})
	}
}
