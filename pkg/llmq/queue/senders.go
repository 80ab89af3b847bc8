package queue

import (
	"slices"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Senders are those whose messages are taken (SECURITY-DESIGN MS1, MS2). Nothing in a message is
// signed: what it says of its tenant counts because of who sent it, as the queue tells. An id is that
// of a role (AROA…), or of a user; the name of its session, which is the sender's free choice, is no
// part of it. The zero value takes nobody's.
type Senders struct {
	Own       []string // of the door and of admin, which write the tenant into the envelope
	Workers   []string // they send dead letters only, with the tenant in [AttrTenant]
	Producers []Producer
}

// Producer is a service of somebody else's that sends to the queues itself.
type Producer struct {
	Name     string // names its folder of the data bucket, see [Senders.MayPointAt]
	SenderID string
	Tenant   string // the only one that it has
	Replies  []Reply
	Program  bool // it is a Go program, which may end its tenant's calls in the state store as well
}

// Reply is where a producer may have its calls' ends told. A message names it by its alias, and can name nothing else
// (SECURITY-DESIGN MS5).
type Reply struct {
	Alias string
	Queue Name // "" is the data bucket
}

// None reports whether nobody's calls are taken.
func (s Senders) None() bool { return len(s.Own)+len(s.Producers) == 0 }

// Sender is who sent a message.
type Sender struct {
	producer string // "" is our own
	program  bool
	tenant   string // the only one that it may name; "" is any
}

// Ends reports whether a message of the sender's, whose body is gone or another, ends its request: those of llmq's own functions do, and
// of Go programs, which put bodies aside as the door does and may cancel their tenant's calls. Any other producer may name what it likes
// of the place of its tenant's bodies, and no request ends by it.
func (s Sender) Ends() bool { return s.producer == "" || s.program }

// Of tells who sent m, or [llmq.CodeSenderNotAllowed]. A worker's message, on a queue to which it was
// moved back by hand or on a dead-letter queue, is one of the tenant that the worker found; without it
// nobody knows whose it is.
func (s Senders) Of(m Message) (Sender, error) {
	id, _, _ := strings.Cut(m.SenderID, ":")
	switch {
	case id == "":
	case slices.Contains(s.Own, id):
		return Sender{}, nil
	case slices.Contains(s.Workers, id):
		if t := m.Attributes[AttrTenant]; t != "" {
			return Sender{tenant: t}, nil
		}
	default:
		for _, p := range s.Producers {
			if p.SenderID == id {
				return Sender{producer: p.Name, program: p.Program, tenant: p.Tenant}, nil
			}
		}
	}
	return Sender{}, llmq.Errorf(llmq.CodeSenderNotAllowed, "the sender of the message is none that is listed")
}

// Tenant is whose message it is, or [llmq.CodeBadEnvelope] where the envelope says what its sender may not.
func (s Sender) Tenant(env llmq.Envelope) (string, error) {
	bad := func(field, says string) (string, error) {
		return "", llmq.Errorf(llmq.CodeBadEnvelope, "%s", says).At(field)
	}
	switch {
	case s.producer != "" && env.KeyID != "":
		return bad("kid", "kid is written by llmq's own functions only; leave it out")
	case s.producer != "" && env.Generation != 0:
		return bad("generation", "generation is written by llmq's own functions only; leave it out")
	case s.producer != "" && len(env.Headers) != 0: // they steer what a call costs and what guards it
		return bad("headers", "headers are written by llmq's own functions only; leave them out, or call the door")
	case s.tenant == "" && env.Tenant == "":
		return bad("tenant", "tenant is missing")
	case s.tenant != "" && env.Tenant != "" && env.Tenant != s.tenant:
		return bad("tenant", "tenant is not the one that its sender has; leave it out")
	case s.tenant != "":
		return s.tenant, nil
	}
	return env.Tenant, nil
}

// Reply is the target of that alias, or [llmq.CodeBadEnvelope]: one of the sender's own, or where we send a producer's message
// again, of the tenant's producers.
func (s Senders) Reply(alias string, from Sender, tenant string) (Reply, error) {
	var known []string
	for _, p := range s.Producers {
		if from.producer != p.Name && (from.producer != "" || tenant != p.Tenant) {
			continue
		}
		for _, r := range p.Replies {
			if r.Alias == alias {
				return r, nil
			}
			known = append(known, r.Alias)
		}
	}
	hint := "its sender has none; leave it out"
	if len(known) > 0 {
		hint = "its sender has " + strings.Join(known, ", ")
	}
	return Reply{}, llmq.Errorf(llmq.CodeBadEnvelope, "reply_to names no configured target: %s", hint).At("reply_to")
}

// Bodies of requests lie below these, each of a tenant or of a producer.
const (
	folderOfTenants   = "off/"
	folderOfProducers = "in/"
)

// MayPointAt reports whether a tenant's message may name a body under key (SECURITY-DESIGN MS4): one of
// its tenant, off/<tenant hash>/…, or one that its producer has put aside, in/<producer's name>/…. What we
// send again for a producer still points into that producer's folder.
func (s Senders) MayPointAt(key string, from Sender, tenant string) bool {
	if strings.HasPrefix(key, folderOfTenants+llmq.TenantHash(tenant)+"/") {
		return true
	}
	return slices.ContainsFunc(s.Producers, func(p Producer) bool {
		mine := from.producer == p.Name || from.producer == "" && tenant == p.Tenant
		return mine && strings.HasPrefix(key, folderOfProducers+p.Name+"/")
	})
}
