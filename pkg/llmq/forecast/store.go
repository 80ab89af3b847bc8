package forecast

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Store keeps snapshots where every door reads them. It holds no connection and no state, so it is safe for concurrent use.
type Store struct{ keys keys.Space }

// NewStore is the store of one environment.
func NewStore(space keys.Space) *Store { return &Store{space} }

// snapshotField is the field of a model's hash that holds its snapshot. The others are "<lane>:<n>": how many calls were
// sent to the lane's queue in the n-th sentWithin since 1970. A new snapshot has none of them.
const snapshotField = "snapshot"

// sentWithin is how exactly the time of a send is kept: of the at most [MaxAge] that a snapshot is of use, 24 counters a lane.
const sentWithin = 5 * time.Second

// Look reads a model's outlook: one that is not there, or that can't be read, is zero.
func (s *Store) Look(b *luascript.Batch, alias string) luascript.Pending[Outlook] {
	call := b.Command("HGETALL", s.keys.Forecast(alias).Snapshot)
	return func() (Outlook, error) {
		fields, err := call.Map()
		if err != nil {
			return Outlook{}, err
		}
		var o Outlook
		if text := fields[snapshotField]; text == "" {
			return Outlook{}, nil
		} else if err := json.Unmarshal([]byte(text), &o.Snapshot); err != nil {
			return Outlook{}, fmt.Errorf("read the forecast of %s: %w", alias, err)
		}
		for name, count := range fields {
			if sent, ok := parseSent(name, count); ok {
				o.Sent = append(o.Sent, sent)
			}
		}
		return o, nil
	}
}

func parseSent(name, count string) (Sent, bool) {
	lane, slot, _ := strings.Cut(name, ":")
	n, err := strconv.Atoi(count)
	at, bad := strconv.ParseInt(slot, 10, 64)
	if err != nil || bad != nil || n < 0 {
		return Sent{}, false
	}
	// In the middle of its time.
	return Sent{llmq.Lane(lane), time.UnixMilli(at*sentWithin.Milliseconds() + sentWithin.Milliseconds()/2), n}, true
}

// Sent counts a call that was sent to a lane's queue at now.
func (s *Store) Sent(b *luascript.Batch, alias string, lane llmq.Lane, now time.Time) {
	field := string(lane) + ":" + strconv.FormatInt(now.UnixMilli()/sentWithin.Milliseconds(), 10)
	key := s.keys.Forecast(alias).Snapshot
	b.Command("HINCRBY", key, field, 1)
	b.Command("PEXPIRE", key, keep.Milliseconds())
}

// keep is how long a model's snapshot lives, and what was sent where nobody makes any.
const keep = 3 * MaxAge

// Recall reads what was learned of a model until now; nothing where that can't be read.
func (s *Store) Recall(b *luascript.Batch, alias string) luascript.Pending[Memory] {
	call := b.Command("GET", s.keys.Forecast(alias).Learned)
	return func() (Memory, error) {
		text, known, err := call.Text()
		if err != nil || !known {
			return Memory{}, err
		}
		var m Memory
		if json.Unmarshal([]byte(text), &m) != nil {
			return Memory{}, nil //nolint:nilerr // another release wrote it: what it knew is learned again
		}
		return m, nil
	}
}

// Keep writes a model's snapshot in the place of the one before, and what was learned. A door that reads between the two commands
// finds none.
func (s *Store) Keep(b *luascript.Batch, alias string, snap Snapshot, m Memory) (luascript.Pending[struct{}], error) {
	told, err := json.Marshal(snap)
	if err != nil {
		return nil, fmt.Errorf("encode the forecast of %s: %w", alias, err)
	}
	learned, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode what was learned of %s: %w", alias, err)
	}
	k := s.keys.Forecast(alias)
	b.Command("DEL", k.Snapshot)
	kept := b.Command("HSET", k.Snapshot, snapshotField, told)
	b.Command("PEXPIRE", k.Snapshot, keep.Milliseconds())
	b.Command("SET", k.Learned, learned)
	return func() (struct{}, error) {
		_, err := kept.Int()
		return struct{}{}, err
	}, nil
}
