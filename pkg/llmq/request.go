package llmq

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"
)

// FallbackPolicy bounds where a request may be served when its first target fails.
type FallbackPolicy string

const (
	// FallbackChain tries the model's targets and then the models that stand in for it, where the
	// configuration names some. It is the default.
	FallbackChain FallbackPolicy = "chain"
	// FallbackTarget keeps to the model: its targets and no others. A pinned one, alias@target, is
	// the only one in either case.
	FallbackTarget FallbackPolicy = "target"
)

// ParseFallback reads a policy's name. An empty name is [FallbackChain].
func ParseFallback(s string) (FallbackPolicy, error) {
	switch p := FallbackPolicy(s); p {
	case "":
		return FallbackChain, nil
	case FallbackChain, FallbackTarget:
		return p, nil
	}
	return "", Errorf(CodeInvalidRequest, "fallback policy %q is unknown; use chain or target", Clip(s, 40)).At("fallback")
}

// Request is one LLM call as its caller asks for it.
type Request struct {
	ID       string            // the caller's id or [NewID]; unique within the tenant
	Tenant   string            // whose request it is
	KeyID    string            // public id of the key that was used; "" for producers
	Allowed  ModelSet          // what that key may use; without a key it bounds nothing
	Op       Op                // what is asked for; fixes the wire
	Model    ModelRef          // as the caller wrote it
	Lane     Lane              // never empty
	Fallback FallbackPolicy    // never empty
	Deadline time.Time         // no answer is of use after it; never zero
	Body     []byte            // the wire's own JSON, as it came; never changed in place
	Headers  map[string]string // what an invocation is asked with beside its body, of [Op.Headers]; nil is nothing
	Stream   bool              // the reply is wanted while it comes; the operation, or a member of the body, says so too
	User     string            // the caller's end user; "" when not given
	Session  string            // the caller's session; "" when not given
	Trace    string            // W3C traceparent; "" when not given
	OneOff   bool              // the id was made for this call alone: nobody knows it who could send the call again
	Kept     bool              // its caller comes back for how it ends: that is kept 24 h

	Generation int // how often it was sent again from a dead-letter queue; 0 is the caller's own
}

// BodyKey is where llmq puts a body of r's aside when it is too large for a message: in a place of its own for each spelling of
// it, so that a message that was sent again leaves alone what an earlier one names.
func (r Request) BodyKey(body []byte) string {
	sum := sha256.Sum256(body)
	return r.bodies() + "-" + hex.EncodeToString(sum[:8])
}

// OwnsBody reports whether that is where llmq puts bodies of r's aside.
func (r Request) OwnsBody(key string) bool { return strings.HasPrefix(key, r.bodies()+"-") }

func (r Request) bodies() string { return "off/" + TenantHash(r.Tenant) + "/" + string(r.RID()) }

// ErrBodySwapped is why a body that lies aside was not taken: it is not the one that its message announced.
var ErrBodySwapped = errors.New("the stored body is another one")

// MayUse reports whether the request's key may use a target. A request that names a key and was given no
// models may use none, so that a check that was forgotten refuses (SECURITY-DESIGN KT4).
func (r Request) MayUse(t Target) bool { return r.KeyID == "" || r.Allowed.Has(t) }

// RID is the request's id inside llmq.
func (r Request) RID() RID { return NewRID(r.Tenant, r.ID) }

// Meta tells how a request was served. Successes and errors carry the same fields.
// Durations are those of the serving call, summed over its attempts.
type Meta struct {
	RequestID string        // the caller's id
	Model     string        // alias that served
	Target    string        // target that served, or was tried last
	Provider  string        // the target's provider
	ModelID   string        // the provider's own id of the model that served
	Lane      Lane          // lane it ran in
	Fallback  bool          // another target than the first served
	Attempts  int           // attempts sent to providers
	Takeovers int           // workers that died while they ran it
	QueueWait time.Duration // from the door's send to the worker's take
	Provided  time.Duration // spent waiting for providers
	Worker    string        // name of the worker that ran it
	Direct    bool          // it ran where its caller waited, and was not queued
	// Eta is how long the call was expected to wait for its start when it was sent to its queue; nil where that was not
	// forecast. Only the door knows it: it is not stored with a result.
	Eta *time.Duration
}

// Reply is a provider's answer: its bytes as they came.
type Reply struct {
	Status      int    // the provider's HTTP status, 2xx
	ContentType string // the provider's, without parameters that only it knows
	Body        []byte // JSON; of a stream its events as they are framed on the wire, without what ends it
	Stream      bool   // the reply was wanted while it came
	Meta        Meta
}
