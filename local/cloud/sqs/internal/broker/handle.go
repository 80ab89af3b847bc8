package broker

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// handleOf returns the handle of a message's latest receive. It carries the queue, the message and the number of the receive, so
// that only whoever received the message last can delete it or change its timeout.
func handleOf(q *queue, m *message) string {
	plain := append(make([]byte, 0, 80), q.id...) // 36 bytes, and two numbers
	plain = strconv.AppendUint(append(plain, ' '), m.key, 10)
	plain = strconv.AppendInt(append(plain, ' '), int64(m.receives), 10)
	return base64.StdEncoding.EncodeToString(plain)
}

// find returns the message of a handle, or nil when the message is gone or has been received again since. Fails with
// ReceiptHandleIsInvalid when it is no handle of this queue.
func (q *queue) find(handle string) (*message, error) {
	raw, err := base64.StdEncoding.DecodeString(handle)
	if err != nil {
		return nil, invalidHandle()
	}
	id, rest, _ := strings.Cut(string(raw), " ")
	key, number, _ := strings.Cut(rest, " ")
	receive, receiveErr := strconv.Atoi(number)
	which, keyErr := strconv.ParseUint(key, 10, 64)
	if id != q.id || receiveErr != nil || keyErr != nil {
		return nil, invalidHandle()
	}
	m := q.messages[which]
	if m == nil || m.receives != receive {
		return nil, nil
	}
	return m, nil
}

func invalidHandle() error {
	return Fail(ReceiptHandleIsInvalid, "The input receipt handle is not a valid receipt handle.")
}

// Delete removes the message of a handle. It succeeds without effect when the message is gone, or when it has been received again
// since: then it stays, and its new holder is not disturbed. The latest handle deletes even after its timeout has ended.
func (b *Broker) Delete(name, handle string) error {
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
	return q.delete(handle)
}

// DeleteBatch deletes as Delete does, in one moment, and puts the fate of each handle in errs at its index. It leaves out empty handles.
func (b *Broker) DeleteBatch(name string, handles []string, errs []error) error {
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
	for i, handle := range handles {
		if handle != "" {
			errs[i] = q.delete(handle)
		}
	}
	return nil
}

func (q *queue) delete(handle string) error {
	m, err := q.find(handle)
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
func (b *Broker) ChangeVisibility(name, handle string, seconds int) error {
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
	if seconds < 0 || seconds > MaxVisibility {
		return invalidValue(attrVisibility, seconds, "VisibilityTimeout must be an integer between 0 and 43200.")
	}
	m, err := q.find(handle)
	if err != nil {
		return err
	}
	if m == nil {
		return invalidValue("ReceiptHandle", handle, "Message does not exist or is not available for visibility timeout change.")
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
