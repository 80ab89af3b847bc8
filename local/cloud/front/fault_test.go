package front

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

func TestInject_Refuse(t *testing.T) {
	t.Parallel()
	calls := make(chan struct{}, 9)
	f, srv := serveFront(t, fakeStreamer(func(ctx context.Context, p []byte) (*lambda.Stream, error) {
		calls <- struct{}{}
		return replies(ok)(ctx, p)
	}))
	f.Inject(Fault{Refuse: true, Times: 2, Path: "/v1/"})
	for i, tt := range []struct {
		path   string
		status int
	}{{"/v1/a", 429}, {"/health", 200}, {"/v1/b", 429}, {"/v1/c", 200}} {
		if resp, text := do(t, srv, "POST", tt.path, nil, nil); resp.StatusCode != tt.status {
			t.Errorf("request %d: got %d %s", i, resp.StatusCode, text)
		}
	}
	if len(calls) != 2 {
		t.Errorf("the function was called %d times", len(calls))
	}
	remove := f.Inject(Fault{Refuse: true})
	remove()
	remove()
	if resp, _ := do(t, srv, "POST", "/x", nil, nil); resp.StatusCode != 200 {
		t.Errorf("after the fault was removed: got %d", resp.StatusCode)
	}
}

func TestInject_Delay(t *testing.T) {
	t.Parallel()
	f, srv := serveFront(t, replies(ok))
	const slow = 100 * time.Millisecond
	f.Inject(Fault{Delay: slow, Times: 1})
	began := time.Now()
	if resp, _ := do(t, srv, "POST", "/x", nil, nil); resp.StatusCode != 200 || time.Since(began) < slow {
		t.Errorf("got %d after %v", resp.StatusCode, time.Since(began))
	}
}

// The client is gone before any of the reply, and the function works on to its end.
func TestInject_CutBeforeTheReply(t *testing.T) {
	t.Parallel()
	cut := make(chan struct{})
	ended := make(chan error, 1)
	f, srv := serveFront(t, fakeStreamer(func(context.Context, []byte) (*lambda.Stream, error) {
		<-cut
		r, w := io.Pipe()
		go func() {
			for range 3 {
				if _, err := io.WriteString(w, ok); err != nil {
					ended <- fmt.Errorf("the reply was not taken: %w", err)
					return
				}
			}
			ended <- nil
			_ = w.Close()
		}()
		return &lambda.Stream{ReadCloser: r, ContentType: integrationResponse}, nil
	}))
	f.Inject(Fault{Cut: true})
	resp, err := srv.Client().Post(srv.URL+"/x", "", strings.NewReader("{}"))
	if err == nil {
		_ = resp.Body.Close()
		t.Fatalf("got %d", resp.StatusCode)
	}
	close(cut)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestInject_CutInTheMiddle(t *testing.T) {
	t.Parallel()
	f, srv := serveFront(t, replies(ok+"0123456789"))
	f.Inject(Fault{Cut: true, After: 4, Times: 1})
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testDeadline))
	fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", srv.Listener.Addr())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	if string(got) != "0123" || err == nil {
		t.Errorf("got %q, %v", got, err)
	}
	if resp, text := do(t, srv, "GET", "/x", nil, nil); resp.StatusCode != 200 || text != "0123456789" {
		t.Errorf("afterwards: %d %s", resp.StatusCode, text)
	}
}
