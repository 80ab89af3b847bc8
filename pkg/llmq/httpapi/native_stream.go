package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/internal/eventframe"
)

// The events of our own in a stream: how the call ended. A stream without one was cut off, and is to be taken up again.
const (
	eventDone  = "llmq.done"
	eventError = "llmq.error"
)

// follow passes a call's events on while they come, from the one on that its reader has last seen (FEATURES A22). Until
// the first of them an error has its status, as on the other wires.
func (h *Handler) follow(x *exchange, c auth.Caller) error {
	if err := c.May(x.matched.access.scope()); err != nil {
		return err
	}
	id, err := x.readCallID()
	if err != nil {
		return err
	}
	if _, err := readWait(x.r.URL.RawQuery, 0); err != nil {
		return err
	}
	at, err := readLastEvent(x.r.Header)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), h.cfg.Wait)
	defer cancel()
	s, err := h.calls.Follow(ctx, c.Tenant(), id, at)
	if errors.Is(err, llmq.CodeInvalidRequest) {
		return llmq.AsError(err).At("Last-Event-ID")
	}
	if err != nil {
		return x.explain(ctx, err, h.cfg.Wait)
	}
	defer s.Close()
	return x.passOn(ctx, s, at)
}

// passOn writes what a stream gives as server-sent events, and how it ended.
func (x *exchange) passOn(ctx context.Context, s llmq.Stream, at int64) error {
	f := framing{contentType: "text/event-stream", alive: []byte(": waiting\n\n")}
	for !x.gone { // else the call goes on, and its reader comes back
		piece, err := nextWithin(ctx, s, x.patience(f))
		switch {
		case err == nil:
			events, to, err := nativeEvents(piece, at)
			if err != nil {
				return x.unread(f, at, err)
			}
			at = to
			x.send(f, events)
		case errors.Is(err, io.EOF):
			x.send(f, event(at, eventDone, mustEncode(doneJSON{x.id, llmq.StateDone})))
			return nil
		case errors.Is(err, errQuiet):
			x.send(f, f.alive)
		case ctx.Err() != nil: // the door waits no longer: the reader comes back by itself
			x.send(f, []byte(": come back\nretry: 1000\n\n"))
			return nil //nolint:nilerr // the context ended, and nothing failed
		default:
			e := llmq.AsError(err)
			if x.answered {
				x.send(f, event(at, eventError, mustEncode(nativeBody{nativeShape(e, e.Code.Info().Retry && !e.Final)})))
			}
			return e
		}
	}
	return nil
}

type doneJSON struct {
	ID    string     `json:"id"`
	State llmq.State `json:"state"`
}

// unread is the end of a stream that can't be read from where its reader wants to go on: that is in the midst of an event.
func (x *exchange) unread(f framing, at int64, why error) error {
	if !x.answered {
		return llmq.Errorf(llmq.CodeInvalidRequest, "the stream of %s has no event that ends at %d", x.id, at).At("Last-Event-ID").Because(why)
	}
	e := llmq.Errorf(llmq.CodeInternal, "the stream can't be read").Because(why)
	x.send(f, event(at, eventError, mustEncode(nativeBody{nativeShape(e, false)})))
	return e
}

// event is one of server-sent events. Its data may have lines.
func event(id int64, name string, data []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "id: %d\n", id)
	if name != "" {
		fmt.Fprintf(&b, "event: %s\n", oneLine(name))
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n") {
		fmt.Fprintf(&b, "data: %s\n", oneLine(line))
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// oneLine keeps what would end a line out of it.
func oneLine(s string) string { return strings.NewReplacer("\r", "", "\n", "").Replace(s) }

// nativeEvents makes server-sent events of a piece of a reply, whole events as their wire frames them. The id of each is
// the offset in the reply at which it ends, so that a reader who names it goes on with the next. It returns that of the last.
func nativeEvents(piece []byte, at int64) (events []byte, to int64, err error) {
	var out bytes.Buffer
	for len(piece) > 0 {
		var n int
		if eventframe.Is(piece) {
			var kind string
			var payload []byte
			if kind, payload, n, err = eventframe.Next(piece); err != nil {
				return nil, at, err
			}
			at += int64(n)
			out.Write(event(at, kind, payload))
		} else {
			var text []byte
			if text, n, err = nextText(piece); err != nil {
				return nil, at, err
			}
			at += int64(n)
			fmt.Fprintf(&out, "id: %d\n%s\n\n", at, text)
		}
		piece = piece[n:]
	}
	return out.Bytes(), at, nil
}

// nextText is the first of server-sent events, without the empty line that ends it, and how long it is with that. Events are
// stored with their names and data and nothing else.
func nextText(b []byte) (text []byte, n int, err error) {
	end := bytes.Index(b, []byte("\n\n"))
	if end < 0 {
		return nil, 0, errors.New("an event without its end")
	}
	for line := range bytes.SplitSeq(b[:end], []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("data:")) && !bytes.HasPrefix(line, []byte("event:")) {
			return nil, 0, errors.New("a line that is neither an event's name nor its data")
		}
	}
	return b[:end], end + 2, nil
}
