package results

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// mostPieces bounds one read of a stream: a piece has 64 KiB, or is one large event.
const mostPieces = 32

// Follower reads a request's reply while it comes, from an offset on: the pieces that the state store keeps, then
// the result. It is for one goroutine, which must close it.
type Follower struct {
	waiter *Waiter
	key    string // of the stream
	at     int64  // offset of the next byte
	gap    bool   // the byte at it is kept no more: only the result has it
}

// Follow registers a reader of r's reply from byte at on, and returns once its wake can't be missed, or after two seconds
// an error, [llmq.CodeQueueUnavailable]. Nothing is read yet.
func (h *Hub) Follow(ctx context.Context, r llmq.Request, at int64) (*Follower, error) {
	k := h.store.keys.Call(r.Tenant, r.RID())
	w, err := h.wait(ctx, &Waiter{hub: h, channel: k.Wake, key: k.Result, ready: make(chan struct{}), poke: make(chan struct{}, 1)})
	if err != nil {
		return nil, err
	}
	return &Follower{waiter: w, key: k.Stream, at: at}, nil
}

// Close ends the reading; see [Waiter.Close].
func (f *Follower) Close() { f.waiter.Close() }

// At is the offset of the next byte.
func (f *Follower) At() int64 { return f.at }

// News is what a read found: a piece of the reply, or the stored result behind all pieces, or neither so far.
type News struct {
	Piece  []byte // whole events
	Stored []byte
}

// Wait returns when there may be something to read, or with the context's error.
func (f *Follower) Wait(ctx context.Context) error {
	select {
	case <-f.waiter.poke:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Read looks once for what follows. It does not wait. An error is [llmq.CodeQueueUnavailable] where the store did not answer;
// then it can be asked again.
func (f *Follower) Read(ctx context.Context) (News, error) {
	pipe := f.waiter.hub.store.client.Pipeline()
	var pieces *redis.XMessageSliceCmd
	if !f.gap {
		pieces = pipe.XRangeN(ctx, f.key, "("+strconv.FormatInt(f.at, 10)+"-0", "+", mostPieces)
	}
	stored := pipe.Get(ctx, f.waiter.key)
	_, _ = pipe.Exec(ctx) // it repeats one command's error; each is looked at below
	if pieces != nil {
		got, err := pieces.Result()
		if err != nil {
			return News{}, unreadable(err)
		}
		if piece := f.take(got); len(piece) > 0 {
			return News{Piece: piece}, nil
		}
	}
	result, err := stored.Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return News{}, unreadable(err)
	}
	return News{Stored: result}, nil
}

// take joins what follows at once, and notes a gap.
func (f *Follower) take(pieces []redis.XMessage) []byte {
	var out []byte
	for _, p := range pieces {
		text, _ := p.Values["p"].(string)
		id, _, _ := strings.Cut(p.ID, "-")
		end, err := strconv.ParseInt(id, 10, 64)
		begin := end - int64(len(text))
		if err != nil || begin > f.at || end <= f.at {
			f.gap = true
			break
		}
		out = append(out, text[f.at-begin:]...)
		f.at = end
	}
	return out
}

func unreadable(err error) error {
	return llmq.Errorf(llmq.CodeQueueUnavailable, "the state store can't be reached").Because(err)
}
