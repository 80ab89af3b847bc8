package llmq

import "strings"

// Trace is what a W3C traceparent says: which trace a request belongs to, and which span of it made the request. The zero
// value is none.
type Trace struct {
	ID      string // 32 hex digits in lower case, not all zero
	Parent  string // 16 of them, of the span
	Sampled bool   // whoever made the span records the trace
}

// ParseTrace reads a traceparent. As the standard asks, one that is not of its form is as good as none, and a newer
// version is read as far as version 00 goes.
func ParseTrace(traceparent string) (Trace, bool) {
	version, rest, _ := strings.Cut(traceparent, "-")
	id, rest, _ := strings.Cut(rest, "-")
	parent, rest, _ := strings.Cut(rest, "-")
	flags, _, more := strings.Cut(rest, "-")
	if version == "ff" || version == "00" && more {
		return Trace{}, false
	}
	for _, part := range [...]struct {
		text   string
		digits int
	}{{version, 2}, {id, 32}, {parent, 16}, {flags, 2}} {
		if len(part.text) != part.digits || strings.Trim(part.text, "0123456789abcdef") != "" {
			return Trace{}, false
		}
	}
	if strings.Trim(id, "0") == "" || strings.Trim(parent, "0") == "" {
		return Trace{}, false
	}
	return Trace{ID: id, Parent: parent, Sampled: strings.IndexByte("13579bdf", flags[1]) >= 0}, true
}

// String is t as a traceparent of version 00; "" of none.
func (t Trace) String() string {
	switch {
	case t.ID == "":
		return ""
	case t.Sampled:
		return "00-" + t.ID + "-" + t.Parent + "-01"
	}
	return "00-" + t.ID + "-" + t.Parent + "-00"
}
