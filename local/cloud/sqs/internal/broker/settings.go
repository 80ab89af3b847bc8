package broker

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// The limits SQS sets to what a queue or a message may ask for.
const (
	MaxMessageBytes = 1 << 20 // of a message, and of all messages of a batch
	MaxDelay        = 900     // seconds
	MaxVisibility   = 43_200  // seconds
	MaxWait         = 20      // seconds
)

// The attributes a queue's owner may set and the server acts upon. Times are in seconds.
const (
	attrDelay       = "DelaySeconds"
	attrMaxBytes    = "MaximumMessageSize"
	attrRetention   = "MessageRetentionPeriod"
	attrWait        = "ReceiveMessageWaitTimeSeconds"
	attrVisibility  = "VisibilityTimeout"
	attrRedrive     = "RedrivePolicy"
	attrAllow       = "RedriveAllowPolicy"
	attrPolicy      = "Policy"
	attrKMSKey      = "KmsMasterKeyId"
	attrKMSReuse    = "KmsDataKeyReusePeriodSeconds"
	attrManagedSSE  = "SqsManagedSseEnabled"
	attrFIFO        = "FifoQueue"
	attrContentFIFO = "ContentBasedDeduplication"
	attrScopeFIFO   = "DeduplicationScope"
	attrLimitFIFO   = "FifoThroughputLimit"
)

// The attributes that only the server sets.
const (
	attrARN      = "QueueArn"
	attrReady    = "ApproximateNumberOfMessages"
	attrInFlight = "ApproximateNumberOfMessagesNotVisible"
	attrDelayed  = "ApproximateNumberOfMessagesDelayed"
	attrCreated  = "CreatedTimestamp"
	attrModified = "LastModifiedTimestamp"
)

// settings is what a queue's owner has set, checked. It is a value: apply returns a changed copy.
type settings struct {
	delay, maxBytes, retentionSecs, wait, visibility, kmsReuse int

	redrive    *redrivePolicy // nil: none
	allow      *redriveAllowPolicy
	policy     string // kept and told, not enforced: this server knows no principals
	kmsKey     string // likewise: nothing is encrypted here
	managedSSE bool
}

func defaultSettings() settings {
	return settings{
		maxBytes:      MaxMessageBytes,
		retentionSecs: 345_600, // 4 days
		visibility:    30,
		kmsReuse:      300,
		managedSSE:    true,
	}
}

func (s *settings) retention() time.Duration { return time.Duration(s.retentionSecs) * time.Second }

// feeds tells whether the queue's dead letters go to the queue of that ARN.
func (s *settings) feeds(arn string) bool { return s.redrive != nil && s.redrive.target == arn }

// number returns where a numeric attribute is kept and its bounds; nil for any other name.
func (s *settings) number(name string) (value *int, low, high int) {
	switch name {
	case attrDelay:
		return &s.delay, 0, MaxDelay
	case attrMaxBytes:
		return &s.maxBytes, 1024, MaxMessageBytes
	case attrRetention:
		return &s.retentionSecs, 60, 1_209_600
	case attrWait:
		return &s.wait, 0, MaxWait
	case attrVisibility:
		return &s.visibility, 0, MaxVisibility
	case attrKMSReuse:
		return &s.kmsReuse, 60, 86_400
	}
	return nil, 0, 0
}

// value tells a settable attribute as GetQueueAttributes does; "" means it is not set, or unknown.
func (s *settings) value(name string) string {
	if n, _, _ := s.number(name); n != nil && (name != attrKMSReuse || s.kmsKey != "") {
		return strconv.Itoa(*n)
	}
	switch name {
	case attrRedrive:
		return s.redrive.String()
	case attrAllow:
		return s.allow.String()
	case attrPolicy:
		return s.policy
	case attrKMSKey:
		return s.kmsKey
	case attrManagedSSE:
		return strconv.FormatBool(s.managedSSE)
	}
	return ""
}

// apply returns s with the attributes set on the queue of that ARN. An empty RedrivePolicy, RedriveAllowPolicy, Policy or
// KmsMasterKeyId removes it. The first fault in the order of names is returned.
func (b *Broker) apply(s settings, arn string, attributes map[string]string) (settings, error) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if err := b.applyOne(&s, arn, name, attributes[name]); err != nil {
			return settings{}, err
		}
	}
	if s.kmsKey != "" && s.managedSSE {
		if attributes[attrManagedSSE] != "" {
			return settings{}, Fail(InvalidAttributeName, "You can use one type of server-side encryption (SSE) at one time. "+
				"You can either enable KMS SSE or SQS SSE.")
		}
		s.managedSSE = false
	}
	return s, nil
}

func (b *Broker) applyOne(s *settings, arn, name, value string) error {
	if n, low, high := s.number(name); n != nil {
		parsed, err := strconv.Atoi(value)
		if err != nil || parsed < low || parsed > high {
			return badAttribute(name)
		}
		*n = parsed
		return nil
	}
	var err error
	switch name {
	case attrRedrive:
		s.redrive, err = b.parseRedrive(arn, value)
	case attrAllow:
		s.allow, err = parseAllow(value)
	case attrPolicy:
		if value != "" && !isJSONObject(value) {
			return badAttribute(name)
		}
		s.policy = value
	case attrKMSKey:
		s.kmsKey = value
	case attrManagedSSE:
		if value != "true" && value != "false" {
			return badAttribute(name)
		}
		s.managedSSE = value == "true"
	case attrFIFO, attrContentFIFO, attrScopeFIFO, attrLimitFIFO:
		return noFIFO()
	default:
		return unknownAttribute(name)
	}
	return err
}

func badAttribute(name string) error {
	return Fail(InvalidAttributeValue, "Invalid value for the parameter %s.", name)
}

func unknownAttribute(name string) error {
	return Fail(InvalidAttributeName, "Unknown Attribute %s.", name)
}

// SetQueueAttributes changes attributes of a queue at once (AWS takes up to 60 s). All or none are set. A shorter retention applies
// to the messages that are there.
func (b *Broker) SetQueueAttributes(name string, attributes map[string]string) error {
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
	s, err := b.apply(q.settings, q.arn, attributes)
	if err != nil {
		return err
	}
	q.settings, q.modified = s, time.Now()
	return nil
}

// QueueAttributes returns the attributes named, or all for "All". One that is not set is left out; an unknown name fails with
// InvalidAttributeName.
func (b *Broker) QueueAttributes(name string, names []string) (map[string]string, error) {
	q, err := b.open(name)
	if err != nil {
		return nil, err
	}
	defer b.leave(q)
	all := q.attributes()
	found := map[string]string{}
	for _, n := range names {
		if n == "All" {
			return all, nil
		}
		if v, ok := all[n]; ok {
			found[n] = v
			continue
		}
		switch n { // known, but not set on this queue
		case attrRedrive, attrAllow, attrPolicy, attrKMSKey, attrKMSReuse, attrFIFO, attrContentFIFO, attrScopeFIFO, attrLimitFIFO:
		default:
			return nil, unknownAttribute(n)
		}
	}
	return found, nil
}

func (q *queue) attributes() map[string]string {
	all := map[string]string{
		attrARN:      q.arn,
		attrReady:    strconv.Itoa(q.count[ready]),
		attrInFlight: strconv.Itoa(q.count[inFlight]),
		attrDelayed:  strconv.Itoa(q.count[delayed]),
		attrCreated:  strconv.FormatInt(q.created.Unix(), 10),
		attrModified: strconv.FormatInt(q.modified.Unix(), 10),
	}
	for _, name := range []string{
		attrDelay, attrMaxBytes, attrRetention, attrWait, attrVisibility,
		attrRedrive, attrAllow, attrPolicy, attrKMSKey, attrKMSReuse, attrManagedSSE,
	} {
		if v := q.settings.value(name); v != "" {
			all[name] = v
		}
	}
	return all
}
