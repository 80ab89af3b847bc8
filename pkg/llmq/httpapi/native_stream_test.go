package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// follows serves the stream of a call that a script speaks.
func follows(t *testing.T, lastEvent string, parts ...part) (*timed, int64) {
	t.Helper()
	b := setup(t, nil)
	b.stands(llmq.Call{ID: "r-1", State: llmq.StateRunning})
	var from int64
	s := &scripted{parts: parts}
	b.calls.follow = func(at int64) (llmq.Stream, error) {
		from = at
		return s, nil
	}
	r := httptest.NewRequest(http.MethodGet, callsPath+"/r-1/stream", nil)
	r.Header.Set("Authorization", "Bearer "+testSecret)
	if lastEvent != "" {
		r.Header.Set("Last-Event-ID", lastEvent)
	}
	w := &timed{ResponseRecorder: httptest.NewRecorder(), begun: time.Now()}
	b.door.ServeHTTP(w, r)
	if !s.closed {
		t.Error("the stream is left open")
	}
	return w, from
}

// A11, A22: each event has the offset at which it ends as its id; the end is an event of our own.
func TestFollow_TextEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, from := follows(t, "18",
			part{time.Second, "data: a\n\nevent: x\ndata: b\n\n", nil}, part{16 * time.Second, "data: d\n\n", nil}, part{0, "", io.EOF})
		if from != 18 {
			t.Errorf("read from %d", from)
		}
		wantWrites(t, w, "1s id: 27\ndata: a\n\nid: 45\nevent: x\ndata: b", "16s : waiting", "17s id: 54\ndata: d",
			"17s id: 54\nevent: llmq.done\ndata: {\"id\":\"r-1\",\"state\":\"done\"}")
		if h := w.Header(); w.Code != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("X-LLMQ-Request-Id") != "r-1" || h.Values("X-LLMQ-Lane") != nil {
			t.Errorf("got %d %v", w.Code, h)
		}
	})
}

func frame(t testing.TB, kind, payload string) string {
	t.Helper()
	m := eventstream.Message{Payload: []byte(payload)}
	m.Headers.Set(":message-type", eventstream.StringValue("event"))
	m.Headers.Set(":event-type", eventstream.StringValue(kind))
	var b bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A11: Bedrock's frames are events of their kind, with their JSON as the data.
func TestFollow_Frames(t *testing.T) {
	t.Parallel()
	one, two := frame(t, "messageStart", `{"role":"assistant"}`), frame(t, "contentBlockDelta", "{\"delta\":\n{}}")
	w, _ := follows(t, "", part{0, one + two, nil}, part{0, "", io.EOF})
	want := fmt.Sprintf("id: %d\nevent: messageStart\ndata: {\"role\":\"assistant\"}\n\nid: %d\nevent: contentBlockDelta\ndata: {\"delta\":\ndata: {}}\n\n", len(one), len(one+two))
	if got := w.Body.String(); !strings.HasPrefix(got, want) || !strings.Contains(got, "event: llmq.done") {
		t.Errorf("got %s", got)
	}
}

// A11: before the first event an error has its status, after it it is an event; it never looks like the end.
func TestFollow_Errors(t *testing.T) {
	t.Parallel()
	broken := llmq.Errorf(llmq.CodeStreamBroken, "broke off")
	w, _ := follows(t, "", part{0, "", broken})
	if e := nativeErrorOf(t, w.ResponseRecorder); w.Code != 502 || e.Code != "stream_broken" {
		t.Errorf("at once: %d %+v", w.Code, e)
	}
	w, _ = follows(t, "", part{0, "data: a\n\n", nil}, part{0, "", broken})
	if got := w.Body.String(); w.Code != 200 || strings.Contains(got, "llmq.done") ||
		!strings.HasSuffix(got, "id: 9\nevent: llmq.error\ndata: {\"error\":{\"code\":\"stream_broken\",\"message\":\"broke off\",\"retryable\":false}}\n\n") {
		t.Errorf("later: %d %s", w.Code, got)
	}
}

// A22: the door's wait ends before the call: no end is told, and the reader comes back with its last id.
func TestFollow_DoorWaitsNoLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := follows(t, "", part{0, "data: a\n\n", nil}, part{time.Hour, "", io.EOF})
		if last := w.writes[len(w.writes)-1]; last != "4m40s : come back\nretry: 1000" || strings.Contains(w.Body.String(), "llmq.") {
			t.Errorf("it ends with %q", last)
		}
	})
}

// A22: an id that no event has is 400: by its form, by what the store knows, or since it lies within an event.
func TestFollow_InvalidLastEventID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"-1", "+1", "01", "1.0", "x", "9223372036854775808", " 1"} {
		b := setup(t, nil)
		b.stands(llmq.Call{ID: "r-1", State: llmq.StateRunning})
		if w := b.get("/r-1/stream", "Last-Event-ID", id); w.Code != 400 || nativeErrorOf(t, w).Field != "Last-Event-ID" {
			t.Errorf("%q: got %d %s", id, w.Code, w.Body)
		}
	}
	b := setup(t, nil)
	b.stands(llmq.Call{ID: "r-1", State: llmq.StateRunning})
	b.calls.follow = func(int64) (llmq.Stream, error) { return nil, llmq.Errorf(llmq.CodeInvalidRequest, "not come to it") }
	if w := b.get("/r-1/stream", "Last-Event-ID", "99"); w.Code != 400 || nativeErrorOf(t, w).Field != "Last-Event-ID" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	whole := "data: {\"a\":\"b\"}\n\n" + "data: c\n\n"
	for at := 1; at < len(whole); at++ {
		w, _ := follows(t, strconv.Itoa(at), part{0, whole[at:], nil}, part{0, "", io.EOF})
		if w.Code != 400 && at != strings.Index(whole, "data: c") {
			t.Errorf("from %d: got %d %s", at, w.Code, w.Body)
		}
	}
	framed := frame(t, "messageStart", `{"role":"assistant"}`)
	for at := 1; at < len(framed); at++ {
		if w, _ := follows(t, strconv.Itoa(at), part{0, framed[at:], nil}, part{0, "", io.EOF}); w.Code != 400 {
			t.Errorf("within a frame, from %d: got %d %s", at, w.Code, w.Body)
		}
	}
}

// A reader that has gone is told nothing more.
func TestFollow_ReaderGone(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.stands(llmq.Call{ID: "r-1", State: llmq.StateRunning})
	b.calls.follow = func(int64) (llmq.Stream, error) {
		return &scripted{parts: []part{{0, "data: a\n\n", nil}, {time.Hour, "data: b\n\n", nil}}}, nil
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, callsPath+"/r-1/stream", nil)
	r.Header.Set("Authorization", "Bearer "+testSecret)
	b.door.ServeHTTP(&timed{ResponseRecorder: httptest.NewRecorder(), broken: true}, r)
}

// Whatever a piece holds, what is made of it has whole events whose ids lead on, or is refused.
func FuzzNativeEvents(f *testing.F) {
	for _, seed := range []string{
		"data: a\n\n", "event: x\ndata: b\n\ndata: c\n\n", ": c\n\n", "\n\n", "\n", "data", "id: 7\nretry: 1\n\n", "\x00", "\x00\x00\x00\x10",
		frame(f, "messageStart", `{"role":"assistant"}`), frame(f, "k\n", "a\r\nb\rc\n\n"), frame(f, "", ""),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, piece []byte) {
		out, to, err := nativeEvents(piece, 5)
		if err != nil {
			return
		}
		if to != 5+int64(len(piece)) {
			t.Fatalf("%q ends at %d", piece, to)
		}
		if len(out) == 0 {
			return
		}
		text, whole := strings.CutSuffix(string(out), "\n\n")
		if !whole {
			t.Fatalf("%q makes no whole events: %q", piece, out)
		}
		last := int64(5)
		for e := range strings.SplitSeq(text, "\n\n") {
			id, _, _ := strings.Cut(strings.TrimPrefix(e, "id: "), "\n")
			at, err := strconv.ParseInt(id, 10, 64)
			if err != nil || at <= last || strings.Count(e, "\nid:") > 0 {
				t.Fatalf("%q makes the event %q after %d", piece, e, last)
			}
			last = at
		}
		if last != to {
			t.Fatalf("%q: the last id is %d, the end %d", piece, last, to)
		}
	})
}

// Whatever a submission holds, it is read or refused with an error of ours.
func FuzzParseSubmission(f *testing.F) {
	for _, seed := range []string{submitted, `{}`, `null`, `[]`, `{"op":1}`, `{"timeout_secs":1e3,"op":"chat","model":"m","body":[]}`, `{"\u006fp":"chat"}`, `{"body":null}`, `{"a":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSubmission(b)
		if err != nil {
			if code := llmq.AsError(err).Code; code != llmq.CodeInvalidRequest && code != llmq.CodeInvalidJSON {
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		if s.Op == "" || s.Model == "" || !bytes.Contains(b, s.Body) {
			t.Fatalf("%q is read as %+v", b, s)
		}
	})
}

// Whatever headers and query hold, a wait is within its bounds and an offset is one.
func FuzzWaitsAndOffsets(f *testing.F) {
	for _, seed := range []string{"wait=5", "wait=\"5\";x", "respond-async,wait=280", "wait=18446744073709551616", ",,=", "7", "-0", "%zz", "wait=5&wait=6"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const most = 280 * time.Second
		if d := preferredWait(http.Header{"Prefer": {text}}, most); d < 0 || d > most || d%time.Second != 0 {
			t.Fatalf("%q prefers %s", text, d)
		}
		if d, err := readWait(text, most); err == nil && (d < 0 || d > most) {
			t.Fatalf("%q waits %s", text, d)
		}
		if at, err := readLastEvent(http.Header{"Last-Event-Id": {text}}); err == nil && (at < 0 || text != "" && strconv.FormatInt(at, 10) != text) {
			t.Fatalf("%q is the offset %d", text, at)
		}
	})
}
