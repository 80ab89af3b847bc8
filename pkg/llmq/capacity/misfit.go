package capacity

import (
	"errors"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// Misfit is a key that holds something else than its scripts put there. No script can use it, and none of llmq's makes one.
type Misfit struct {
	Key      string
	Is, Want string // types, as the store names them
}

// IsMisfit reports whether the state store refused a script for the type of a key. It does not say which.
func IsMisfit(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }

// Misfits are those of a target, and of what it shares with others. They are mended by deleting them: an empty key is that of a target that
// nobody has used yet.
func (g *Gate) Misfits(b *luascript.Batch, t llmq.Target) luascript.Pending[[]Misfit] {
	k, p := g.names(t)
	var looked []func() (Misfit, error)
	look := func(key, want string) {
		is := b.Command("TYPE", key)
		looked = append(looked, func() (Misfit, error) {
			got, _, err := is.Text()
			return Misfit{Key: key, Is: got, Want: want}, err
		})
	}
	look(g.keys.Epoch(), "string")
	for _, key := range []string{k.State, p.State} {
		look(key, "hash")
	}
	for _, key := range []string{k.RT, k.BG, k.Bulk, k.Waiting, p.Slots} {
		look(key, "zset")
	}
	return func() (found []Misfit, err error) {
		for _, answer := range looked {
			m, failed := answer()
			err = errors.Join(err, failed)
			if failed == nil && m.Is != m.Want && m.Is != "none" {
				found = append(found, m)
			}
		}
		return found, err
	}
}
