package server

import (
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// Failure names a way in which an answer goes wrong, beyond what a status and a body can say.
type Failure string

// The failures that a Reply may have. After counts events of a stream, or bytes of a body that is
// none; where it is 0, the failure picks a place in the middle.
const (
	// FailReset resets the connection (RST) after a part of the answer was sent.
	FailReset Failure = "reset"
	// FailClose closes the connection in the middle: a client sees an unexpected end of file.
	FailClose Failure = "close"
	// FailTruncate ends the answer cleanly but too early: a stream without its end marker (all
	// other events if After is 0), a body cut short.
	FailTruncate Failure = "truncate"
	// FailLength sends a Content-Length that is larger than what follows.
	FailLength Failure = "length"
	// FailStall stops in the middle until Release lets the rest go.
	FailStall Failure = "stall"
	// FailError ends a stream with an error within it: the exception frame or error object of the
	// Reply's Code, Status and Message. On a call that is no stream it is that error.
	FailError Failure = "error"
	// FailHTML is the 502 page of a proxy in between.
	FailHTML Failure = "html"
	// FailEmpty is a 200 without a body.
	FailEmpty Failure = "empty"
	// FailContentType is the right body under "text/html".
	FailContentType Failure = "content_type"
	// FailSlowHeaders sends the head of the answer line by line, with Pause in between.
	FailSlowHeaders Failure = "slow_headers"
	// FailHugeLine answers with one tool call whose arguments, a JSON string of Size times "y",
	// come in a single event.
	FailHugeLine Failure = "huge_line"
	// FailSplitUTF8 sends every event in two writes, cut within a character if it has one of more
	// than a byte, with Pause in between.
	FailSplitUTF8 Failure = "split_utf8"
)

func failures() []Failure {
	return []Failure{
		FailReset, FailClose, FailTruncate, FailLength, FailStall, FailError, FailHTML, FailEmpty, FailContentType,
		FailSlowHeaders, FailHugeLine, FailSplitUTF8,
	}
}

// outcome is how a call ends whose answer went as planned.
func (f Failure) outcome() Outcome {
	switch f {
	case FailReset, FailClose, FailTruncate, FailLength, FailError, FailHTML, FailEmpty, FailContentType:
		return Broken
	case FailStall, FailSlowHeaders, FailHugeLine, FailSplitUTF8:
	}
	return Replied
}

const (
	defaultPause    = 100 * time.Millisecond
	defaultHugeSize = 2_000_000
	// maxHugeSize keeps a frame of Bedrock's event stream within its 16 MiB.
	maxHugeSize = 8 << 20
)

const proxyPage = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n" +
	"<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"

// ending is how a delivery ends after its last step.
type ending int

const (
	endWell  ending = iota
	endReset        // RST
	endClose        // FIN, without the end of the body
)

// delivery is what is written of a reply, and how.
type delivery struct {
	status int
	header http.Header
	steps  []event
	// stream says that the tokens are said while it is written; else they had been said before.
	stream bool
	// pieces are written and flushed one by one; else the one step is the body.
	pieces bool
	// stallAt is the step before which it stops until it is released; -1 is none.
	stallAt  int
	ending   ending
	slowHead bool
	pause    time.Duration // between the lines of a slow head, and the halves of a split event
	split    bool
}

// deliver lays out a reply, with what r says is to go wrong.
func (re reply) deliver(r Reply, model string) delivery {
	isStream := re.events != nil
	d := delivery{status: re.status, header: re.header, steps: re.events, stream: isStream, pieces: isStream, stallAt: -1, pause: r.Pause}
	if d.pause == 0 {
		d.pause = defaultPause
	}
	if !d.pieces {
		d.steps = []event{{data: re.body}}
	}
	middle := r.After
	switch r.Fail {
	case FailReset:
		d.cut(middle)
		d.ending = endReset
	case FailClose:
		d.cut(middle)
		d.ending = endClose
	case FailLength:
		d.lie(middle)
	case FailTruncate:
		d.truncate(middle)
	case FailStall:
		d.stall(middle)
	case FailError:
		if re.broken != nil {
			d.cut(middle)
			f := fault{status: r.Status, code: r.Code, message: r.Message, model: model}
			d.steps = append(d.steps, event{data: re.broken(f)})
		}
	case FailHTML:
		d.replace(http.StatusBadGateway, "text/html", proxyPage)
	case FailEmpty:
		d.replace(http.StatusOK, "", "")
	case FailContentType:
		d.header = with(d.header, "Content-Type", "text/html; charset=utf-8")
	case FailSlowHeaders:
		d.slowHead = true
	case FailSplitUTF8:
		d.pieces, d.split = true, true
	case FailHugeLine, "": // the completion has it, or there is none
	}
	return d
}

func with(h http.Header, name, value string) http.Header {
	h = h.Clone()
	h.Set(name, value)
	return h
}

func (d *delivery) replace(status int, contentType, body string) {
	d.status, d.pieces, d.steps = status, false, []event{{data: []byte(body)}}
	d.header = d.header.Clone()
	d.header.Del("Content-Type")
	if contentType != "" {
		d.header.Set("Content-Type", contentType)
	} else {
		d.header["Content-Type"] = nil // else net/http would guess one
	}
}

// cut keeps the first n events, or bytes of a body; 0 keeps half.
func (d *delivery) cut(n int) {
	if d.pieces {
		if n == 0 {
			n = (len(d.steps) + 1) / 2
		}
		d.steps = d.steps[:min(n, len(d.steps))]
		return
	}
	d.pieces = true // a part of a body must leave before the connection goes
	d.steps = []event{{data: part(d.steps[0].data, n)}}
}

func part(body []byte, n int) []byte {
	if n == 0 {
		n = len(body) / 2
	}
	return body[:min(n, len(body))]
}

func (d *delivery) truncate(n int) {
	if !d.pieces {
		d.steps = []event{{data: part(d.steps[0].data, n)}}
		return
	}
	kept := make([]event, 0, len(d.steps))
	for i, e := range d.steps {
		if !e.end && (n == 0 || i < n) {
			kept = append(kept, e)
		}
	}
	d.steps = kept
}

// lie announces more than it sends. net/http closes the connection of a handler that does.
func (d *delivery) lie(n int) {
	d.cut(n)
	total := 0
	for _, e := range d.steps {
		total += len(e.bytes(0))
	}
	d.header = with(d.header, "Content-Length", itoa(total+1000))
}

func (d *delivery) stall(n int) {
	if !d.pieces {
		body := d.steps[0].data
		half := part(body, n)
		d.pieces, d.steps, d.stallAt = true, []event{{data: half}, {data: body[len(half):]}}, 1
		return
	}
	if n == 0 {
		n = (len(d.steps) + 1) / 2
	}
	d.stallAt = min(n, len(d.steps)-1)
}

// halves cuts data in two, within a character if it has one of more than a byte.
func halves(data []byte) (first, second []byte) {
	for i := range data {
		if data[i] >= utf8.RuneSelf && i+1 < len(data) && !utf8.RuneStart(data[i+1]) {
			return data[:i+1], data[i+1:]
		}
	}
	return data[:len(data)/2], data[len(data)/2:]
}

// tools are the tool calls of a programmed answer.
func (r Reply) tools(id string) []ToolCall {
	if r.Fail == FailHugeLine {
		size := r.Size
		if size == 0 {
			size = defaultHugeSize
		}
		return []ToolCall{{ID: "call_" + id, Name: "huge", Arguments: `"` + strings.Repeat("y", size) + `"`}}
	}
	all := make([]ToolCall, 0, len(r.ToolCalls))
	for i, t := range r.ToolCalls {
		if t.ID == "" {
			t.ID = "call_" + id + "_" + itoa(i)
		}
		all = append(all, t)
	}
	return all
}
