// Package live keeps what operators set while processes run in the state store, and tells each process of it: at most one
// question in a while, asked by a call that needs the answer, never by a timer.
package live

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/settings"
)

//go:embed lua/save.lua
var saveText string

// kept is how many changes the audit holds.
const kept = 200

// ErrConflict says that another change came first: what is stored is to be read again.
var ErrConflict = errors.New("the settings were changed meanwhile")

// Store is where live settings lie. It is safe for concurrent use.
type Store struct {
	valkey redis.UniversalClient
	names  keys.Live
	save   luascript.Script
}

// New is the store of one environment.
func New(valkey redis.UniversalClient, space keys.Space) *Store {
	return &Store{valkey: valkey, names: space.Live(), save: luascript.New("save", saveText)}
}

// State is what is stored.
type State struct {
	Revision  int // 0: nothing was ever set
	Overrides config.Overrides
	Err       error // why Overrides could not be read: [settings.ErrUnreadable] or [settings.ErrNewer]; nil else

	change string // that made it; a store that was wiped counts its revisions anew
}

// Load reads what is stored, in one round trip. Its error is [llmq.CodeQueueUnavailable] or that of a server that refused.
func (s *Store) Load(ctx context.Context) (State, error) {
	var b luascript.Batch
	var calls []*luascript.Call
	for _, field := range []string{"revision", "change", "document"} {
		calls = append(calls, b.Command("HGET", s.names.Settings, field))
	}
	if err := b.Run(ctx, s.valkey); err != nil {
		return State{}, fmt.Errorf("read live settings: %w", err)
	}
	var fields [3]string
	for i, c := range calls {
		var err error
		if fields[i], _, err = c.Text(); err != nil {
			return State{}, fmt.Errorf("read live settings: %w", err)
		}
	}
	st := State{change: fields[1]}
	st.Revision, _ = strconv.Atoi(fields[0]) // save.lua takes one that is no number for 0 too
	if document := fields[2]; document != "" {
		st.Overrides, st.Err = settings.Parse([]byte(document))
	}
	return st, nil
}

// Save stores what is to hold instead of revision, with the audit's entry of it, whose revision is set here. Where
// another change came first it is [ErrConflict].
func (s *Store) Save(ctx context.Context, revision int, o config.Overrides, c settings.Change) (int, error) {
	document, err := settings.Encode(o)
	if err != nil {
		return 0, err
	}
	c.Revision = revision + 1
	entry, err := json.Marshal(c)
	if err != nil {
		return 0, fmt.Errorf("write the audit: %w", err)
	}
	var b luascript.Batch
	saved := b.Script(&s.save, []string{s.names.Settings, s.names.Audit}, revision, document, rand.Text(), entry, kept)
	if err := b.Run(ctx, s.valkey); err != nil {
		return 0, fmt.Errorf("store live settings: %w", err)
	}
	v, err := saved.Ints(2)
	if err != nil {
		return 0, fmt.Errorf("store live settings: %w", err)
	}
	if v[0] == 0 {
		return int(v[1]), ErrConflict
	}
	return int(v[1]), nil
}

// History is the last changes, the latest first, at most n. An entry that can't be read is left out.
func (s *Store) History(ctx context.Context, n int) ([]settings.Change, error) {
	lines, err := s.valkey.LRange(ctx, s.names.Audit, 0, int64(n-1)).Result()
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	out := []settings.Change{}
	for _, line := range lines {
		var c settings.Change
		if json.Unmarshal([]byte(line), &c) == nil {
			out = append(out, c)
		}
	}
	return out, nil
}
