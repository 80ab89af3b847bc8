package results

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

// says keeps a piece of a's reply that ends at an offset, and wakes its readers.
func (h hub) says(t testing.TB, id, piece string, end int) {
	t.Helper()
	k := h.store.keys.Call("t", request(id).RID())
	if err := h.client.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Stream, ID: fmt.Sprintf("%d-0", end), Values: []string{"p", piece}}).Err(); err != nil {
		t.Fatalf("append: %v", err)
	}
	h.wake(t, id)
}

func (h hub) follow(t testing.TB, id string, at int64) *Follower {
	t.Helper()
	f, err := h.Follow(t.Context(), request(id), at)
	if err != nil {
		t.Fatalf("follow %s: %v", id, err)
	}
	t.Cleanup(f.Close)
	return f
}

// next waits until there is news.
func next(t testing.TB, f *Follower) News {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*SweepEvery)
	defer cancel()
	for {
		n, err := f.Read(ctx)
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if n.Piece != nil || n.Stored != nil {
			return n
		}
		if err := f.Wait(ctx); err != nil {
			t.Fatalf("wait at %d: %v", f.At(), err)
		}
	}
}

func want(t testing.TB, got News, piece, stored string) {
	t.Helper()
	if string(got.Piece) != piece || string(got.Stored) != stored {
		t.Errorf("news = %q, %q; want %q, %q", got.Piece, got.Stored, piece, stored)
	}
}

func TestFollower_ReadsPiecesInOrderAndThenTheResult(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		early := h.follow(t, "a", 0)
		h.says(t, "a", "abc", 3)
		want(t, next(t, early), "abc", "")
		h.says(t, "a", "de", 5)
		h.says(t, "a", "f", 6)
		h.finish(t, "a")
		got := ""
		for early.At() < 6 {
			n := next(t, early)
			want(t, n, string(n.Piece), "")
			got += string(n.Piece)
		}
		if got != "def" {
			t.Errorf("pieces %q", got)
		}
		want(t, next(t, early), "", "result of a")
		late, amid := h.follow(t, "a", 0), h.follow(t, "a", 4)
		want(t, next(t, late), "abcdef", "")
		want(t, next(t, amid), "ef", "")
		want(t, next(t, amid), "", "result of a")
	})
}

func TestFollower_IsWokenByEachPiece(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		f, other := h.follow(t, "a", 0), h.follow(t, "a", 0)
		begun := time.Now()
		for i := 1; i <= 3; i++ {
			h.says(t, "a", "x", i)
			want(t, next(t, f), "x", "")
		}
		if took := time.Since(begun); took > SweepEvery/2 {
			t.Errorf("three pieces took %v: by the sweep", took)
		}
		want(t, next(t, other), "xxx", "")
	})
}

// What is kept no more, or was never kept, only the result has: it is waited for, and what came before is not lost.
func TestFollower_WaitsForTheResultOverAGap(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		f := h.follow(t, "a", 0)
		h.says(t, "a", "ab", 2)
		h.says(t, "a", "ef", 6)
		want(t, next(t, f), "ab", "")
		h.says(t, "a", "gh", 8)
		if n, err := f.Read(t.Context()); err != nil || n.Piece != nil || n.Stored != nil || f.At() != 2 {
			t.Errorf("over a gap: %q, %v, at %d", n.Piece, err, f.At())
		}
		h.finish(t, "a")
		want(t, next(t, f), "", "result of a")
		if f.At() != 2 {
			t.Errorf("at %d, want 2", f.At())
		}
	})
}

// A reader beside waiters takes nothing from them, and another request's is not woken.
func TestFollower_BesideWaiters(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		w, f := h.subscribe(t, "a"), h.follow(t, "a", 0)
		defer w.Close()
		h.says(t, "a", "x", 1)
		want(t, next(t, f), "x", "")
		h.finish(t, "a")
		wantResult(t, w, "a", SweepEvery/2)
		want(t, next(t, f), "", "result of a")
	})
}

func TestStore_DecodeFromGivesTheRestAndFetchesNoMore(t *testing.T) {
	t.Parallel()
	r := request("a")
	reply := func() *llmq.Reply {
		return &llmq.Reply{Status: 200, ContentType: "text/event-stream", Stream: true, Body: []byte("data: \x00\xff1\n\n")}
	}
	size := int64(len(reply().Body))
	inline, err := llmq.EncodeResult(llmq.Result{RID: r.RID(), Tenant: "t", Reply: reply()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	apart, err := llmq.EncodeResult(llmq.Result{RID: r.RID(), Tenant: "t", Reply: reply()}, &llmq.Ref{Key: prefix("t") + "x", SHA256: "s", Bytes: size})
	if err != nil {
		t.Fatal(err)
	}
	for _, stored := range [][]byte{inline, apart} {
		if strings.Contains(string(stored), "data:") {
			t.Errorf("a stream's bytes stand in JSON: %s", stored)
		}
		for from, body := range map[int64]string{0: "data: \x00\xff1\n\n", 6: "\x00\xff1\n\n", size: "", size + 5: ""} {
			bodies := &fetched{body: reply().Body}
			res, err := New(nil, luatest.Space(), bodies, 1).DecodeFrom(t.Context(), r, stored, from)
			if err != nil || string(res.Reply.Body) != body || !res.Reply.Stream {
				t.Errorf("from %d: %+v, %v", from, res.Reply, err)
			}
			if diff := cmp.Diff(string(stored) == string(apart) && from < size, bodies.gets > 0); diff != "" {
				t.Errorf("from %d, fetched (-want +got):\n%s", from, diff)
			}
		}
	}
}

type fetched struct {
	body []byte
	gets int
}

func (f *fetched) Put(context.Context, string, []byte) (llmq.Ref, error) { return llmq.Ref{}, nil }
func (f *fetched) Get(context.Context, llmq.Ref) ([]byte, error)         { f.gets++; return f.body, nil }
