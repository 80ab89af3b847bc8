package admin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/strictjson"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// again is the message of the next generation, or an error that was counted. It keeps the body byte for byte and the
// hints, and leaves out what told of its death. It states the tenant: whoever redrives is believed it, so it is the one
// of the dead letter's sender (SECURITY-DESIGN MS2), not what anybody wrote there.
func (rd *redrive) again(m queue.Message) (queue.Outgoing, error) {
	env, err := open(m.Body)
	if err != nil {
		rd.out.Unreadable++
		return queue.Outgoing{}, err
	}
	if env.Tenant, err = rd.owner(m, env); err != nil {
		rd.out.Unknown++
		return queue.Outgoing{}, err
	}
	env.Generation++
	env.Deadline = time.Now().Add(rd.rule(rd.place).Timeout)
	body, err := env.Encode()
	if err != nil {
		rd.out.Unreadable++
		return queue.Outgoing{}, err
	}
	hints := map[string]string{}
	for name, value := range m.Attributes {
		if !queue.TellsOfDeath(name) && name != attrRedrive {
			hints[name] = value
		}
	}
	for len(hints) >= mostAttributes { // they are hints; which redrive it was matters more
		delete(hints, slices.Max(slices.Collect(maps.Keys(hints))))
	}
	hints[attrRedrive] = rd.id
	return queue.Outgoing{Body: body, Group: llmq.TenantHash(env.Tenant), Attributes: hints}, nil
}

// open reads an envelope that may be sent again.
func open(body []byte) (llmq.Envelope, error) {
	limits := strictjson.Default()
	limits.Depth++
	limits.Members += 32 // of the envelope itself
	if err := strictjson.Check(body, limits); err != nil {
		return llmq.Envelope{}, fmt.Errorf("dead letter: %w", err)
	}
	env, err := llmq.DecodeEnvelope(body)
	if err == nil && env.Generation >= mostGeneration {
		err = llmq.Errorf(llmq.CodeBadEnvelope, "it was sent again %d times", env.Generation).At("generation")
	}
	return env, err
}

// owner is the tenant of a dead letter, by the rule that its worker would have gone by.
func (o *Operator) owner(m queue.Message, env llmq.Envelope) (string, error) {
	from, err := o.deps.Senders.Of(m)
	if err != nil {
		return "", err
	}
	return from.Tenant(env)
}
