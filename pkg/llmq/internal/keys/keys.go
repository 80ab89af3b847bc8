// Package keys builds every Valkey key and channel that llmq uses, so that names,
// hash tags and the patterns of access rules stand in one place (SECURITY-DESIGN VK1).
//
// There are two hash tags and no third: {rid} holds all that belongs to one request,
// {cap} all that decides an admission. A script stays inside one of them.
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
	Wake       string // channel: told once the result is stored
}

// Call names what belongs to a tenant's request.
func (s Space) Call(tenant string, rid llmq.RID) Call {
	tail := llmq.TenantHash(tenant) + ":{" + string(rid) + "}"
	return Call{
		Submission: s.prefix + "sub:" + tail,
		Claim:      s.prefix + "clm:" + tail,
		Result:     s.prefix + "res:" + tail,
		Wake:       s.prefix + "wake:" + tail,
	}
}

// Stop is the channel on which a worker is told to stop one of the requests that it runs.
// It belongs to no request: whoever runs many listens once. With an empty name it is what
// all of them begin with.
func (s Space) Stop(worker string) string { return s.prefix + "stop:" + worker }

// Target holds the names that decide an admission to one target. They share the
// slot of every other target's.
type Target struct {
	Slots string // sorted set: call id -> lease end in ms
	Tally string // hash: how calls ended, by ending
}

// Target names the capacity state of a target.
func (s Space) Target(t llmq.Target) Target {
	head := s.prefix + "cap:{cap}:" + t.String()
	return Target{Slots: head + ":slots", Tally: head + ":tally"}
}
