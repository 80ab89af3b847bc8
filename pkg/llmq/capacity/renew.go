package capacity

import (
	"slices"

	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// leasesAtOnce bounds how many leases one run of the script keeps.
const leasesAtOnce = 64

// Renewal is what a renewal found.
type Renewal struct {
	Kept int // slots that are held for another lease
	Anew int // those among them that the store did not know any more
}

// Renew keeps slots for another lease: one script for each target that they belong to, all
// in the batch's one round trip. A slot that lapsed or was wiped is written anew, since
// its call is in flight. The caller stops renewing a slot before it settles it.
func (g *Gate) Renew(b *luascript.Batch, slots ...Slot) luascript.Pending[Renewal] {
	byTarget := map[string][]Slot{}
	var order []string // so that a batch is always the same
	for _, s := range slots {
		name := s.ask.Target.String()
		if byTarget[name] == nil {
			order = append(order, name)
		}
		byTarget[name] = append(byTarget[name], s)
	}
	var calls []*luascript.Call
	for _, name := range order {
		for some := range slices.Chunk(byTarget[name], leasesAtOnce) {
			calls = append(calls, g.keep(b, some))
		}
	}
	return func() (Renewal, error) {
		var r Renewal
		for _, call := range calls {
			v, err := call.Ints(2)
			if err != nil {
				return Renewal{}, err
			}
			r.Kept, r.Anew = r.Kept+int(v[0]), r.Anew+int(v[1])
		}
		return r, nil
	}
}

// keep renews slots of one target.
func (g *Gate) keep(b *luascript.Batch, slots []Slot) *luascript.Call {
	t := slots[0].ask.Target
	k, p := g.names(t)
	var leases []string
	for _, s := range slots {
		leases = append(leases, string(s.ask.Lane), s.ask.CallID)
	}
	return b.Script(&g.renew, []string{g.keys.Epoch(), k.RT, k.BG, k.Bulk, p.Slots},
		g.now, g.lease.Milliseconds(), flag(t.Shared.MaxConcurrency > 0), joined(leases))
}
