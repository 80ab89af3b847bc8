package broker

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// nameReuseAfter is how long a deleted queue's name stays taken.
	nameReuseAfter = 60 * time.Second
	// purgeEvery is the least time between two purges of a queue.
	purgeEvery = 60 * time.Second
	// maxInFlight is how many messages of a queue AWS allows in flight.
	maxInFlight = 120_000
	// maxQueues and maxBytes are what a broker holds unless told otherwise: more than any test needs, less than a machine has.
	maxQueues = 10_000
	maxBytes  = 1 << 30
	// maxQueueName is the longest queue name, in characters.
	maxQueueName = 80
)

// Config places a broker.
type Config struct {
	Region    string // of every ARN, such as "us-east-1"
	AccountID string // twelve digits, owner of every queue

	// MaxInFlight is how many messages of a queue may be in flight at once. 0 means 120,000, as on AWS; scenarios lower it.
	MaxInFlight int

	// NoisyGroups serves groups by age, but those that are noisy after the others, instead of those with the fewest messages in
	// flight first.
	NoisyGroups bool

	// MaxQueues and MaxBytes bound what the broker holds in all; AWS has no such bounds. 0 means 10,000 queues and 1 GiB.
	MaxQueues, MaxBytes int
}

// Broker holds the queues of one account and region. It is safe for concurrent use.
type Broker struct {
	config  Config
	closing chan struct{}  // closed by Close; ends every poll
	running sync.WaitGroup // polls that wait and alarms that are set

	mu      sync.Mutex // guards everything below, and every queue
	closed  bool
	held    int // weight of all messages
	lastKey uint64
	queues  map[string]*queue
	deleted map[string]time.Time // names of deleted queues that may not be used again yet
}

// New returns a broker without queues. Close it to end its timers and polls.
func New(config Config) *Broker {
	config.MaxInFlight = cmp.Or(config.MaxInFlight, maxInFlight)
	config.MaxQueues = cmp.Or(config.MaxQueues, maxQueues)
	config.MaxBytes = cmp.Or(config.MaxBytes, maxBytes)
	return &Broker{
		config:  config,
		closing: make(chan struct{}),
		queues:  map[string]*queue{},
		deleted: map[string]time.Time{},
	}
}

// Close ends every waiting poll (it returns no message) and every timer, and returns when none of their goroutines is left.
// Operations that come later fail with Unavailable. Closing twice is fine.
func (b *Broker) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
		for _, q := range b.queues {
			q.silence()
		}
	}
	b.mu.Unlock()
	b.running.Wait()
}

// enter takes the mutex, or fails when the broker is closed.
func (b *Broker) enter() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return Fail(Unavailable, "The server is shutting down.")
	}
	return nil
}

// open takes the mutex and returns the queue with everything due done: what has become visible is ready, what is too old is
// gone. After a success the caller must call leave; after a failure the mutex is free.
func (b *Broker) open(name string) (*queue, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	q, ok := b.queues[name]
	if !ok {
		b.mu.Unlock()
		return nil, noSuchQueue()
	}
	q.refresh(time.Now())
	return q, nil
}

// leave sets the queue's alarm anew, wakes a poll if there is something for it, and frees the mutex.
func (b *Broker) leave(q *queue) {
	q.settle()
	b.mu.Unlock()
}

func noSuchQueue() error { return Fail(QueueDoesNotExist, "The specified queue does not exist.") }

// ARN returns the Amazon Resource Name of the queue of that name.
func (b *Broker) ARN(name string) string {
	return "arn:aws:sqs:" + b.config.Region + ":" + b.config.AccountID + ":" + name
}

// byARN returns the queue an ARN names, or nil.
func (b *Broker) byARN(arn string) *queue {
	name, ours := strings.CutPrefix(arn, b.ARN(""))
	if !ours {
		return nil
	}
	return b.queues[name]
}

// CreateQueue makes a queue, or does nothing when one of that name exists and has the same value for every attribute given.
// Fails with QueueNameExists when a value differs, QueueDeletedRecently within 60 s of a deletion, and UnsupportedOperation for a
// FIFO queue.
func (b *Broker) CreateQueue(name string, attributes, tags map[string]string) error {
	if err := checkQueueName(name); err != nil {
		return err
	}
	if err := checkTags(tags); err != nil {
		return err
	}
	if err := b.enter(); err != nil {
		return err
	}
	defer b.mu.Unlock()
	if q, ok := b.queues[name]; ok {
		return b.matches(q, attributes)
	}
	now := time.Now()
	maps.DeleteFunc(b.deleted, func(_ string, at time.Time) bool { return now.Sub(at) >= nameReuseAfter })
	if _, ok := b.deleted[name]; ok {
		return Fail(QueueDeletedRecently, "You must wait 60 seconds after deleting a queue before you can create another with the same name.")
	}
	if len(b.queues) >= b.config.MaxQueues {
		return Fail(Unavailable, "This local SQS server has as many queues as it may: %d.", b.config.MaxQueues)
	}
	s, err := b.apply(defaultSettings(), b.ARN(name), attributes)
	if err != nil {
		return err
	}
	q := newQueue(name, b.ARN(name), b.config, &b.held, s, now)
	maps.Copy(q.tags, tags)
	q.alarm.running = &b.running
	q.alarm.fire = func() { b.due(q) }
	b.queues[name] = q
	return nil
}

// matches tells whether a queue that exists may be "created" again with these attributes.
func (b *Broker) matches(q *queue, attributes map[string]string) error {
	want, err := b.apply(q.settings, q.arn, attributes)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if want.value(name) != q.settings.value(name) {
			return Fail(QueueNameExists, "A queue already exists with the same name and a different value for attribute %s", name)
		}
	}
	return nil
}

// due is a queue's alarm: a delay, a visibility timeout or a retention has ended.
func (b *Broker) due(q *queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || q.isGone() {
		return
	}
	now := time.Now()
	q.alarm.rung(now)
	q.refresh(now)
	q.settle()
}

// CheckQueue fails with QueueDoesNotExist when there is no queue of that name.
func (b *Broker) CheckQueue(name string) error {
	q, err := b.open(name)
	if err != nil {
		return err
	}
	b.leave(q)
	return nil
}

// DeleteQueue removes a queue and its messages at once. Polls that wait on it fail with QueueDoesNotExist.
func (b *Broker) DeleteQueue(name string) error {
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	q.silence()
	for _, m := range q.messages {
		q.forget(m)
	}
	close(q.gone)
	delete(b.queues, name)
	b.deleted[name] = time.Now()
	return nil
}

// PurgeQueue drops every message of a queue, also those in flight and delayed, at once (AWS takes up to 60 s). Fails with
// PurgeQueueInProgress within 60 s of the last purge.
func (b *Broker) PurgeQueue(name string) error {
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
	now := time.Now()
	if !q.purged.IsZero() && now.Sub(q.purged) < purgeEvery {
		return Fail(PurgeQueueInProgress, "Only one PurgeQueue operation on %s is allowed every 60 seconds.", name)
	}
	q.purged = now
	for _, m := range q.messages {
		q.forget(m)
	}
	return nil
}

// ListQueues returns the names that begin with prefix, in order, at most limit of them, beginning after the name in after. next
// is the last name returned when there are more.
func (b *Broker) ListQueues(prefix, after string, limit int) (names []string, next string, err error) {
	if err := b.enter(); err != nil {
		return nil, "", err
	}
	defer b.mu.Unlock()
	return page(maps.Keys(b.queues), func(name string) bool { return strings.HasPrefix(name, prefix) }, after, limit)
}

// DeadLetterSources returns the names of the queues whose dead-letter queue is the one named, paged as ListQueues does.
func (b *Broker) DeadLetterSources(name, after string, limit int) (names []string, next string, err error) {
	q, err := b.open(name)
	if err != nil {
		return nil, "", err
	}
	defer b.leave(q)
	return page(maps.Keys(b.queues), func(name string) bool { return b.queues[name].settings.feeds(q.arn) }, after, limit)
}

// page sorts the names that pass and cuts out one page.
func page(all func(func(string) bool), pass func(string) bool, after string, limit int) ([]string, string, error) {
	var names []string
	for name := range all {
		if name > after && pass(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) <= limit {
		return names, "", nil
	}
	return names[:limit], names[limit-1], nil
}

func checkQueueName(name string) error {
	if strings.HasSuffix(name, ".fifo") {
		return noFIFO()
	}
	if name == "" || len(name) > maxQueueName || strings.IndexFunc(name, notNameRune) >= 0 {
		return Fail(InvalidParameterValue, "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	return nil
}

func notNameRune(r rune) bool { return !isAlphanumeric(r) && r != '-' && r != '_' }

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// noFIFO refuses FIFO queues in so many words, lest somebody take a standard queue's order for granted.
func noFIFO() error {
	return Fail(UnsupportedOperation, "FIFO queues are not supported by this local SQS server.")
}

// newID returns a random UUID (version 4).
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	s := hex.EncodeToString(id[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
