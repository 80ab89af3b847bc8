package broker

import "time"

// Sent is what became of one message of a batch: the id it got, or why it was refused.
type Sent struct {
	MessageID string
	Err       error
}

// Send puts one message on a queue and returns its id.
func (b *Broker) Send(name, senderID string, o Outgoing) (string, error) {
	sent, err := b.enqueue(name, senderID, []Outgoing{o})
	if err != nil {
		return "", err
	}
	return sent[0].MessageID, sent[0].Err
}

// SendBatch puts messages on a queue, all in one moment, so that a poll that waits may get them together. Each is taken or refused
// by itself, but the whole call fails with BatchRequestTooLong when they are over 1 MiB in all.
func (b *Broker) SendBatch(name, senderID string, batch []Outgoing) ([]Sent, error) {
	total := 0
	for _, o := range batch {
		total += o.Bytes()
	}
	if total > MaxMessageBytes {
		return nil, Fail(BatchRequestTooLong, "Batch requests cannot be longer than %d bytes. You have sent %d bytes.", MaxMessageBytes, total)
	}
	return b.enqueue(name, senderID, batch)
}

func (b *Broker) enqueue(name, senderID string, batch []Outgoing) ([]Sent, error) {
	sent := make([]Sent, len(batch))
	for i, o := range batch { // before the lock: it reads every byte
		if err := o.check(); err != nil {
			sent[i].Err = err
			continue
		}
		sent[i].MessageID = newID()
	}
	q, err := b.open(name)
	if err != nil {
		return nil, err
	}
	defer b.leave(q)
	now := time.Now()
	for i, o := range batch {
		if sent[i].Err != nil {
			continue
		}
		if o.Bytes() > q.settings.maxBytes {
			sent[i] = Sent{Err: Fail(InvalidParameterValue,
				"One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", q.settings.maxBytes)}
			continue
		}
		delay := q.settings.delay
		if o.DelaySeconds != nil {
			delay = *o.DelaySeconds
		}
		var visibleAt time.Time
		if delay > 0 {
			visibleAt = now.Add(time.Duration(delay) * time.Second)
		}
		if !b.room(o) {
			sent[i] = Sent{Err: Fail(Unavailable, "This local SQS server holds as many bytes as it may: %d.", b.config.MaxBytes)}
			continue
		}
		for range o.Fate.copies() {
			q.add(&message{Outgoing: o, id: sent[i].MessageID, key: b.newKey(), senderID: senderID, sentAt: now}, visibleAt)
		}
	}
	return sent, nil
}

// newKey returns a number that no other message has, in any queue.
func (b *Broker) newKey() uint64 {
	b.lastKey++
	return b.lastKey
}

// upkeep is about what a message takes in memory besides its own bytes: its struct, its places in heaps and maps, its id.
const upkeep = 1 << 10

func (m *message) weight() int { return m.Bytes() + upkeep }

// room tells whether one more message may be held.
func (b *Broker) room(o Outgoing) bool { return b.held+o.Bytes()+upkeep <= b.config.MaxBytes }
