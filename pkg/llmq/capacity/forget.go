package capacity

import (
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
)

// ForgetLimits has a target learn its limits anew, from where one begins that nobody has called. Slots that are held stay
// held, and so does all that is counted. The answer is whether there was anything to forget.
func (g *Gate) ForgetLimits(b *luascript.Batch, t llmq.Target) luascript.Pending[bool] {
	return g.forgetting(b, t, "limits")
}

// ForgetBreaker closes a target's breaker, with nothing counted. The answer is whether it had counted anything.
func (g *Gate) ForgetBreaker(b *luascript.Batch, t llmq.Target) luascript.Pending[bool] {
	return g.forgetting(b, t, "breaker")
}

func (g *Gate) forgetting(b *luascript.Batch, t llmq.Target, what string) luascript.Pending[bool] {
	k, _ := g.names(t)
	call := b.Script(&g.forget, []string{k.State}, what)
	return func() (bool, error) {
		v, err := call.Ints(1)
		return err == nil && v[0] > 0, err
	}
}
