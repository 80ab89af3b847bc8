package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// The request headers that callers steer llmq with. No other X-LLMQ-* is taken, so
// that a misspelled one is not silently without effect.
const (
	hdrLane        = "X-LLMQ-Lane"         // rt, bg or bulk
	hdrTimeout     = "X-LLMQ-Timeout-Secs" // whole seconds from now
	hdrDeadline    = "X-LLMQ-Deadline"     // a time of RFC 3339, instead of the timeout
	hdrFallback    = "X-LLMQ-Fallback"     // chain or target
	hdrRequestID   = "X-LLMQ-Request-Id"   // the same as Idempotency-Key
	hdrUser        = "X-LLMQ-User"         // the caller's end user, at most 256 bytes
	hdrSession     = "X-LLMQ-Session"      // the caller's session, at most 256 bytes
	hdrIdempotency = "Idempotency-Key"     // a repeat takes up the running or finished call
	hdrTrace       = "Traceparent"         // W3C trace context
)

const llmqPrefix = "X-Llmq-" // as net/http spells it

// options is what a request's headers ask for.
type options struct {
	id       string // "" when the caller chose none
	lane     llmq.Lane
	fallback llmq.FallbackPolicy
	deadline time.Time
	lapses   bool // no deadline is named: it is the lane's
	user     string
	session  string
	trace    string
}

// readOptions reads the headers of the list (SECURITY-DESIGN IN4) and nothing else.
func readOptions(h http.Header, now time.Time, timeouts map[llmq.Lane]Timeouts) (options, error) {
	var o options
	if err := refuseUnknown(h); err != nil {
		return o, err
	}
	v := map[string]string{}
	for _, name := range []string{hdrLane, hdrTimeout, hdrDeadline, hdrFallback, hdrRequestID, hdrUser, hdrSession, hdrIdempotency} {
		value, err := single(h, name)
		if err != nil {
			return o, err
		}
		v[name] = value
	}
	var err error
	if o.id, err = readID(v[hdrIdempotency], v[hdrRequestID]); err != nil {
		return o, err
	}
	if o.lane, err = llmq.ParseLane(v[hdrLane]); err != nil {
		return o, llmq.AsError(err).At(hdrLane)
	}
	if o.fallback, err = llmq.ParseFallback(v[hdrFallback]); err != nil {
		return o, llmq.AsError(err).At(hdrFallback)
	}
	if o.deadline, err = readDeadline(asked{hdrTimeout, v[hdrTimeout]}, asked{hdrDeadline, v[hdrDeadline]}, now, o.lane, timeouts[o.lane]); err != nil {
		return o, err
	}
	o.lapses = v[hdrTimeout] == "" && v[hdrDeadline] == ""
	for _, name := range []string{hdrUser, hdrSession} {
		if len(v[name]) > llmq.MaxLabelBytes {
			return o, llmq.Errorf(llmq.CodeInvalidRequest, "%s holds at most %d bytes, has %d", name, llmq.MaxLabelBytes, len(v[name])).At(name)
		}
	}
	o.user, o.session, o.trace = v[hdrUser], v[hdrSession], readTrace(h.Values(hdrTrace))
	return o, nil
}

// steering lists the X-LLMQ-* headers that are read.
func steering() []string {
	return []string{hdrLane, hdrTimeout, hdrDeadline, hdrFallback, hdrRequestID, hdrUser, hdrSession}
}

func refuseUnknown(h http.Header) error {
	var unknown []string
	for name := range h {
		if len(name) >= len(llmqPrefix) && strings.EqualFold(name[:len(llmqPrefix)], llmqPrefix) &&
			!slices.ContainsFunc(steering(), func(known string) bool { return strings.EqualFold(known, name) }) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	name := slices.Min(unknown) // always the same one
	hint := "the known ones are " + strings.Join(steering(), ", ")
	if near := llmq.Nearest(name, steering()); near != "" {
		hint = "did you mean " + near + "?"
	}
	return llmq.Errorf(llmq.CodeInvalidRequest, "header %q is unknown; %s", llmq.Clip(name, 60), hint).At(llmq.Clip(name, 60))
}

// single reads a header that may be given once, in text without control characters.
// (What came through a gateway's event has not been through net/http's own check.)
func single(h http.Header, name string) (string, error) {
	values := h.Values(name)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", llmq.Errorf(llmq.CodeInvalidRequest, "%s is given %d times; send it once", name, len(values)).At(name)
	}
	v := values[0]
	if i := strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
		return "", llmq.Errorf(llmq.CodeInvalidRequest, "%s holds a control character at position %d", name, i+1).At(name)
	}
	if !utf8.ValidString(v) {
		return "", llmq.Errorf(llmq.CodeInvalidRequest, "%s is not valid UTF-8", name).At(name)
	}
	return v, nil
}

func readID(key, requestID string) (string, error) {
	for _, h := range []struct{ name, value string }{{hdrIdempotency, key}, {hdrRequestID, requestID}} {
		if h.value == "" {
			continue
		}
		if err := llmq.CheckID(h.name, h.value); err != nil {
			return "", fmt.Errorf("read the request's id: %w", err)
		}
	}
	if key != "" && requestID != "" && key != requestID {
		return "", llmq.Errorf(llmq.CodeInvalidRequest, "%s and %s are both given and differ; they mean the same, send one", hdrIdempotency, hdrRequestID).At(hdrIdempotency)
	}
	if key == "" {
		return requestID, nil
	}
	return key, nil
}

// asked is a header's or a field's text with its name; "" is missing.
type asked struct{ name, text string }

func readDeadline(timeout, deadline asked, now time.Time, lane llmq.Lane, limits Timeouts) (time.Time, error) {
	bad := func(field, format string, args ...any) (time.Time, error) {
		return time.Time{}, llmq.Errorf(llmq.CodeInvalidRequest, format, args...).At(field)
	}
	switch {
	case timeout.text != "" && deadline.text != "":
		return bad(deadline.name, "%s and %s are both given; send one", timeout.name, deadline.name)
	case timeout.text != "":
		most := int64(limits.Max / time.Second)
		n, err := strconv.ParseInt(timeout.text, 10, 64)
		if err != nil || n < 1 || n > most || timeout.text[0] == '+' {
			return bad(timeout.name, "%s must be whole seconds from 1 to %d on lane %s", timeout.name, most, lane)
		}
		return now.Add(time.Duration(n) * time.Second), nil
	case deadline.text != "":
		t, err := time.Parse(time.RFC3339, deadline.text)
		switch {
		case err != nil:
			return bad(deadline.name, "%s must be a time of RFC 3339, such as 2006-01-02T15:04:05Z", deadline.name)
		case !t.After(now):
			return bad(deadline.name, "%s lies in the past; leave it out to take up an earlier call", deadline.name)
		case t.Sub(now) > limits.Max:
			return bad(deadline.name, "%s may lie at most %d seconds ahead on lane %s", deadline.name, int64(limits.Max/time.Second), lane)
		}
		return t, nil
	}
	return now.Add(limits.Default), nil
}

// readTrace takes the trace and span of a W3C traceparent. As that standard asks, one
// that is not of its form is as good as none; the sampled flag of strangers is
// dropped (SECURITY-DESIGN IN4).
func readTrace(values []string) string {
	if len(values) != 1 {
		return ""
	}
	t, _ := llmq.ParseTrace(values[0])
	t.Sampled = false
	return t.String()
}
