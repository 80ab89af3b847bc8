package httpapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
)

var testNow = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func read(pairs ...string) (options, error) {
	return readOptions(headers(pairs...), testNow, DefaultConfig().Timeouts)
}

func TestReadOptions_DefaultsAreTheLanes(t *testing.T) {
	t.Parallel()
	for lane, want := range map[string]time.Duration{"": 90 * time.Second, "rt": 90 * time.Second, "bg": 300 * time.Second, "bulk": 900 * time.Second} {
		o, err := read("X-LLMQ-Lane", lane)
		if err != nil || o.deadline.Sub(testNow) != want || o.fallback != llmq.FallbackChain || o.id != "" {
			t.Errorf("%q: got %+v, %v", lane, o, err)
		}
	}
}

func TestReadOptions_ReadsTheWholeList(t *testing.T) {
	t.Parallel()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
	got, err := read("X-LLMQ-Lane", "bg", "X-LLMQ-Timeout-Secs", "3600", "X-LLMQ-Fallback", "target", "X-LLMQ-Request-Id", "a:b_c.D-1", "Idempotency-Key", "a:b_c.D-1",
		"X-LLMQ-User", "müller", "X-LLMQ-Session", strings.Repeat("s", 256), "Traceparent", trace+"01", "X-Request-Id", "not\x00looked at", "Baggage", "x=y")
	want := options{
		id: "a:b_c.D-1", lane: llmq.LaneBG, fallback: llmq.FallbackTarget, deadline: testNow.Add(time.Hour),
		user: "müller", session: strings.Repeat("s", 256), trace: trace + "00",
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestReadOptions_TakesAnAbsoluteDeadline(t *testing.T) {
	t.Parallel()
	o, err := read("X-LLMQ-Deadline", "2026-11-29T13:00:30.5+01:00")
	if err != nil || !o.deadline.Equal(testNow.Add(30500*time.Millisecond)) {
		t.Errorf("got %v, %v", o.deadline, err)
	}
}

func TestReadOptions_RefusesAndNamesTheHeader(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		in      []string
		field   string
		message string // part of it
	}{
		{"unknown, near", []string{"X-LLMQ-Lanes", "rt"}, "X-Llmq-Lanes", "did you mean X-LLMQ-Lane?"},
		{"unknown, far", []string{"X-LLMQ-Colour", "red"}, "X-Llmq-Colour", "the known ones are X-LLMQ-Lane, "},
		{"one of ours in answers", []string{"X-LLMQ-Target", "x"}, "X-Llmq-Target", "unknown"},
		{"lane", []string{"X-LLMQ-Lane", "fast"}, "X-LLMQ-Lane", "rt, bg or bulk"},
		{"lane in capitals", []string{"X-LLMQ-Lane", "RT"}, "X-LLMQ-Lane", ""},
		{"fallback", []string{"X-LLMQ-Fallback", "no"}, "X-LLMQ-Fallback", "chain or target"},
		{"timeout 0", []string{"X-LLMQ-Timeout-Secs", "0"}, "X-LLMQ-Timeout-Secs", "from 1 to 300"},
		{"timeout above the lane's", []string{"X-LLMQ-Timeout-Secs", "301"}, "X-LLMQ-Timeout-Secs", "from 1 to 300"},
		{"timeout above bg's", []string{"X-LLMQ-Timeout-Secs", "3601", "X-LLMQ-Lane", "bg"}, "X-LLMQ-Timeout-Secs", "3600"},
		{"timeout 1.5", []string{"X-LLMQ-Timeout-Secs", "1.5"}, "X-LLMQ-Timeout-Secs", ""},
		{"timeout -1", []string{"X-LLMQ-Timeout-Secs", "-1"}, "X-LLMQ-Timeout-Secs", ""},
		{"timeout +1", []string{"X-LLMQ-Timeout-Secs", "+1"}, "X-LLMQ-Timeout-Secs", ""},
		{"timeout beyond int64", []string{"X-LLMQ-Timeout-Secs", "99999999999999999999"}, "X-LLMQ-Timeout-Secs", ""},
		{"timeout and deadline", []string{"X-LLMQ-Timeout-Secs", "5", "X-LLMQ-Deadline", "2026-11-29T12:00:05Z"}, "X-LLMQ-Deadline", "both given"},
		{"deadline past", []string{"X-LLMQ-Deadline", "2026-11-29T12:00:00Z"}, "X-LLMQ-Deadline", "in the past"},
		{"deadline far", []string{"X-LLMQ-Deadline", "2026-11-29T12:05:01Z"}, "X-LLMQ-Deadline", "at most 300"},
		{"deadline in ms", []string{"X-LLMQ-Deadline", "1795953600000"}, "X-LLMQ-Deadline", "RFC 3339"},
		{"ids differ", []string{"Idempotency-Key", "a", "X-LLMQ-Request-Id", "b"}, "Idempotency-Key", "differ"},
		{"id with a space", []string{"Idempotency-Key", "a b"}, "Idempotency-Key", "position 2"},
		{"id of 129", []string{"X-LLMQ-Request-Id", strings.Repeat("x", 129)}, "X-LLMQ-Request-Id", "1 to 128"},
		{"id twice", []string{"Idempotency-Key", "a", "Idempotency-Key", "a"}, "Idempotency-Key", "2 times"},
		{"user of 257", []string{"X-LLMQ-User", strings.Repeat("u", 257)}, "X-LLMQ-User", "at most 256"},
		{"session of 257", []string{"X-LLMQ-Session", strings.Repeat("u", 257)}, "X-LLMQ-Session", "at most 256"},
		{"user not UTF-8", []string{"X-LLMQ-User", "\xff"}, "X-LLMQ-User", "UTF-8"},
		{"SEC14 CR in an id", []string{"Idempotency-Key", "a\rb"}, "Idempotency-Key", "control character at position 2"},
		{"SEC14 LF in an id", []string{"Idempotency-Key", "a\nb"}, "Idempotency-Key", "control character"},
		{"SEC14 NUL in an id", []string{"X-LLMQ-Request-Id", "\x00"}, "X-LLMQ-Request-Id", "control character"},
		{"SEC14 CR LF in a session", []string{"X-LLMQ-Session", "a\r\nSet-Cookie: b"}, "X-LLMQ-Session", "control character"},
		{"SEC14 DEL in a user", []string{"X-LLMQ-User", "\x7f"}, "X-LLMQ-User", "control character"},
		{"SEC14 NUL in a lane", []string{"X-LLMQ-Lane", "rt\x00"}, "X-LLMQ-Lane", "control character"},
		{"SEC23 log line in an id", []string{"Idempotency-Key", "a\n{\"_aws\":1}"}, "Idempotency-Key", "control character"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := read(tc.in...)
			e, ok := errors.AsType[*llmq.Error](err)
			if !ok || e.Code != llmq.CodeInvalidRequest || e.Field != tc.field || !strings.Contains(e.Message, tc.message) {
				t.Errorf("got %v at %q", err, e.Field)
			}
		})
	}
}

// As W3C asks, a trace context that is not of its form is ignored.
func TestReadTrace_IgnoresWhatIsNone(t *testing.T) {
	t.Parallel()
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for in, want := range map[string]string{
		"00-" + id + "-" + span + "-01":                      "00-" + id + "-" + span + "-00",
		"00-" + id + "-" + span + "-00":                      "00-" + id + "-" + span + "-00",
		"cc-" + id + "-" + span + "-01-future":               "00-" + id + "-" + span + "-00",
		"00-" + id + "-" + span + "-01-x":                    "",
		"ff-" + id + "-" + span + "-01":                      "",
		"00-" + strings.ToUpper(id) + "-" + span:             "",
		"00-" + id + "-" + span:                              "",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01": "",
		"00-" + id + "-" + strings.Repeat("0", 16) + "-01":   "",
		"": "", "x\r\ny": "",
	} {
		if got := readTrace([]string{in}); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if got := readTrace([]string{"00-" + id + "-" + span + "-01", "00-" + id + "-" + span + "-01"}); got != "" {
		t.Errorf("two values: got %q", got)
	}
}

// SEC14, through the whole door, as a gateway's event would bring it.
func TestServeHTTP_SEC14ControlCharactersAre400(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Idempotency-Key", "X-LLMQ-Request-Id", "X-LLMQ-User", "X-LLMQ-Session"} {
		for _, c := range []string{"\r", "\n", "\x00"} {
			b := setup(t, ok)
			w := b.chat(name, "a"+c+"b")
			b.refused(t, w, http.StatusBadRequest, llmq.CodeInvalidRequest)
			for h, vs := range w.Header() {
				if strings.ContainsAny(strings.Join(vs, ""), "\r\n\x00") {
					t.Errorf("%s came back in %s", name, h)
				}
			}
		}
	}
}

func TestServeHTTP_AnswersCarryTheCallersIDOnceItIsKnown(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	if got := b.chat("Idempotency-Key", "r-7", "X-LLMQ-Lane", "fast").Header().Get("X-LLMQ-Request-Id"); got != "r-7" {
		t.Errorf("got %q after a fault in another header", got)
	}
	if got := b.send(http.MethodPost, "/v1/chat/completions", "{", "X-LLMQ-Request-Id", "r-8", "X-LLMQ-Lane", "bg"); got.Header().Get("X-LLMQ-Request-Id") != "r-8" || got.Header().Get("X-LLMQ-Lane") != "bg" {
		t.Errorf("got %v after a fault in the body", got.Header())
	}
	w := b.chat()
	id := w.Header().Get("X-LLMQ-Request-Id")
	if reqs := b.calls.requests(); llmq.CheckID("id", id) != nil || len(reqs) != 1 || reqs[0].ID != id {
		t.Errorf("an id of our own: %q, handed over %+v", id, reqs)
	}
}

func FuzzReadOptions(f *testing.F) {
	f.Add("X-LLMQ-Lane", "rt", "Idempotency-Key", "a")
	f.Add("X-LLMQ-Timeout-Secs", "30", "X-LLMQ-Deadline", "2026-11-29T12:00:05Z")
	f.Add("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "X-LLMQ-User", "ü")
	f.Add("x-llmq-", "\x00", "X-LLMQ-Session", "\r\n")
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2 string) {
		o, err := read(n1, v1, n2, v2)
		if err != nil {
			if e := llmq.AsError(err); e.Code != llmq.CodeInvalidRequest || !utf8.ValidString(e.Message) && utf8.ValidString(n1+n2) || strings.ContainsAny(e.Message, "\r\n\x00") {
				t.Fatalf("not a clean refusal: %q", err)
			}
			return
		}
		if o.id != "" && llmq.CheckID("id", o.id) != nil {
			t.Fatalf("illegal id %q", o.id)
		}
		d := o.deadline.Sub(testNow)
		if d <= 0 || d > o.lane.MaxTimeout() {
			t.Fatalf("deadline in %s on %s", d, o.lane)
		}
		if len(o.user) > 256 || len(o.session) > 256 || strings.ContainsAny(o.user+o.session+o.trace, "\r\n\x00") || len(o.trace) > 55 {
			t.Fatalf("bad labels %+v", o)
		}
	})
}

func FuzzPathModel(f *testing.F) {
	for _, s := range []string{"conv-a", "conv-a%40eu", "a%252Fb", "%00", "..", "a//b", testARN, "arn%3Aaws", "%", "%zz", "%ff", "a%2F%2Fb", "%2e%2e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := pathModel(s)
		if err != nil {
			if llmq.AsError(err).Code != llmq.CodeModelNotFound {
				t.Fatalf("got %v", err)
			}
			return
		}
		id := ref.String()
		if len(id) > llmq.MaxModelRefBytes || strings.ContainsAny(id, "%\x00") || strings.Contains(id, "..") || strings.Contains(id, "//") {
			t.Fatalf("%q became %q", s, id)
		}
		if again, err := pathModel(id); err != nil || cmp.Diff(ref, again) != "" {
			t.Fatalf("%q is not the same when it comes decoded: %v", id, err)
		}
	})
}

// Whatever the path is: no panic, no call unless a model is found, never a 5xx.
func FuzzServeHTTP_Path(f *testing.F) {
	for _, s := range []string{"/v1/chat/completions", "/model/conv-a/converse", "/model//converse", "/model/%2e%2e/converse", "/model/a%252Fb/converse", "/health", "//", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		b := &bundle{calls: &fakeCalls{do: ok}, log: &lockedBuffer{}}
		var err error
		if b.door, err = New(DefaultConfig(), Deps{Calls: b.calls, Keys: testKeys.Door(), Rates: authtest.NoRates{}, Catalogue: catalogue(), HashID: hashed, Logger: discard()}); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(chatBody))
		r.URL.Path, r.URL.RawPath = path, path
		r.Header.Set("Authorization", "Bearer "+testSecret)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		b.door.ServeHTTP(w, r)
		if w.Code >= 500 || w.Code == http.StatusOK != (len(b.calls.requests()) == 1) {
			t.Fatalf("%q: got %d %s", path, w.Code, w.Body)
		}
	})
}
