package broker

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxAttributes    = 10
	maxAttributeName = 256 // bytes, of a name and of a type
	maxNumberDigits  = 38
	maxGroupID       = 128 // bytes
)

// Attribute is one message attribute. Type is String, Number or Binary, or one of them with a label after a dot. Text holds the
// value of the first two (a number keeps its digits), Binary that of the last.
type Attribute struct {
	Type   string
	Text   string
	Binary []byte
}

// copies is how many messages come of one.
func (f Fate) copies() int {
	switch f {
	case Lost:
		return 0
	case Doubled:
		return 2
	default:
		return 1
	}
}

// IsBinary tells whether Binary holds the value.
func (a Attribute) IsBinary() bool { return a.base() == "Binary" }

// base is the type without its label.
func (a Attribute) base() string {
	base, _, _ := strings.Cut(a.Type, ".")
	return base
}

// Outgoing is a message as its sender gives it. The broker keeps the map and the bytes in it; they must not be changed after the send.
type Outgoing struct {
	Body         string
	Digest       string // of the body, as the API tells it; the broker only keeps it
	Attributes   map[string]Attribute
	TraceHeader  string // the system attribute AWSTraceHeader; not counted in the size
	GroupID      string // "": none, a tenant of its own
	DelaySeconds *int   // nil: the queue's
	Fate         Fate   // what becomes of it; Kept but under a test's fault
}

// Fate is what an injected fault makes of a message, or of what a receive takes; the zero value is that there is none.
type Fate int

// The fates.
const (
	Kept    Fate = iota
	Lost         // its sender is told that all is well, but it never comes; a receive finds nothing, and doesn't wait
	Doubled      // it comes twice, under one id; what a receive takes stays visible
)

// Bytes is what the message counts against the size limits: its body, and each attribute's name, type and value.
func (o Outgoing) Bytes() int {
	size := len(o.Body)
	for name, a := range o.Attributes {
		size += len(name) + len(a.Type) + len(a.Text) + len(a.Binary)
	}
	return size
}

// check finds the first fault of a message that doesn't depend on its queue.
func (o Outgoing) check() error {
	if o.Body == "" {
		return Fail(MissingParameter, "The request must contain the parameter MessageBody.")
	}
	if r, ok := forbiddenRune(o.Body); ok {
		return Fail(InvalidMessageContents, "Invalid binary character '#x%X' was found in the message body, the set of allowed characters is "+
			"#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF", r)
	}
	if d := o.DelaySeconds; d != nil && (*d < 0 || *d > MaxDelay) {
		return invalidValue("DelaySeconds", *d, "DelaySeconds must be >= 0 and <= 900.")
	}
	if o.GroupID != "" && !isGroupID(o.GroupID) {
		return invalidValue("MessageGroupId", o.GroupID,
			"MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	if n := len(o.Attributes); n > maxAttributes {
		return Fail(InvalidParameterValue, "Number of message attributes [%d] exceeds the allowed maximum [%d].", n, maxAttributes)
	}
	for name, a := range o.Attributes {
		if err := checkAttribute(name, a); err != nil {
			return err
		}
	}
	return nil
}

// forbiddenRune finds a character that SQS does not carry: most control characters, U+FFFE and U+FFFF, and what is not UTF-8.
func forbiddenRune(text string) (rune, bool) {
	for i, r := range text {
		switch {
		case r >= 0x20 && r < utf8.RuneError, r == '\n', r == '\t', r == '\r', r >= 0x10000:
		case r == utf8.RuneError && strings.HasPrefix(text[i:], string(utf8.RuneError)): // U+FFFD itself, the last that is allowed below U+10000
		default:
			return r, true
		}
	}
	return 0, false
}

// isGroupID tells whether the text may be a MessageGroupId: up to 128 letters, digits and punctuation marks of ASCII.
func isGroupID(id string) bool {
	return len(id) <= maxGroupID && strings.IndexFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

func checkAttribute(name string, a Attribute) error {
	if err := checkAttributeName(name); err != nil {
		return err
	}
	if a.Type == "" {
		return Fail(InvalidParameterValue, "The message attribute '%s' must contain a non-empty message attribute type.", name)
	}
	if len(a.Type) > maxAttributeName {
		return Fail(InvalidParameterValue, "The type of message attribute '%s' must be shorter than %d bytes.", name, maxAttributeName)
	}
	if r, ok := forbiddenRune(a.Type); ok {
		return Fail(InvalidParameterValue, "Invalid binary character '#x%X' was found in the type of message attribute '%s'.", r, name)
	}
	empty := a.Text == "" || a.Binary != nil
	switch a.base() {
	case "String", "Number":
	case "Binary":
		empty = len(a.Binary) == 0 || a.Text != ""
	default:
		return Fail(InvalidParameterValue, "The type of message attribute '%s' is invalid. "+
			"You must use only the following supported type prefixes: Binary, Number, String.", name)
	}
	if empty {
		return Fail(InvalidParameterValue,
			"The message attribute '%s' must contain a non-empty message attribute value of type '%s' and no other value.", name, a.base())
	}
	if r, ok := forbiddenRune(a.Text); ok {
		return Fail(InvalidParameterValue, "Invalid binary character '#x%X' was found in the value of message attribute '%s'.", r, name)
	}
	if a.base() == "Number" && !isNumber(a.Text) {
		return Fail(InvalidParameterValue, "Can't cast the value of message (user) attribute '%s' to a number.", name)
	}
	return nil
}

func checkAttributeName(name string) error {
	lower := strings.ToLower(name)
	switch {
	case name == "" || len(name) > maxAttributeName:
		return Fail(InvalidParameterValue, "The length of a message attribute name must be between 1 and %d bytes.", maxAttributeName)
	case strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon."):
		return Fail(InvalidParameterValue, "The message attribute name '%s' begins with a prefix that is reserved for AWS.", name)
	case strings.IndexFunc(name, func(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune("_-.", r) }) >= 0,
		strings.HasPrefix(name, "."), strings.HasSuffix(name, "."), strings.Contains(name, ".."):
		return Fail(InvalidParameterValue, "The message attribute name '%s' is invalid. Attribute name can contain A-Z, a-z, 0-9, "+
			"underscore (_), hyphen (-), and period (.) characters, and no period first, last or twice in a row.", name)
	}
	return nil
}

// isNumber tells whether the text is a number SQS takes: up to 38 digits, from 10^-128 to 10^126.
func isNumber(text string) bool {
	mantissa, exponent, scaled := strings.Cut(strings.ToLower(text), "e")
	if scaled {
		if e, err := strconv.Atoi(exponent); err != nil || e < -128 || e > 126 {
			return false
		}
	}
	mantissa = strings.TrimPrefix(strings.TrimPrefix(mantissa, "-"), "+")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	return digits != "" && len(digits) <= maxNumberDigits && strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }) < 0
}
