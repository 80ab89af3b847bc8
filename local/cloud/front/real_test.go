package front

import (
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// realHost runs the test function of package lambda as a real bootstrap.
func realHost(t *testing.T) *lambda.Host {
	t.Helper()
	bootstrap := filepath.Join(t.TempDir(), "bootstrap")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "lambda.norpc", "-o", bootstrap, "../lambda/internal/testfn")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the test function: %v: %s", err, out)
	}
	h, err := lambda.New(lambda.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(context.Background()) })
	err = h.Create(lambda.FunctionConfig{Name: "door", Bootstrap: bootstrap, Timeout: 20 * time.Second, MemoryMB: 128, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// shaper gives the test function its order in place of the event, which the function does not understand.
type shaper struct {
	*lambda.Host
	order string
}

func (s shaper) InvokeStream(ctx context.Context, name string, _ []byte) (*lambda.Stream, error) {
	return s.Host.InvokeStream(ctx, name, []byte(s.order))
}

func TestFront_RealFunctionStreamsChunkByChunk(t *testing.T) {
	t.Parallel()
	h := realHost(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(testDeadline))
	srv := serve(t, shaper{h, `{"op":"stream","gate":"` + ln.Addr().String() + `"}`}, nil)

	resp, err := srv.Client().Post(srv.URL+"/v1/x", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	gate, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gate.Close() }()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("got %d %v", resp.StatusCode, resp.Header)
	}
	for _, want := range []string{"data: 1\n\n", "data: 2\n\n"} {
		if _, err := gate.Write([]byte("c")); err != nil { // only now may the function write the chunk
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := gate.Write([]byte(".")); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
		t.Errorf("got %q, %v", rest, err)
	}
}

// The echoing function returns the event, which has no status: a 502. So the event has reached it and is JSON.
func TestFront_RealFunctionGetsTheEvent(t *testing.T) {
	t.Parallel()
	h := realHost(t)
	o := options()
	buffered, err := NewBuffered(o, h)
	if err != nil {
		t.Fatal(err)
	}
	resp, _ := do(t, start(t, buffered), http.MethodPost, "/v1/x", strings.NewReader("{}"), nil)
	if resp.StatusCode != http.StatusBadGateway || h.Stats("door").Invocations != 1 || h.Stats("door").Errors != 0 {
		t.Errorf("got %d, stats %+v", resp.StatusCode, h.Stats("door"))
	}
}
