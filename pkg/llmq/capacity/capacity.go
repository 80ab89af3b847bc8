// Package capacity answers one question: may this call start now? It is asked of one
// place for all workers, by a script that decides everything at once: the learned limit,
// caps of target, lane and provider, budgets of calls and tokens per minute, the breaker,
// and the rt calls that wait. All of it is taken, or nothing is.
package capacity

import (
	"context"
	_ "embed"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

const (
	// Lease is how long a slot holds without renewal: a killed worker's slots are back
	// within it.
	Lease = 60 * time.Second
	// Quarantine is how long nothing is admitted after the store was wiped, while live
	// workers renew what they hold. They renew every 10 s (FEATURES C12).
	Quarantine = 15 * time.Second
)

var (
	//go:embed lua/rates.lua
	ratesText string
	//go:embed lua/breaker.lua
	breakerText string
	//go:embed lua/admit.lua
	admitText string
	//go:embed lua/settle.lua
	settleText string
	//go:embed lua/renew.lua
	renewText string
	//go:embed lua/peek.lua
	peekText string
	//go:embed lua/forget.lua
	forgetText string
	//go:embed lua/epoch.lua
	epochText string
	//go:embed lua/attend.lua
	attendText string
)

// whole puts the chunks that a script is built from at the lines that ask for them.
func whole(text string) string {
	return luascript.Include(text, map[string]string{"law.lua": LawText(), "rates.lua": ratesText, "breaker.lua": breakerText, "epoch.lua": epochText})
}

// Gate decides admissions. It holds no connection and no mutable state, so it is safe
// for concurrent use.
type Gate struct {
	keys                                       keys.Space
	law                                        LawConfig
	lease                                      time.Duration
	now                                        any // of the scripts: "" is the server's clock, and tests have their own
	admit, settle, renew, peek, forget, attend luascript.Script
}

// New is the gate of one environment, with the law and the lease as they are by default.
func New(space keys.Space) *Gate {
	return &Gate{
		keys:   space,
		law:    DefaultLaw(),
		lease:  Lease,
		now:    "",
		admit:  luascript.New("admit", whole(admitText)),
		settle: luascript.New("settle", whole(settleText)),
		renew:  luascript.New("renew", whole(renewText)),
		peek:   luascript.New("peek", whole(peekText)),
		forget: luascript.New("forget", whole(forgetText)),
		attend: luascript.New("attend", whole(attendText)),
	}
}

// Tuned is the same gate with another law and lease. What a target sets itself wins over
// the law's.
func (g *Gate) Tuned(law LawConfig, lease time.Duration) *Gate {
	tuned := *g
	tuned.law, tuned.lease = law, lease
	return &tuned
}

// Preset marks a store that is known to be new, so that nothing has to wait for the
// [Quarantine]. On a store that is in use it does nothing.
func (g *Gate) Preset(b *luascript.Batch) luascript.Pending[struct{}] {
	call := b.Command("SET", g.keys.Epoch(), "1", "NX")
	return func() (struct{}, error) {
		_, _, err := call.Text()
		return struct{}{}, err
	}
}

// PresetStore is [Gate.Preset] for whoever has just started the store of an environment.
func PresetStore(ctx context.Context, client redis.UniversalClient, env string) error {
	var b luascript.Batch
	done := New(keys.New(env)).Preset(&b)
	if err := b.Run(ctx, client); err != nil {
		return err
	}
	_, err := done()
	return err
}

// Slot is the right to have one call in flight at a target. It lapses after the lease
// unless renewed; every path out of a call settles it or lets it lapse.
type Slot struct {
	ask   Ask
	stamp int64 // the law's time of the admission
	at    int64 // the server's
}

// names are the keys of an ask.
func (g *Gate) names(t llmq.Target) (keys.Target, keys.Provider) {
	return g.keys.Target(t), g.keys.Provider(t.Provider)
}

func joined(words []string) string { return strings.Join(words, " ") }
