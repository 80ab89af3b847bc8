package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// openStream starts the streaming function and returns once its prelude is there.
func openStream(t *testing.T, h *Host) (*Stream, func(steps string)) {
	t.Helper()
	g := newGate(t)
	payload := order(t, map[string]any{"op": "stream", "gate": g.addr()})
	ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
	t.Cleanup(cancel)
	s, err := h.InvokeStream(ctx, "fn", payload)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	conn := g.accept()
	return s, func(steps string) { t.Helper(); send(t, conn, steps) }
}

func readChunk(t *testing.T, s *Stream) string {
	t.Helper()
	buf := make([]byte, 1<<10)
	n, err := s.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

const testPrelude = `{"statusCode":200,"headers":{"Content-Type":"text/event-stream"}}` + "\x00\x00\x00\x00\x00\x00\x00\x00"

// Each chunk is asked for only after the one before it has been read, so one that was held back would hang the test.
func TestInvokeStream_ChunksPassAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	s, step := openStream(t, h)
	if s.ContentType != "application/vnd.awslambda.http-integration-response" {
		t.Errorf("content type %q", s.ContentType)
	}
	if got := readChunk(t, s); got != testPrelude {
		t.Errorf("prelude %q", got)
	}
	for _, want := range []string{"data: 1\n\n", "data: 2\n\n", "data: 3\n\n"} {
		step("c")
		if got := readChunk(t, s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	step(".")
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
	if i := h.Instances("fn"); len(i) != 1 || i[0].State != StateIdle {
		t.Errorf("after the end: %+v, want idle", i)
	}
}

func TestInvokeStream_EndsThatAreNot(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, steps, wantType, wantText string }{
		{"reader fails: trailer", "cx", "errorString", "upstream broke"},
		{"process exits", "cq", "Runtime.ExitError", "exit status 9"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := setup(t, nil)
			s, step := openStream(t, h)
			step(tt.steps)
			_, err := io.ReadAll(s)
			var failed *FunctionError
			if !errors.As(err, &failed) || failed.Type != tt.wantType || !strings.Contains(string(failed.Payload), tt.wantText) {
				t.Fatalf("got %v (%+v)", err, failed)
			}
			if h.Stats("fn").Errors != 1 {
				t.Errorf("stats %+v", h.Stats("fn"))
			}
		})
	}
}

func TestInvokeStream_FailureBeforeTheReply(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	_, err := h.InvokeStream(t.Context(), "fn", []byte(`{"op":"error","text":"early"}`))
	var failed *FunctionError
	if !errors.As(err, &failed) || failed.Type != "errorString" {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), "early") {
		t.Errorf("the error's text quotes the payload: %v", err)
	}
}

func TestInvokeStream_ReaderThatLeavesDoesNotStopTheFunction(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	s, step := openStream(t, h)
	readChunk(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	step("cccc.")
	eventually(t, "idle again", func() bool { return h.Instances("fn")[0].State == StateIdle })
	if st := h.Stats("fn"); st.Errors != 0 {
		t.Errorf("stats %+v, want no error", st)
	}
}

func TestInvoke_OfAStreamingFunctionIsBuffered(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	g := newGate(t)
	results := make(chan Result, 1)
	go func() { results <- invoke(t, h, map[string]any{"op": "stream", "gate": g.addr()}) }()
	send(t, g.accept(), "cc.")
	if got := string((<-results).Payload); got != testPrelude+"data: 1\n\ndata: 2\n\n" {
		t.Errorf("got %q", got)
	}
}

func TestPass_KeepsReadingWhenTheWriterFails(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	_ = r.Close()
	n, err := pass(w, strings.NewReader("abc"), 2, func(int64) {})
	if n != 3 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestFunctionError_JSONIsAWSs(t *testing.T) {
	t.Parallel()
	e := platformError("fn", "id", "T", `say "no"`)
	if string(e.Payload) != `{"errorType":"T","errorMessage":"say \"no\""}` || !json.Valid(e.Payload) {
		t.Errorf("got %s", e.Payload)
	}
}

func TestPacer_FirstBytesPassAtOnceTheRestAtTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := pacer{free: 6 << 20, rate: 2 << 20}
		var took []time.Duration
		for _, total := range []int64{1, 6 << 20, 7 << 20, 8 << 20, 20 << 20} {
			p.wait(total)
			took = append(took, time.Since(began))
		}
		want := []time.Duration{0, 0, time.Second / 2, time.Second, 7 * time.Second}
		if diff := cmp.Diff(want, took); diff != "" {
			t.Error(diff)
		}
		stop := make(chan struct{})
		close(stop)
		p.stop = stop
		p.wait(200 << 20) // returns, since the instance is gone
	})
}
