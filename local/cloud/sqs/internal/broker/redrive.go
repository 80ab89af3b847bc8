package broker

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxReceiveCountHigh = 1000
	maxAllowedSources   = 10
)

// redrivePolicy says when a message is a dead letter, and where it goes.
type redrivePolicy struct {
	target string // ARN
	max    int    // receives by this queue
}

// String tells the policy as GetQueueAttributes does; "" for none.
func (p *redrivePolicy) String() string {
	if p == nil {
		return ""
	}
	return `{"deadLetterTargetArn":` + strconv.Quote(p.target) + `,"maxReceiveCount":` + strconv.Itoa(p.max) + `}`
}

// parseRedrive reads the RedrivePolicy of the queue of that ARN; "" is none. The dead-letter queue must exist and allow the queue.
func (b *Broker) parseRedrive(arn, text string) (*redrivePolicy, error) {
	if text == "" {
		return nil, nil
	}
	bad := func(reason string) (*redrivePolicy, error) { return nil, invalidValue(attrRedrive, text, reason) }

	fields := map[string]jsontext.Value{}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return bad("Redrive policy is not a valid JSON map.")
	}
	for _, name := range []string{"deadLetterTargetArn", "maxReceiveCount"} {
		if _, ok := fields[name]; !ok {
			return bad("Redrive policy does not contain mandatory attribute: " + name + ".")
		}
	}
	if len(fields) > 2 {
		return bad("Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount].")
	}
	p := &redrivePolicy{}
	if err := json.Unmarshal(fields["deadLetterTargetArn"], &p.target); err != nil || !isQueueARN(p.target) {
		return bad("Invalid value for deadLetterTargetArn.")
	}
	// SQS takes the number bare or quoted; CloudFormation sends either.
	count, err := strconv.Atoi(strings.Trim(string(fields["maxReceiveCount"]), `"`))
	if err != nil || count < 1 || count > maxReceiveCountHigh {
		return bad("Invalid value for maxReceiveCount: " + string(fields["maxReceiveCount"]) +
			", valid values are from 1 to 1000 both inclusive.")
	}
	p.max = count
	target := b.byARN(p.target)
	if target == nil {
		return bad("Dead letter target does not exist.")
	}
	if !target.settings.allow.admits(arn) {
		return bad("Dead letter target does not allow this queue as a source.")
	}
	return p, nil
}

func isQueueARN(arn string) bool {
	parts := strings.Split(arn, ":")
	return len(parts) == 6 && parts[0] == "arn" && parts[2] == "sqs" && !slices.Contains(parts, "")
}

// redriveAllowPolicy says which queues may use a queue as their dead-letter queue.
type redriveAllowPolicy struct {
	Permission string   `json:"redrivePermission"`
	Sources    []string `json:"sourceQueueArns,omitempty"`
}

// String tells the policy as GetQueueAttributes does; "" for none.
func (p *redriveAllowPolicy) String() string {
	if p == nil {
		return ""
	}
	text, err := json.Marshal(p)
	if err != nil {
		return "" // strings that came out of JSON always go back in
	}
	return string(text)
}

// admits tells whether the queue of that ARN may be a source. Without a policy every queue may.
func (p *redriveAllowPolicy) admits(arn string) bool {
	if p == nil || p.Permission == "allowAll" {
		return true
	}
	return p.Permission == "byQueue" && slices.Contains(p.Sources, arn)
}

func parseAllow(text string) (*redriveAllowPolicy, error) {
	if text == "" {
		return nil, nil
	}
	p := &redriveAllowPolicy{}
	if err := json.Unmarshal([]byte(text), p, json.RejectUnknownMembers(true)); err != nil {
		return nil, invalidValue(attrAllow, text, "Amazon SQS can't create the redrive allow policy, as it’s in an unsupported format.")
	}
	switch {
	case p.Permission == "byQueue" && (len(p.Sources) == 0 || len(p.Sources) > maxAllowedSources):
		return nil, invalidValue(attrAllow, text, "byQueue takes 1 to 10 sourceQueueArns.")
	case p.Permission != "byQueue" && len(p.Sources) > 0:
		return nil, invalidValue(attrAllow, text, "sourceQueueArns goes with byQueue only.")
	case p.Permission != "byQueue" && p.Permission != "allowAll" && p.Permission != "denyAll":
		return nil, invalidValue(attrAllow, text, "Invalid value for redrivePermission.")
	}
	return p, nil
}

func isJSONObject(text string) bool {
	v := jsontext.Value(text)
	return v.IsValid() && v.Kind() == '{'
}

// deadLetter moves a message that was received too often to the dead-letter queue, and tells whether it did: without a policy, or
// when the dead-letter queue has been deleted since, the message is received once more.
//
// The move keeps id, content, the count of receives, and the time it was sent. So a dead-letter queue must retain longer than its
// source, or the message expires as it arrives.
func (b *Broker) deadLetter(q *queue, m *message) bool {
	policy := q.settings.redrive
	if policy == nil || m.receivesHere < policy.max {
		return false
	}
	target := b.byARN(policy.target)
	if target == nil {
		return false
	}
	q.forget(m)
	m.receivesHere, m.sourceARN = 0, q.arn
	target.add(m, time.Time{})
	if target != q {
		target.settle()
	}
	return true
}
