package broker

import (
	"crypto/rand"
	"slices"
	"time"
)

// place is where a message of a queue is.
type place int

const (
	ready    place = iota // may be received now
	delayed               // not visible yet, never received since it was sent
	inFlight              // received, its visibility timeout running
	nowhere               // out of the queue, on its way elsewhere
)

// backOfQueueAfter is how many receives of a message without a delete put it behind everything else in its queue, as AWS does to
// keep a message that nobody can handle out of the way.
const backOfQueueAfter = 3

// message is one message of one queue. Nothing of what the sender gave is changed after the send, so it may be read without the
// lock.
type message struct {
	Outgoing
	id        string
	key       uint64 // what handles and the queue know it by; unlike its id, a twin that a fault made does not share it
	senderID  string
	sourceARN string // of the queue it was moved here from, if it is a dead letter
	sentAt    time.Time

	firstReceivedAt time.Time // zero: never received
	receivedAt      time.Time
	receives        int // by all queues, what ApproximateReceiveCount tells
	receivesHere    int // by this queue, what its redrive policy counts

	place     place
	visibleAt time.Time // when delayed or in flight
	order     uint64    // lower is older; ready messages of a tenant go by it
	tenant    *tenant

	at    spot[*message] // in queue.hidden or tenant.ready
	atAge spot[*message] // in queue.byAge
}

// queue is one queue. The broker's mutex guards it, but for gone and the fields of the first group, which never change.
type queue struct {
	id      string // random, so that a handle of a deleted queue is no handle of its namesake
	name    string
	arn     string
	max     int  // messages in flight
	held    *int // bytes of all messages of all queues
	created time.Time
	gone    chan struct{} // closed when the queue is deleted

	settings settings
	modified time.Time
	purged   time.Time // zero: never
	tags     map[string]string
	moves    []*move // newest last

	messages map[uint64]*message
	byAge    sorted[*message] // all, by sentAt: the first to expire on top
	hidden   sorted[*message] // delayed and in flight, by visibleAt
	tenants  indexed[*tenant] // those with something ready, the next to be served on top
	noisy    map[*tenant]bool // those found to be noisy
	byGroup  map[string]*tenant
	count    [nowhere]int // messages by place
	last     uint64       // order given last

	waiters []*waiter // longest wait first
	alarm   alarm     // at the top of hidden
}

// queueIDLength is that of a queue's id in characters, 5 bits each: few, as every handle carries it.
const queueIDLength = 16

func newQueue(name, arn string, c Config, held *int, s settings, now time.Time) *queue {
	fairer := fewestInFlight
	if c.NoisyGroups {
		fairer = quietFirst
	}
	return &queue{
		id: rand.Text()[:queueIDLength], name: name, arn: arn, max: c.MaxInFlight, held: held, created: now, gone: make(chan struct{}),
		settings: s, modified: now, tags: map[string]string{},
		messages: map[uint64]*message{},
		noisy:    map[*tenant]bool{},
		byGroup:  map[string]*tenant{},
		byAge: newSorted(
			func(a, b *message) bool { return a.sentAt.Before(b.sentAt) },
			func(m *message) *spot[*message] { return &m.atAge },
		),
		hidden: newSorted(
			func(a, b *message) bool { return a.visibleAt.Before(b.visibleAt) },
			func(m *message) *spot[*message] { return &m.at },
		),
		tenants: indexed[*tenant]{
			less:  fairer,
			place: func(t *tenant) *int { return &t.at },
		},
	}
}

func (q *queue) isGone() bool {
	select {
	case <-q.gone:
		return true
	default:
		return false
	}
}

// silence ends the queue's timers for good.
func (q *queue) silence() {
	q.alarm.stop()
	for _, mv := range q.moves {
		mv.alarm.stop()
	}
}

// refresh does what has become due by now.
func (q *queue) refresh(now time.Time) {
	for m, ok := q.hidden.top(); ok && !m.visibleAt.After(now); m, ok = q.hidden.top() {
		q.show(m)
	}
	q.calm(now)
	oldest := now.Add(-q.settings.retention())
	for m, ok := q.byAge.top(); ok && !m.sentAt.After(oldest); m, ok = q.byAge.top() {
		q.forget(m)
	}
}

// settle ends every operation: it sets the alarm for what is due next, and wakes a poll if there is something for it.
func (q *queue) settle() {
	var next time.Time
	if m, ok := q.byAge.top(); ok {
		next = m.sentAt.Add(q.settings.retention())
	}
	if m, ok := q.hidden.top(); ok && m.visibleAt.Before(next) {
		next = m.visibleAt
	}
	q.alarm.set(next)
	q.wake()
}

// add takes a message in: visible now, or hidden until visibleAt if that is set.
func (q *queue) add(m *message, visibleAt time.Time) {
	t := q.byGroup[m.GroupID]
	if t == nil {
		t = &tenant{id: m.GroupID, at: -1, ready: newSorted(
			func(a, b *message) bool { return a.order < b.order },
			func(m *message) *spot[*message] { return &m.at },
		)}
		q.byGroup[m.GroupID] = t
	}
	t.members++
	q.last++
	m.order, m.tenant, m.place = q.last, t, nowhere
	q.messages[m.key] = m
	*q.held += m.weight()
	q.byAge.add(m)
	if visibleAt.IsZero() {
		q.show(m)
		return
	}
	q.hide(m, delayed, visibleAt)
}

// show makes a message ready.
func (q *queue) show(m *message) {
	q.takeOut(m)
	if m.receivesHere >= backOfQueueAfter {
		q.last++
		m.order = q.last
	}
	m.place = ready
	q.count[ready]++
	m.tenant.ready.add(m)
	q.judge(m.tenant)
	q.rank(m.tenant)
}

// hide makes a message delayed or in flight until the given time.
func (q *queue) hide(m *message, where place, until time.Time) {
	q.takeOut(m)
	m.place, m.visibleAt = where, until
	q.count[where]++
	q.hidden.add(m)
	if where == inFlight && m.tenant.id != "" {
		m.tenant.inFlight++
		q.judge(m.tenant)
		q.rank(m.tenant)
	}
}

// takeOut takes a message from where it is, to nowhere.
func (q *queue) takeOut(m *message) {
	was := m.place
	m.place = nowhere
	switch was {
	case nowhere:
		return
	case ready:
		m.tenant.ready.remove(m)
		q.rank(m.tenant)
	case delayed:
		q.hidden.remove(m)
	case inFlight:
		q.hidden.remove(m)
		if m.tenant.id != "" {
			if m.tenant.inFlight--; m.tenant.inFlight == 0 {
				m.tenant.idleSince = time.Now()
			}
			q.rank(m.tenant)
		}
	}
	q.count[was]--
}

// forget drops a message from the queue.
func (q *queue) forget(m *message) {
	q.takeOut(m)
	q.byAge.remove(m)
	delete(q.messages, m.key)
	*q.held -= m.weight()
	if m.tenant.members--; m.tenant.members == 0 {
		delete(q.byGroup, m.tenant.id)
	}
	m.tenant = nil
}

// next returns the message whose turn it is, and leaves it where it is; nil when none is ready.
func (q *queue) next() *message {
	t, ok := q.tenants.top()
	if !ok {
		return nil
	}
	return t.oldest()
}

// full tells whether no more messages may be in flight.
func (q *queue) full() bool { return q.count[inFlight] >= q.max }

// waiter is one poll that waits. Its wake channel holds one token, so waking it never blocks.
type waiter struct {
	wake  chan struct{}
	woken bool // a token was sent and not acted upon yet
}

// join makes a poll wait on the queue.
func (q *queue) join() *waiter {
	w := &waiter{wake: make(chan struct{}, 1)}
	q.waiters = append(q.waiters, w)
	return w
}

// quit ends a poll's wait, for whatever reason. If it had been woken, settle wakes the next one in its stead.
func (q *queue) quit(w *waiter) {
	q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == w })
}

// wake gives the poll that has waited longest a chance if something is ready for it. It wakes one: that poll takes what it wants
// and, as every operation does, wakes the next if there is more.
func (q *queue) wake() {
	if q.count[ready] == 0 || q.full() {
		return
	}
	for _, w := range q.waiters {
		if !w.woken {
			w.woken = true
			w.wake <- struct{}{}
			return
		}
	}
}
