package sqs

import (
	"strings"

	"github.com/llm-queue/llmq/local/cloud/sqs/internal/broker"
)

// attributeValue is a message attribute on the wire.
type attributeValue struct {
	DataType         string   `json:"DataType,omitempty"`
	StringValue      string   `json:"StringValue,omitempty"`
	BinaryValue      []byte   `json:"BinaryValue,omitempty"`
	StringListValues []string `json:"StringListValues,omitempty"` // reserved by AWS, never taken
	BinaryListValues [][]byte `json:"BinaryListValues,omitempty"` // likewise
}

// attribute returns the value as the broker has it.
func (v attributeValue) attribute() broker.Attribute {
	return broker.Attribute{Type: v.DataType, Text: v.StringValue, Binary: v.BinaryValue}
}

// traceHeader is the one system attribute a sender may set.
const traceHeader = "AWSTraceHeader"

// outgoing is a message on the wire, alone or as a batch's entry.
type outgoing struct {
	MessageBody             string                    `json:"MessageBody"`
	DelaySeconds            *int                      `json:"DelaySeconds"`
	MessageAttributes       map[string]attributeValue `json:"MessageAttributes"`
	MessageSystemAttributes map[string]attributeValue `json:"MessageSystemAttributes"`
	MessageGroupID          *string                   `json:"MessageGroupId"`
	MessageDeduplicationID  *string                   `json:"MessageDeduplicationId"`
}

// message returns the message as the broker takes it.
func (o *outgoing) message() (broker.Outgoing, error) {
	out := broker.Outgoing{Body: o.MessageBody, Digest: bodyDigest(o.MessageBody), DelaySeconds: o.DelaySeconds}
	if o.MessageDeduplicationID != nil {
		return out, broker.Fail(broker.InvalidParameterValue, "Value %s for parameter MessageDeduplicationId is invalid. "+
			"Reason: The request includes a parameter that is not valid for this queue type.", *o.MessageDeduplicationID)
	}
	if o.MessageGroupID != nil {
		if out.GroupID = *o.MessageGroupID; out.GroupID == "" {
			return out, fault(broker.InvalidParameterValue, "Value  for parameter MessageGroupId is invalid. "+
				"Reason: MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
		}
	}
	if len(o.MessageAttributes) > 0 {
		out.Attributes = make(map[string]broker.Attribute, len(o.MessageAttributes))
	}
	for name, v := range o.MessageAttributes {
		if v.StringListValues != nil || v.BinaryListValues != nil {
			return out, fault(broker.InvalidParameterValue, "Message attribute list values in SendMessage operation are not supported.")
		}
		out.Attributes[name] = v.attribute()
	}
	for name, v := range o.MessageSystemAttributes {
		if name != traceHeader || v.DataType != "String" || v.StringValue == "" {
			return out, broker.Fail(broker.InvalidParameterValue,
				"Message system attribute name '%s' is invalid: only %s, of type String, may be set.", name, traceHeader)
		}
		out.TraceHeader = v.StringValue
	}
	return out, nil
}

// receipt is what a sender gets for a message.
type receipt struct {
	MessageID              string `json:"MessageId"`
	BodyDigest             string `json:"MD5OfMessageBody"`
	AttributesDigest       string `json:"MD5OfMessageAttributes,omitempty"`
	SystemAttributesDigest string `json:"MD5OfMessageSystemAttributes,omitempty"`
}

func receiptOf(id string, o broker.Outgoing) receipt {
	r := receipt{MessageID: id, BodyDigest: o.Digest, AttributesDigest: attributesDigest(o.Attributes)}
	if o.TraceHeader != "" {
		r.SystemAttributesDigest = attributesDigest(map[string]broker.Attribute{traceHeader: {Type: "String", Text: o.TraceHeader}})
	}
	return r
}

type sendMessageInput struct {
	queueRef
	outgoing
}

func (s *Server) sendMessage(c *call, in *sendMessageInput) (any, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return nil, err
	}
	message, err := in.message()
	if err != nil {
		return nil, err
	}
	message.Fate = c.fate()
	c.payload = message.Bytes()
	id, err := s.broker.Send(name, c.senderID, message)
	if err != nil {
		return nil, err
	}
	s.countGroup(message)
	return receiptOf(id, message), nil
}

func (s *Server) countGroup(m broker.Outgoing) {
	if m.GroupID != "" {
		s.grouped.Add(1)
	}
}

type receiveMessageInput struct {
	queueRef
	MaxNumberOfMessages         *int     `json:"MaxNumberOfMessages"`
	WaitTimeSeconds             *int     `json:"WaitTimeSeconds"`
	VisibilityTimeout           *int     `json:"VisibilityTimeout"`
	AttributeNames              []string `json:"AttributeNames"` // the older name of the next
	MessageSystemAttributeNames []string `json:"MessageSystemAttributeNames"`
	MessageAttributeNames       []string `json:"MessageAttributeNames"`
	ReceiveRequestAttemptID     *string  `json:"ReceiveRequestAttemptId"`
}

// received is a message on the wire as a consumer gets it.
type received struct {
	MessageID         string                    `json:"MessageId"`
	ReceiptHandle     string                    `json:"ReceiptHandle"`
	BodyDigest        string                    `json:"MD5OfBody"`
	Body              string                    `json:"Body"`
	Attributes        systemAttributes          `json:"Attributes,omitzero"`
	AttributesDigest  string                    `json:"MD5OfMessageAttributes,omitempty"`
	MessageAttributes map[string]attributeValue `json:"MessageAttributes,omitempty"`
}

type receiveMessageResult struct {
	Messages []received `json:"Messages,omitempty"`
}

func (s *Server) receiveMessage(c *call, in *receiveMessageInput) (any, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return nil, err
	}
	if in.ReceiveRequestAttemptID != nil {
		return nil, fault(broker.InvalidParameterValue, "ReceiveRequestAttemptId is not valid for this queue type.")
	}
	system, err := wantedSystemAttributes(in.MessageSystemAttributeNames, in.AttributeNames)
	if err != nil {
		return nil, err
	}
	messages, err := s.broker.Receive(c.ctx, name, broker.Poll{
		Fate: c.fate(),
		Max:  in.MaxNumberOfMessages, WaitSeconds: in.WaitTimeSeconds, VisibilitySeconds: in.VisibilityTimeout,
	})
	if err != nil {
		return nil, err
	}
	var result receiveMessageResult
	if len(messages) == 0 {
		s.empty.Add(1)
	} else {
		result.Messages = make([]received, 0, len(messages))
	}
	for i := range messages {
		m := &messages[i]
		c.payload += m.Bytes()
		wanted := selectAttributes(m.Attributes, in.MessageAttributeNames)
		out := received{
			MessageID: m.ID, ReceiptHandle: m.Handle, BodyDigest: m.Digest, Body: m.Body,
			Attributes: system.of(m), AttributesDigest: attributesDigest(wanted),
		}
		if len(wanted) > 0 {
			out.MessageAttributes = make(map[string]attributeValue, len(wanted))
		}
		for n, a := range wanted {
			out.MessageAttributes[n] = attributeValue{DataType: a.Type, StringValue: a.Text, BinaryValue: a.Binary}
		}
		result.Messages = append(result.Messages, out)
	}
	return result, nil
}

// selectAttributes returns the message attributes a consumer asks for: by name, by prefix ("trace.*" or "trace*"), or all ("All",
// ".*"). None are given unasked.
func selectAttributes(all map[string]broker.Attribute, patterns []string) map[string]broker.Attribute {
	if len(all) == 0 || len(patterns) == 0 {
		return nil
	}
	wanted := make(map[string]broker.Attribute, len(all))
	for name, a := range all {
		for _, pattern := range patterns {
			prefix, isPrefix := strings.CutSuffix(pattern, "*")
			if isPrefix {
				prefix = strings.TrimSuffix(prefix, ".")
			}
			if pattern == "All" || pattern == name || isPrefix && strings.HasPrefix(name, prefix) {
				wanted[name] = a
				break
			}
		}
	}
	return wanted
}

type deleteMessageInput struct {
	queueRef
	ReceiptHandle *string `json:"ReceiptHandle"`
}

func (s *Server) deleteMessage(c *call, in *deleteMessageInput) (none, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return none{}, err
	}
	handle, err := required("ReceiptHandle", in.ReceiptHandle)
	if err != nil {
		return none{}, err
	}
	if c.fate() == broker.Lost {
		return none{}, s.broker.CheckQueue(name)
	}
	return none{}, s.broker.Delete(name, handle)
}

type changeVisibilityInput struct {
	queueRef
	changeVisibility
}

type changeVisibility struct {
	ReceiptHandle     *string `json:"ReceiptHandle"`
	VisibilityTimeout *int    `json:"VisibilityTimeout"`
}

// apply changes one message's timeout.
func (in changeVisibility) apply(c *call, b *broker.Broker, queue string) error {
	handle, err := required("ReceiptHandle", in.ReceiptHandle)
	if err != nil {
		return err
	}
	if in.VisibilityTimeout == nil {
		return missing("VisibilityTimeout")
	}
	if c.fate() == broker.Lost {
		return b.CheckQueue(queue)
	}
	return b.ChangeVisibility(queue, handle, *in.VisibilityTimeout)
}

func (s *Server) changeMessageVisibility(c *call, in *changeVisibilityInput) (none, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return none{}, err
	}
	return none{}, in.apply(c, s.broker, name)
}
