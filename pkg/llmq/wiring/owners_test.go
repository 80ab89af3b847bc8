package wiring

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// H10 b, DS4, DS5: one record in two worker events, handled at the same moment by two processes: one call. The other copy is handed
// back, and acknowledged once the result is there.
func TestWorkers_OneRecordInTwoEventsIsCalledOnce(t *testing.T) {
	t.Parallel()
	server := realValkey(t, true)
	space := preset(t, direct(t, server))
	var calls atomic.Int32
	both := make(chan struct{})
	slow := callFunc(func(context.Context, provider.Request) (*provider.Response, error) {
		calls.Add(1)
		<-both // the other worker has looked
		return ok(`{"x":1}`), nil
	})
	a := newProcess(t, dial(t, server, server.Addr(), true, 5*time.Second), space)
	b := newProcess(t, dial(t, server, server.Addr(), true, 5*time.Second), space)
	wa, wb := a.worker("a", slow), b.worker("b", slow)
	m := message("r-1")
	ends := make(chan string, 2)
	var handling sync.WaitGroup
	handling.Go(func() { ends <- handle(t.Context(), wa, m) })
	handling.Go(func() { ends <- handle(t.Context(), wb, m) })
	first := <-ends // who has no claim is the first to be back
	close(both)
	handling.Wait()
	got := []string{first, <-ends}
	if diff := cmp.Diff([]string{"keep running_elsewhere", "ack ok"}, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	for _, end := range []string{handle(t.Context(), wa, m), handle(t.Context(), wb, m)} {
		if end != "ack already_stored" {
			t.Errorf("a copy that comes back: %s", end)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d provider calls, want 1", n)
	}
}

// H11 1, DS8: a worker that dies without a word holds its claim for a lease and no longer.
func TestWorkers_ADeadOwnersClaimLapses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := luatest.Pipe(t, llmqtest.NewMiniredis(t))
		space := preset(t, rdb)
		p := newProcess(t, rdb, space)
		dead := p.take("r-1", "dead")
		w := p.worker("b", callFunc(func(context.Context, provider.Request) (*provider.Response, error) { return ok(`{"x":1}`), nil }))
		if dead.State != claims.Taken {
			t.Fatalf("take = %+v", dead)
		}
		time.Sleep(claims.Lease - time.Millisecond)
		if end := handle(t.Context(), w, message("r-1")); end != "keep running_elsewhere" {
			t.Errorf("inside the lease: %s", end)
		}
		time.Sleep(time.Second)
		if end := handle(t.Context(), w, message("r-1")); end != "ack ok" {
			t.Errorf("after the lease: %s", end)
		}
		if m := p.stored("r-1").Reply.Meta; m.Takeovers != 1 || m.Attempts != 2 {
			t.Errorf("meta %+v, want one takeover, and the attempt that it may have died over", m)
		}
	})
}

// H11 2, DS6: the first owner is stopped for longer than its lease and wakes while the second calls. A stopped process renews
// nothing, so its part is played by its claim; what it stores and gives back is refused by the fence. A third delivery
// in the second's run starts no call, and the caller gets the second's result.
func TestWorkers_AnOwnerThatWakesDisturbsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := luatest.Pipe(t, llmqtest.NewMiniredis(t))
		p := newProcess(t, rdb, preset(t, rdb))
		stopped := p.take("r-2", "stopped")
		time.Sleep(claims.Lease + 2*time.Second)
		var calls atomic.Int32
		upstream := callFunc(func(context.Context, provider.Request) (*provider.Response, error) {
			calls.Add(1)
			time.Sleep(2 * time.Second)
			return ok(`{"from":"b"}`), nil
		})
		w, another := p.worker("b", upstream), p.worker("c", upstream)
		ended := make(chan string, 1)
		go func() { ended <- handle(t.Context(), w, message("r-2")) }()
		time.Sleep(time.Second)
		holds := []claims.Hold{p.renew(stopped.Claim), p.finish(stopped.Claim, `{"from":"a"}`), p.giveBack(stopped.Claim)}
		if !slices.Equal(holds, []claims.Hold{claims.Lost, claims.Lost, claims.Lost}) {
			t.Errorf("renew, finish and defer of the first owner: %v, want all lost", holds)
		}
		if third := handle(t.Context(), another, message("r-2")); third != "keep running_elsewhere" {
			t.Errorf("third delivery: %s", third)
		}
		if end := <-ended; end != "ack ok" {
			t.Errorf("second owner: %s", end)
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d provider calls of the other workers, want 1", n)
		}
		if res := p.stored("r-2"); res == nil || res.Reply == nil || string(res.Reply.Body) != `{"from":"b"}` {
			t.Errorf("stored %+v, want the second's", res)
		}
		if late := p.finish(stopped.Claim, `{"from":"a"}`); late != claims.Lost {
			t.Errorf("the first owner's finish after the end: %v", late)
		}
	})
}

// H11 3: with no time, or as good as none, nothing is claimed.
func TestWorkers_WithoutTimeNothingIsClaimed(t *testing.T) {
	t.Parallel()
	for _, left := range []time.Duration{0, 200 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			rdb := luatest.Pipe(t, llmqtest.NewMiniredis(t))
			p := newProcess(t, rdb, preset(t, rdb))
			w := p.worker("w", callFunc(func(context.Context, provider.Request) (*provider.Response, error) {
				t.Error("a provider was called")
				return ok(`{}`), nil
			}))
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			if end := handle(ctx, w, message("r-3")); end != "keep out_of_time" {
				t.Errorf("with %v left: %s", left, end)
			}
			if take := p.take("r-3", "next"); take.State != claims.Taken || take.Claim.Fence != 1 {
				t.Errorf("the next take = %+v, want the first", take)
			}
		})
	}
}

func (p *process) take(id, owner string) claims.Take {
	p.t.Helper()
	r := request(id)
	r.Body = []byte(`{"for":"` + id + `"}`)
	return one(p, func(b *luascript.Batch) luascript.Pending[claims.Take] {
		return p.claims.Take(b, r, claims.BodyHash(r), owner)
	})
}

func (p *process) renew(c claims.Claim) claims.Hold {
	p.t.Helper()
	return one(p, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
		return p.claims.Renew(b, c, claims.Progress{Attempts: 1}, false)
	})
}

func (p *process) giveBack(c claims.Claim) claims.Hold {
	p.t.Helper()
	return one(p, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
		return p.claims.Defer(b, c, 0, claims.Progress{Attempts: 1})
	})
}

func (p *process) finish(c claims.Claim, body string) claims.Hold {
	p.t.Helper()
	r := request("r-2")
	stored, err := llmq.EncodeResult(llmq.Result{RID: r.RID(), Tenant: tenant, Reply: &llmq.Reply{Status: 200, Body: []byte(body)}}, nil)
	if err != nil {
		p.t.Fatalf("encode: %v", err)
	}
	return one(p, func(b *luascript.Batch) luascript.Pending[claims.Hold] { return p.claims.Finish(b, c, stored, false) })
}

// one runs one call alone.
func one[T any](p *process, add func(b *luascript.Batch) luascript.Pending[T]) T {
	p.t.Helper()
	var b luascript.Batch
	pending := add(&b)
	if err := b.Run(p.t.Context(), p.valkey); err != nil {
		p.t.Fatalf("run: %v", err)
	}
	got, err := pending()
	if err != nil {
		p.t.Fatalf("answer: %v", err)
	}
	return got
}
