package worker

import (
	"math/rand/v2"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

const (
	// maxReceives is how many receives the releases are spread over. The template lets SQS grant 1,000 before it moves a
	// message to the dead-letter queue; the rest is for the receives that no release paces: of workers
	// that died, of visibilities that could not be set, of batches that a throttled Lambda handed back.
	// retention is when SQS drops a message that nobody has deleted, as the template sets it.
	maxReceives = 900
	retention   = 4 * 24 * time.Hour
	// freeReceives may be used up as fast as releases ask for. Up to aheadReceives the rest is spread over
	// the time to the deadline, and then over what is left of the retention. That takes at least 384 of
	// maxReceives, for no release is longer than 15 minutes.
	freeReceives  = 350
	aheadReceives = 500

	// outageLeast and outageMost bound the releases for want of the state store while somebody may wait for
	// the answer: soon back after a short outage, and within seconds after a long one.
	outageLeast = 2 * time.Second
	outageMost  = 15 * time.Second
	// overdueMost is outageMost for a message whose deadline has passed: only its end is left to be
	// told, which has time.
	overdueMost = 5 * time.Minute

	// After an outage a claim may be nobody's: its take was delivered late, and whoever gave up on it gives it back when
	// he hears the store. So for as long as it could hold by itself, a busy message is looked at soon.
	afterOutage = 45 * time.Second
	busyLeast   = time.Second
	busyMost    = 4 * time.Second
)

// outagePace is for how long a message is handed back that the engine releases. For want of the state
// store that is up to half as long as the outage so far, since each look costs a receive; the
// engine knows only of its own call (FEATURES C9).
func (w *Worker) outagePace(deadline time.Time, v engine.Verdict) time.Duration {
	switch {
	case v.Reason == engine.ReasonBusy && w.Store.BackWithin(afterOutage):
		return min(v.After, busyLeast+rand.N(busyMost-busyLeast)) //nolint:gosec // as below
	case v.Reason != engine.ReasonStoreUnavailable:
		return v.After
	}
	most := outageMost
	if !time.Now().Before(deadline) {
		most = overdueMost
	}
	away := min(max(w.Store.DownFor()/2, outageLeast), most)
	away -= rand.N(away / 2) //nolint:gosec // spreads retries; nothing is secret
	if v.Defer != nil {      // the claim is given back until then
		away = max(away, v.After)
	}
	return away
}

// spare is for how long a message must stay away at least for its receives to last: a healthy message
// must not end in the dead-letter queue because it was handed back too often. It is 0 while
// there are plenty. A zero deadline is one that is not known.
func spare(m queue.Message, deadline time.Time) time.Duration {
	if m.ReceiveCount < freeReceives {
		return 0
	}
	if ahead := time.Until(deadline); ahead > 0 && m.ReceiveCount < aheadReceives {
		return ahead / time.Duration(aheadReceives-m.ReceiveCount)
	}
	return max(0, time.Until(m.SentAt.Add(retention))) / time.Duration(max(1, maxReceives-m.ReceiveCount))
}
