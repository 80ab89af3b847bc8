// Package keys builds every Valkey key and channel that llmq uses, so that names,
// hash tags and the patterns of access rules stand in one place (SECURITY-DESIGN VK1).
//
// There are four hash tags: {rid} holds all that belongs to one request, {cap} all that
// decides an admission, {kid} the calls of one key, {live} what operators set. A script stays inside one of them.
package keys

import "github.com/llm-queue/llmq/pkg/llmq"

// Space is the key space of one environment. The zero value is not usable.
type Space struct{ prefix string }

// New is the key space of env, which has matched [a-z0-9-]{1,16}.
func New(env string) Space { return Space{prefix: "llmq:" + env + ":"} }

// Call holds the names that belong to one request. They share a slot.
type Call struct {
	Submission string // hash: what was submitted under the id
	Claim      string // hash: who runs it, under which fence
	Result     string // string: how it ended
	Stream     string // stream: what the reply has said so far, where it is passed on while it comes
	Wake       string // channel: told once the result is stored, and of each piece of a stream
}

// Call names what belongs to a tenant's request.
func (s Space) Call(tenant string, rid llmq.RID) Call {
	tail := llmq.TenantHash(tenant) + ":{" + string(rid) + "}"
	return Call{
		Submission: s.prefix + "sub:" + tail,
		Claim:      s.prefix + "clm:" + tail,
		Result:     s.prefix + "res:" + tail,
		Stream:     s.prefix + "st:" + tail,
		Wake:       s.prefix + "wake:" + tail,
	}
}

// Replied names the string that says that a producer was told by that alias how a request ended. It is of the class of results.
func (s Space) Replied(tenant string, rid llmq.RID, alias string) string {
	return s.Call(tenant, rid).Result + ":replied:" + alias
}

// Body names the string that holds a request's body where there is no bucket for those that are too large for a message. tenant
// is the tenant's hash.
func (s Space) Body(tenant string, rid llmq.RID) string {
	return s.prefix + "off:" + tenant + ":{" + string(rid) + "}"
}

// Stop is the channel on which a worker is told to stop one of the requests that it runs.
// It belongs to no request: whoever runs many listens once. With an empty name it is what
// all of them begin with.
func (s Space) Stop(worker string) string { return s.prefix + "stop:" + worker }

// Target holds the names that decide an admission to one target. They share the
// slot of every other target's, and of all that is below.
type Target struct {
	State   string // hash: what was learned, budgets, breaker, calls by ending
	RT      string // sorted set: call id -> lease end in ms; the slots that rt calls hold
	BG      string // the same of bg
	Bulk    string // the same of bulk
	Waiting string // sorted set: call id of an rt call that waits -> its deadline in ms
}

// Target names the capacity state of a target.
func (s Space) Target(t llmq.Target) Target {
	head := s.capacity() + t.String()
	return Target{State: head + ":state", RT: head + ":rt", BG: head + ":bg", Bulk: head + ":bulk", Waiting: head + ":waiting"}
}

// Provider holds the names of what a provider's targets share. No alias begins with
// the @ that marks them.
type Provider struct {
	State string // hash: budgets
	Slots string // sorted set: call id -> lease end in ms
}

// Provider names the shared capacity state of a provider.
func (s Space) Provider(name string) Provider {
	head := s.capacity() + "@" + name
	return Provider{State: head + ":state", Slots: head + ":slots"}
}

// Rate names the sorted set of a key's calls of the last minute: call id -> when it began in ms. kid has been held
// against its pattern.
func (s Space) Rate(kid string) string { return s.prefix + "rate:{" + kid + "}" }

// Epoch names the key that marks live capacity state: when admissions begin, in ms. A
// store without it was wiped.
func (s Space) Epoch() string { return s.capacity() + "epoch" }

// Callers holds the names that tell of the processes which may run calls without the store, should it be lost. They stand beside the
// epoch.
type Callers struct {
	Alive string // sorted set: process -> when it was last heard, in ms
	Heard string // string: when any of them was, in ms
}

// Callers names those of the environment.
func (s Space) Callers() Callers {
	return Callers{Alive: s.capacity() + "callers", Heard: s.capacity() + "heard"}
}

// Live holds the names of what operators set while processes run. They are a class of their own, since nobody but operators may
// write them.
type Live struct {
	Settings string // hash: the document, its revision, and the change that made it
	Audit    string // list: the changes, the last one first
}

// Live names those of the environment.
func (s Space) Live() Live {
	head := s.prefix + "live:{live}:"
	return Live{Settings: head + "settings", Audit: head + "audit"}
}

// Failover holds the names that say whether a model's calls are run where their callers wait, because its queue takes
// nothing. A target's names have an @ where these have none.
type Failover struct {
	Direct string // string, expires: they are
	Silent string // string, expires: sends in the last minute that got no answer
	Probe  string // string, expires: a call tries the queue
}

// Failover names that of a model.
func (s Space) Failover(alias string) Failover {
	head := s.capacity() + alias
	return Failover{Direct: head + ":direct", Silent: head + ":silent", Probe: head + ":probe"}
}

// Forecast holds the names of what is forecast of a model.
type Forecast struct {
	Snapshot string // hash: how much waited when, and what was sent since
	Learned  string // string: what the governor keeps from one snapshot to the next
}

// Forecast names that of a model. They stand alone, without a tag: no alias has an @.
func (s Space) Forecast(alias string) Forecast {
	head := s.prefix + "fc:" + alias
	return Forecast{Snapshot: head, Learned: head + "@learned"}
}

// capacity begins every name that decides an admission. Its tag puts them into one slot of
// the store, so that one script can decide; split by provider, it would be made here.
func (s Space) capacity() string { return s.prefix + "cap:{cap}:" }

// Schema is the number of what is stored under these names. A release that stores what the one
// before would misread counts it up.
const Schema = 1

// Schema names the key that holds the [Schema] of the store's newest writer. It stands alone,
// without a tag.
func (s Space) Schema() string { return s.prefix + "cfg:schema" }
