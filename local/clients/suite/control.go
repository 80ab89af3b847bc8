// Package suite installs and runs the scripts that call llmq by the clients of npm and PyPI, and steers the fake provider for them.
package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

// Control steers the fake provider for scripts: each check forgets what was before, says what the provider answers, and counts
// afterwards how often it was called.
type Control struct {
	fake *server.Server
	url  string
	srv  *http.Server
	done chan struct{}
}

// NewControl listens on 127.0.0.1 until Close.
func NewControl(fake *server.Server) (*Control, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed by Close
	if err != nil {
		return nil, err
	}
	c := &Control{fake: fake, url: "http://" + l.Addr().String(), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /replies", c.serveReplies)
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(c.Calls()) // who asks sees that it broke
	})
	c.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(c.done)
		_ = c.srv.Serve(l) // it ends when Close says so
	}()
	return c, nil
}

// Close ends it.
func (c *Control) Close(ctx context.Context) error {
	err := c.srv.Shutdown(ctx)
	<-c.done
	return err
}

// serveReplies takes the replies of the next calls, as fakellm's program files have them; none is what it answers by itself.
func (c *Control) serveReplies(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err == nil {
		err = c.load(r.Context(), body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (c *Control) load(ctx context.Context, replies []byte) error {
	var p server.Program
	if string(replies) != "[]" {
		var err error
		if p, err = server.ParseProgram(fmt.Appendf(nil, `{"queue":[{"replies":%s}]}`, replies)); err != nil {
			return err
		}
	}
	c.forget(ctx)
	return c.fake.Load(p)
}

// forget makes what was before no part of what is counted: calls that nobody waits for any more may still be under way.
func (c *Control) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c.fake.Release(server.Match{})
	_ = c.fake.AwaitInFlight(ctx, "", 0) // else a count tells
	c.fake.Reset()
}

// Replies says what the provider answers next, and forgets what was before.
func (c *Control) Replies(ctx context.Context, replies ...server.Reply) error {
	c.forget(ctx)
	return c.fake.Program(server.Match{}, replies...)
}

// Calls is how often the provider was called since.
func (c *Control) Calls() int { return c.fake.Stats().All.Calls }
