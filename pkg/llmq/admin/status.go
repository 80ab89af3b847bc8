// Package admin holds the operator's verbs. They have an API of their own, apart from
// callers' keys, and never show a prompt or a reply.
package admin

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// Deps are what the verbs work with; all are required.
type Deps struct {
	Names     queue.Names
	Catalogue llmq.Catalogue
	Queue     queue.Queue
	Capacity  *capacity.Gate
	Valkey    redis.UniversalClient
	Bodies    bodies
	InForce   func(context.Context) InForce // what holds now: [Settings.InForce]
}

// bodies takes requests' bodies that are too large for a message.
type bodies interface {
	Put(ctx context.Context, key string, body []byte) (llmq.Ref, error)
}

// Admin serves the operator's verbs. It is safe for concurrent use.
type Admin struct{ Deps }

// New makes the verbs.
func New(d Deps) *Admin { return &Admin{Deps: d} }

// Status is the state of every queue and target.
type Status struct {
	Queues  []QueueStatus  `json:"queues"`
	Targets []TargetStatus `json:"targets"`
}

// QueueStatus is one queue's approximate counts. Error says why they could not be read.
type QueueStatus struct {
	Queue       queue.Name `json:"queue"`
	Model       string     `json:"model"`
	Lane        llmq.Lane  `json:"lane"`
	Waiting     int        `json:"waiting"`
	Received    int        `json:"received"` // handed to a worker and not yet deleted
	Delayed     int        `json:"delayed"`
	DeadLetters int        `json:"dead_letters"` // those included that an earlier look hides for a while
	Error       string     `json:"error,omitempty"`
}

// TargetStatus is one target. Error says why its use could not be read; the row then has none.
type TargetStatus struct {
	Target  string        `json:"target"` // alias@target
	Caps    Caps          `json:"caps,omitzero"`
	CapFrom config.Source `json:"cap_from,omitempty"` // the layer that Caps.Target is of
	*TargetUse
	Error string `json:"error,omitempty"`
}

// TargetUse is a target's limit and what is used of it.
type TargetUse struct {
	Limit   int                     `json:"limit"`    // slots in force
	LimitIs string                  `json:"limit_is"` // where that comes from: see the Limit constants
	InUse   int                     `json:"in_use"`
	Lanes   map[llmq.Lane]int       `json:"lanes"`   // in use, by lane
	Waiting int                     `json:"waiting"` // rt calls that wait for a slot
	Learned string                  `json:"learned"` // the limits in words, and which of them held calls back last, however long ago
	Breaker capacity.BreakerState   `json:"breaker"`
	Budgets Budgets                 `json:"budgets,omitzero"`
	Ended   map[capacity.Ending]int `json:"ended"`  // calls by how they ended
	Lapsed  int                     `json:"lapsed"` // slots that nobody returned

	OpenForMS    int64 `json:"open_for_ms,omitempty"`   // the breaker
	QuarantineMS int64 `json:"quarantine_ms,omitempty"` // nothing is admitted for so long: the store was wiped
}

// Where a target's limit comes from.
const (
	LimitUnproven   = "unproven"   // nothing was refused yet: it is how far we have come
	LimitSuspected  = "suspected"  // calls were refused, at a different width each time
	LimitLearned    = "learned"    // from refusals that agree
	LimitConfigured = "configured" // a configured cap is what holds it
)

// limitIs is where a ceiling of that certainty comes from.
func limitIs(c capacity.Certainty) string {
	switch c {
	case capacity.Configured:
		return LimitConfigured
	case capacity.Known, capacity.Sure:
		return LimitLearned
	case capacity.Suspect:
		return LimitSuspected
	case capacity.Untouched:
	}
	return LimitUnproven
}

// Caps are what is configured or set live on top of all that is learned; what has no cap is left out.
type Caps struct {
	Target      int               `json:"target,omitempty"`   // calls in flight
	Provider    int               `json:"provider,omitempty"` // calls in flight over all targets of its provider
	Lanes       map[llmq.Lane]int `json:"lanes,omitempty"`    // calls in flight of a lane
	RPM         int               `json:"rpm,omitempty"`
	TPM         int               `json:"tpm,omitempty"`
	ProviderRPM int               `json:"provider_rpm,omitempty"`
	ProviderTPM int               `json:"provider_tpm,omitempty"`
}

// capsOf are those of a target.
func capsOf(t llmq.Target) Caps {
	c := Caps{
		Target: t.MaxConcurrency, Provider: t.Shared.MaxConcurrency, RPM: t.Limits.Rates.RPM, TPM: t.Limits.Rates.TPM,
		ProviderRPM: t.Shared.Rates.RPM, ProviderTPM: t.Shared.Rates.TPM,
	}
	for lane, most := range t.Limits.Lanes {
		if most > 0 {
			if c.Lanes == nil {
				c.Lanes = map[llmq.Lane]int{}
			}
			c.Lanes[lane] = most
		}
	}
	return c
}

// Budgets are what is left of configured rates; what has none is left out. Left is what an rt call could draw at once:
// of a budget that is spread over the minute that is its burst, not the minute's rest.
type Budgets struct {
	StartedThisMinute *int `json:"started_this_minute,omitempty"`
	RPMLeft           *int `json:"rpm_left,omitempty"`
	TokensThisMinute  *int `json:"tokens_this_minute,omitempty"`
	TPMLeft           *int `json:"tpm_left,omitempty"`
	SharedRPMLeft     *int `json:"shared_rpm_left,omitempty"`
	SharedTPMLeft     *int `json:"shared_tpm_left,omitempty"`
}

// use is what the gate knows of a target.
func use(s capacity.State) *TargetUse {
	return &TargetUse{
		Limit: int(s.Learned.Slots.Limit), LimitIs: limitIs(s.Learned.Slots.Certainty), InUse: s.InUse, Lanes: s.Lanes, Waiting: s.Waiting,
		Learned: s.Learned.String(), Breaker: s.Breaker, Ended: s.Ended, Lapsed: s.Lapsed,
		OpenForMS: s.OpenFor.Milliseconds(), QuarantineMS: s.Quarantine.Milliseconds(),
		Budgets: Budgets{
			StartedThisMinute: set(s.CallsUsed), RPMLeft: set(s.CallsLeft), TokensThisMinute: set(s.TokensUsed), TPMLeft: set(s.TokensLeft),
			SharedRPMLeft: set(s.SharedCallsLeft), SharedTPMLeft: set(s.SharedTokensLeft),
		},
	}
}

// set is n, or nil where there is no budget.
func set(n int) *int {
	if n == capacity.None {
		return nil
	}
	return &n
}

// readers bounds how many queues are read at once.
const readers = 8

// Status reads everything; what can't be read says so in its own row.
func (a *Admin) Status(ctx context.Context) Status {
	st := Status{Queues: []QueueStatus{}, Targets: []TargetStatus{}}
	for _, m := range a.Catalogue.Models() {
		for _, l := range m.Lanes {
			st.Queues = append(st.Queues, QueueStatus{Queue: a.Names.Model(m.Alias, l), Model: m.Alias, Lane: l})
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, readers)
	for i := range st.Queues {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := a.readQueue(ctx, &st.Queues[i]); err != nil {
				st.Queues[i].Error = err.Error()
			}
		})
	}
	st.Targets = append(st.Targets, a.targets(ctx)...)
	wg.Wait()
	return st
}

func (a *Admin) readQueue(ctx context.Context, q *QueueStatus) error {
	d, err := a.Queue.Depth(ctx, q.Queue)
	if err != nil {
		return fmt.Errorf("read %s: %w", q.Queue, err)
	}
	dead, err := a.Queue.Depth(ctx, q.Queue.DLQ())
	if err != nil {
		return fmt.Errorf("read %s: %w", q.Queue.DLQ(), err)
	}
	q.Waiting, q.Received, q.Delayed, q.DeadLetters = d.Visible, d.InFlight, d.Delayed, dead.Visible+dead.InFlight
	return nil
}

// targets reads every target in one round trip.
func (a *Admin) targets(ctx context.Context) []TargetStatus {
	var b luascript.Batch
	var out []TargetStatus
	var states []luascript.Pending[capacity.State]
	now := a.InForce(ctx)
	for _, m := range now.Catalogue.Models() {
		for _, t := range m.Targets {
			row := TargetStatus{Target: t.String(), Caps: capsOf(t)}
			if row.Caps.Target > 0 {
				row.CapFrom = now.CapFrom[t.String()]
			}
			out = append(out, row)
			states = append(states, a.Capacity.Peek(&b, t))
		}
	}
	down := b.Run(ctx, a.Valkey)
	for i := range out {
		if down != nil {
			out[i].Error = down.Error()
			continue
		}
		s, err := states[i]()
		if err != nil {
			out[i].Error = err.Error()
			continue
		}
		out[i].TargetUse = use(s)
	}
	return out
}
