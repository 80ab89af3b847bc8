package broker

import "time"

// When a group of messages is noisy, and no longer, as AWS documents its fair queues. (That a group is noisy also when it takes over
// 10 % of the time that consumers spend is not done here.)
const (
	noisyInFlight = 30 // messages, at least
	noisyShare    = 10 // percent of the queue's messages in flight, over
	calmAfter     = 5 * time.Minute
)

// tenant is the messages of one MessageGroupId. All messages without one share a tenant that never counts as busy, which is the
// same as every one of them being a tenant of its own, as on AWS.
type tenant struct {
	id        string
	members   int              // messages anywhere in the queue
	inFlight  int              // always 0 for messages without a group
	ready     sorted[*message] // by order
	at        int              // index in queue.tenants, -1 when nothing is ready
	noisy     bool
	idleSince time.Time // when its last message in flight left that state
}

// oldest returns the tenant's ready message whose turn it is; nil when none is ready.
func (t *tenant) oldest() *message {
	m, _ := t.ready.top()
	return m
}

// fewestInFlight serves the tenant with the fewest messages in flight, then the oldest message.
func fewestInFlight(a, b *tenant) bool {
	if a.inFlight != b.inFlight {
		return a.inFlight < b.inFlight
	}
	return a.oldest().order < b.oldest().order
}

// quietFirst serves the oldest message of a tenant that isn't noisy, then of one that is.
func quietFirst(a, b *tenant) bool {
	if a.noisy != b.noisy {
		return b.noisy
	}
	return a.oldest().order < b.oldest().order
}

// judge finds a tenant noisy that has a backlog and too much in flight. It must be asked when either grows, and rank must follow.
func (q *queue) judge(t *tenant) {
	if t.oldest() != nil && t.inFlight >= noisyInFlight && t.inFlight*100 > q.count[inFlight]*noisyShare {
		t.noisy, q.noisy[t] = true, true
	}
}

// quieten ends that a tenant is noisy; rank must follow.
func (q *queue) quieten(t *tenant) {
	t.noisy = false
	delete(q.noisy, t)
}

// calm forgives the tenants of which nothing has been in flight for a while.
func (q *queue) calm(now time.Time) {
	for t := range q.noisy {
		if t.inFlight == 0 && now.Sub(t.idleSince) >= calmAfter {
			q.quieten(t)
			q.rank(t)
		}
	}
}

// rank puts a tenant where it belongs after its ready messages or its number in flight have changed. One whose backlog is drained is
// noisy no longer.
func (q *queue) rank(t *tenant) {
	switch listed, any := t.at >= 0, t.oldest() != nil; {
	case listed && any:
		q.tenants.fix(t)
	case listed:
		q.tenants.remove(t)
		q.quieten(t)
	case any:
		q.tenants.add(t)
	}
}
