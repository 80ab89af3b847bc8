package results

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Spills is what a [Bodies] does too that can keep a reply which the state store does not take.
type Spills interface {
	// Fetch reads what lies under a key, and false where nothing does.
	Fetch(ctx context.Context, key string) ([]byte, bool, error)
	// Delete removes it; a key under which nothing lies is no error.
	Delete(ctx context.Context, key string) error
}

// SpillVersion is the version of a spilled reply that this release writes. A reader takes no other.
const SpillVersion = 1

// spillWithin bounds each call of the body store for a spilled reply: the caller holds a message, and has
// little time left when a reply is put there.
const spillWithin = 2 * time.Second

// Spilled is a reply that was paid for and that the state store did not take (DS37).
type Spilled struct {
	Stored []byte // as [Store.Encode] made it
	Fence  int64  // of the claim under which it was paid for
}

type spillJSON struct {
	V          int             `json:"v"`
	Fence      int64           `json:"fence"`
	DeadlineMS int64           `json:"deadline_ms"`      // tells the request from a later one of the same id
	Generation int             `json:"gen,omitempty"`    // tells it from one that was sent again
	Result     json.RawMessage `json:"result,omitempty"` // it names request, tenant and body
}

// Spill puts a reply where the next owner of r's claim looks for it.
func (s *Store) Spill(ctx context.Context, r llmq.Request, x Spilled) error {
	if _, can := s.bodies.(Spills); !can {
		return errors.New("spill: there is no body store that keeps replies")
	}
	head, err := json.Marshal(spillJSON{V: SpillVersion, Fence: x.Fence, DeadlineMS: r.Deadline.UnixMilli(), Generation: r.Generation})
	if err != nil {
		return fmt.Errorf("spill: %w", err)
	}
	// The result goes in as it is: a reply's bytes are the provider's.
	object := append(bytes.TrimSuffix(head, []byte("}")), `,"result":`...)
	object = append(append(object, x.Stored...), '}')
	ctx, cancel := context.WithTimeout(ctx, spillWithin)
	defer cancel()
	if _, err := s.bodies.Put(ctx, spillKey(r), object); err != nil {
		return fmt.Errorf("spill: %w", err)
	}
	return nil
}

// Spilled looks for a reply that was spilled for r: the same request, of the same body, deadline and generation. hash is
// the body's. It is nil where there is none; an error says that nobody knows, or that what lies there is none of
// this release's.
func (s *Store) Spilled(ctx context.Context, r llmq.Request, hash string) (*Spilled, error) {
	bodies, can := s.bodies.(Spills)
	if !can {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, spillWithin)
	defer cancel()
	object, there, err := bodies.Fetch(ctx, spillKey(r))
	if err != nil || !there {
		return nil, err
	}
	var w spillJSON
	if err := json.Unmarshal(object, &w); err != nil {
		return nil, errors.New("spilled reply: no JSON of its form") // the decoder's words may quote the reply
	}
	if w.V != SpillVersion {
		return nil, fmt.Errorf("spilled reply: version %d is none of this release's", w.V)
	}
	res, _, err := llmq.DecodeResult(w.Result, r.RID(), r.Tenant)
	switch {
	case err != nil:
		return nil, errors.New("spilled reply: it holds no result of the request")
	case res.Reply == nil || res.BodyHash != hash || w.DeadlineMS != r.Deadline.UnixMilli(), w.Generation != r.Generation:
		return nil, errors.New("spilled reply: it is another request's, though of the same id")
	}
	return &Spilled{Stored: w.Result, Fence: w.Fence}, nil
}

// DropSpill removes what was spilled for r. What is left over is removed by the bucket's lifecycle rule.
func (s *Store) DropSpill(ctx context.Context, r llmq.Request) error {
	bodies, can := s.bodies.(Spills)
	if !can {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, spillWithin)
	defer cancel()
	return bodies.Delete(ctx, spillKey(r))
}

func spillKey(r llmq.Request) string {
	return "spill/" + llmq.TenantHash(r.Tenant) + "/" + string(r.RID())
}
