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
	return base64.StdEncoding.EncodeToString([]byte(q.id + " " + m.key + " " + strconv.Itoa(m.receives)))
}

// find returns the message of a handle, or nil when the message is gone or has been received again since. Fails with
// ReceiptHandleIsInvalid when it is no handle of this queue.
func (q *queue) find(handle string) (*message, error) {
	invalid := Fail(ReceiptHandleIsInvalid, "The input receipt handle is not a valid receipt handle.")
	raw, err := base64.StdEncoding.DecodeString(handle)
	if err != nil {
		return nil, invalid
	}
	parts := strings.Split(string(raw), " ")
	if len(parts) != 3 || parts[0] != q.id {
		return nil, invalid
	}
	receive, err := strconv.Atoi(parts[2])
	if err != nil {
		return nil, invalid
	}
	m := q.messages[parts[1]]
	if m == nil || m.receives != receive {
		return nil, nil
	}
	return m, nil
}

// Delete removes the message of a handle. It succeeds without effect when the message is gone, or when it has been received again
// since: then it stays, and its new holder is not disturbed. The latest handle deletes even after its timeout has ended.
func (b *Broker) Delete(name, handle string) error {
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
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
