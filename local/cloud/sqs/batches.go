package sqs

import (
	"slices"
	"strings"

	"github.com/llm-queue/llmq/local/cloud/sqs/internal/broker"
)

const (
	maxBatch   = 10
	maxEntryID = 80 // characters
)

// failedEntry tells why an entry of a batch failed. Code is the query code, in batches of every protocol.
type failedEntry struct {
	ID          string `json:"Id"`
	SenderFault bool   `json:"SenderFault"`
	Code        string `json:"Code"`
	Message     string `json:"Message"`
}

func failed(id string, err error) failedEntry {
	e := asError(err)
	wire := onWire(e.Code)
	return failedEntry{ID: id, SenderFault: wire.senderFault(), Code: wire.query, Message: e.Message}
}

// checkEntries checks what makes a whole batch fail: the number of its entries and their ids.
func checkEntries(ids []string, kind string) error {
	if len(ids) == 0 {
		return broker.Fail(broker.EmptyBatchRequest, "There should be at least one %s in the request.", kind)
	}
	if len(ids) > maxBatch {
		return broker.Fail(broker.TooManyEntries, "Maximum number of entries per request are %d. You have sent %d.", maxBatch, len(ids))
	}
	for i, id := range ids {
		if id == "" || len(id) > maxEntryID || strings.IndexFunc(id, notEntryIDRune) >= 0 {
			return fault(broker.InvalidBatchEntryID, "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "+
				"It can be at most 80 letters long.")
		}
		if slices.Contains(ids[:i], id) {
			return broker.Fail(broker.BatchEntryIDsNotDistinct, "Id %s repeated.", id)
		}
	}
	return nil
}

func notEntryIDRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// identified is what all batch entries have.
type identified struct {
	ID string `json:"Id"`
}

func (e identified) id() string { return e.ID }

func idsOf[E interface{ id() string }](entries []E) []string {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.id()
	}
	return ids
}

type sendEntry struct {
	identified
	outgoing
}

type sendMessageBatchInput struct {
	queueRef
	Entries []sendEntry `json:"Entries"`
}

type sentEntry struct {
	identified
	receipt
}

type sendMessageBatchResult struct {
	Successful []sentEntry   `json:"Successful"`
	Failed     []failedEntry `json:"Failed,omitempty"`
}

func (s *Server) sendMessageBatch(c *call, in *sendMessageBatchInput) (any, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return nil, err
	}
	if err := checkEntries(idsOf(in.Entries), "SendMessageBatchRequestEntry"); err != nil {
		return nil, err
	}
	result := sendMessageBatchResult{Successful: []sentEntry{}}
	var (
		messages []broker.Outgoing
		ids      []string // of messages
	)
	for i := range in.Entries {
		e := &in.Entries[i]
		message, err := e.message()
		if err != nil {
			result.Failed = append(result.Failed, failed(e.ID, err))
			continue
		}
		message.Fate = c.fate()
		c.payload += message.Bytes()
		messages, ids = append(messages, message), append(ids, e.ID)
	}
	sent, err := s.broker.SendBatch(name, c.senderID, messages)
	if err != nil {
		return nil, err
	}
	for i, one := range sent {
		if one.Err != nil {
			result.Failed = append(result.Failed, failed(ids[i], one.Err))
			continue
		}
		s.countGroup(messages[i])
		result.Successful = append(result.Successful, sentEntry{identified{ids[i]}, receiptOf(one.MessageID, messages[i])})
	}
	return result, nil
}

type batchResult struct {
	Successful []identified  `json:"Successful"`
	Failed     []failedEntry `json:"Failed,omitempty"`
}

func (r *batchResult) add(id string, err error) {
	if err != nil {
		r.Failed = append(r.Failed, failed(id, err))
		return
	}
	r.Successful = append(r.Successful, identified{id})
}

type deleteEntry struct {
	identified
	ReceiptHandle *string `json:"ReceiptHandle"`
}

type deleteMessageBatchInput struct {
	queueRef
	Entries []deleteEntry `json:"Entries"`
}

func (s *Server) deleteMessageBatch(c *call, in *deleteMessageBatchInput) (any, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return nil, err
	}
	if err := checkEntries(idsOf(in.Entries), "DeleteMessageBatchRequestEntry"); err != nil {
		return nil, err
	}
	result := batchResult{Successful: make([]identified, 0, len(in.Entries))}
	errs := make([]error, len(in.Entries))
	handles := make([]string, len(in.Entries))
	for i, e := range in.Entries {
		handles[i], errs[i] = required("ReceiptHandle", e.ReceiptHandle)
		if errs[i] == nil && c.fate() == broker.Lost {
			handles[i] = ""
		}
	}
	if err := s.broker.DeleteBatch(name, handles, errs); err != nil {
		return nil, err
	}
	for i, e := range in.Entries {
		result.add(e.ID, errs[i])
	}
	return result, nil
}

type changeVisibilityEntry struct {
	identified
	changeVisibility
}

type changeVisibilityBatchInput struct {
	queueRef
	Entries []changeVisibilityEntry `json:"Entries"`
}

func (s *Server) changeMessageVisibilityBatch(c *call, in *changeVisibilityBatchInput) (any, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return nil, err
	}
	if err := checkEntries(idsOf(in.Entries), "ChangeMessageVisibilityBatchRequestEntry"); err != nil {
		return nil, err
	}
	if err := s.broker.CheckQueue(name); err != nil {
		return nil, err
	}
	result := batchResult{Successful: []identified{}}
	for _, e := range in.Entries {
		result.add(e.ID, e.apply(c, s.broker, name))
	}
	return result, nil
}
