package broker

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// handleOf returns the handle of one receive of a message. It carries the queue, the message and the number of the receive, so that
// only whoever received the message last can delete it or change its timeout.
func handleOf(q *queue, key uint64, receives int) string {
	plain := append(make([]byte, 0, 60), q.id...) // and two numbers
	plain = strconv.AppendUint(append(plain, ' '), key, 10)
	plain = strconv.AppendInt(append(plain, ' '), int64(receives), 10)
	return base64.StdEncoding.EncodeToString(plain)
}

// handle is one that has been read; the zero value is none.
type handle struct {
	queue   string
	key     uint64
	receive int
}

// readHandle needs no lock. Text that is no handle gives one that no queue knows.
func readHandle(text string) handle {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return handle{}
	}
	queue, rest, _ := strings.Cut(string(raw), " ")
	key, number, _ := strings.Cut(rest, " ")
	receive, receiveErr := strconv.Atoi(number)
	which, keyErr := strconv.ParseUint(key, 10, 64)
	if receiveErr != nil || keyErr != nil {
		return handle{}
	}
	return handle{queue, which, receive}
}

// find returns the message of a handle, or nil when the message is gone or has been received again since. Fails with
// ReceiptHandleIsInvalid when it is no handle of this queue.
func (q *queue) find(h handle) (*message, error) {
	if h.queue != q.id {
		return nil, invalidHandle()
	}
	m := q.messages[h.key]
	if m == nil || m.receives != h.receive {
		return nil, nil
	}
	return m, nil
}

func invalidHandle() error {
	return Fail(ReceiptHandleIsInvalid, "The input receipt handle is not a valid receipt handle.")
}

// Delete removes the message of a handle. It succeeds without effect when the message is gone, or when it has been received again
// since: then it stays, and its new holder is not disturbed. The latest handle deletes even after its timeout has ended.
func (b *Broker) Delete(name, text string) error {
	h := readHandle(text)
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
	return q.delete(h)
}

// DeleteBatch deletes as Delete does, in one moment, and puts the fate of each handle in errs at its index. It leaves out the empty ones.
func (b *Broker) DeleteBatch(name string, texts []string, errs []error) error {
	handles := make([]handle, len(texts))
	for i, text := range texts {
		handles[i] = readHandle(text)
	}
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
	for i, h := range handles {
		if texts[i] != "" {
			errs[i] = q.delete(h)
		}
	}
	return nil
}

func (q *queue) delete(h handle) error {
	m, err := q.find(h)
	if err != nil || m == nil {
		return err
	}
	q.forget(m)
	return nil
}

// ChangeVisibility hides the message of a handle for so many seconds from now; 0 makes it visible. It does not change what the
// next receive gets. Fails with MessageNotInflight when the message's timeout has ended, and with InvalidParameterValue when it is
// gone, when it has been received again, or when it would be hidden for over 12 h in all since it was received. (The sum is in
// whole seconds: 43,200 is refused once a second has passed.)
func (b *Broker) ChangeVisibility(name, text string, seconds int) error {
	h := readHandle(text)
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
	if seconds < 0 || seconds > MaxVisibility {
		return invalidValue(attrVisibility, seconds, "VisibilityTimeout must be an integer between 0 and 43200.")
	}
	m, err := q.find(h)
	if err != nil {
		return err
	}
	if m == nil {
		return invalidValue("ReceiptHandle", text, "Message does not exist or is not available for visibility timeout change.")
	}
	if m.place != inFlight {
		return Fail(MessageNotInflight, "The specified message isn't in flight.")
	}
	now := time.Now()
	if int(now.Sub(m.receivedAt)/time.Second)+seconds > MaxVisibility {
		return invalidValue(attrVisibility, seconds, "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")
	}
	if seconds == 0 {
		q.show(m)
		return nil
	}
	q.hide(m, inFlight, now.Add(time.Duration(seconds)*time.Second))
	return nil
}
