package wiring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/cloud/relay"
	store "github.com/llm-queue/llmq/pkg/llmq/internal/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// answer is one of the server's.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// C9: what counts as a store that can't be used, and what as one that is there.
func TestStoreCause_NamesWhyTheStoreFailed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{redis.Nil, ""},
		{answer("NOSCRIPT No matching script."), ""},
		{answer("ERR user_script:3: boom"), ""},
		{answer("WRONGTYPE Operation against a key"), ""},
		{answer("LOADING the dataset in memory"), "loading"},
		{answer("READONLY You can't write against a read only replica."), "readonly"},
		{answer("CLUSTERDOWN The cluster is down"), "cluster_down"},
		{answer("MOVED 1 127.0.0.1:1"), "moving"},
		{answer("OOM command not allowed"), "out_of_memory"},
		{answer("NOAUTH Authentication required."), "auth"},
		{answer("ERR max number of clients reached"), "too_many_clients"},
		{fmt.Errorf("hello: %w", answer("WRONGPASS invalid username-password pair")), "auth"},
		{context.DeadlineExceeded, "timeout"},
		{redis.ErrPoolTimeout, "timeout"},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "refused"},
		{io.EOF, "reset"},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, "reset"},
		{errors.New("odd"), "other"},
	} {
		if got := storeCause(tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}

// C9: however the store fails, a call of it ends within its bound, and the first calls after the recovery succeed.
func TestWatched_CallsOfALostStoreAreBounded(t *testing.T) {
	t.Parallel()
	server := realValkey(t, true)
	link, err := relay.New(t.Context(), server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	_, port, err := net.SplitHostPort(link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := direct(t, server).ConfigSet(t.Context(), "cluster-announce-port", port).Err(); err != nil {
		t.Fatal(err)
	}
	const command, dialing = 500 * time.Millisecond, 2 * time.Second // as functions have them
	c, err := store.Dial(store.Options{Address: link.Addr(), Password: server.Password(), Cluster: true, CommandTimeout: command, DialTimeout: dialing})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	log := &syncBuffer{}
	watch := telemetry.NewStore("w", nil, slog.New(slog.NewTextHandler(log, nil)))
	const within = dialing + 2*command
	c.AddHook(watched{watch, within})
	call := func(i int) (time.Duration, error) {
		began := time.Now()
		p := c.Pipeline()
		p.Incr(t.Context(), "{a}"+strconv.Itoa(i))
		p.Incr(t.Context(), "{b}"+strconv.Itoa(i))
		_, err := p.Exec(t.Context())
		return time.Since(began), err
	}
	if _, err := call(0); err != nil {
		t.Fatalf("while all is well: %v", err)
	}
	for name, lose := range map[string]func(){
		"hanging": link.Hang, "cut and hanging": func() { link.Hang(); link.Cut() }, "refused": func() { link.Refuse(); link.Cut() },
	} {
		lose()
		var longest time.Duration
		for i := range 4 {
			took, err := call(i)
			if err == nil {
				t.Errorf("%s: call %d succeeded", name, i)
			}
			longest = max(longest, took)
		}
		if longest > within+2*time.Second { // a busy machine is slow too
			t.Errorf("%s: a call took %s, want at most %s", name, longest, within)
		}
		if watch.DownFor() == 0 {
			t.Errorf("%s: nobody noticed", name)
		}
		link.Resume()
		back := time.Now()
		_, err := call(0)
		for err != nil && time.Since(back) < 10*time.Second {
			_, err = call(0)
		}
		if err != nil || watch.DownFor() != 0 {
			t.Errorf("%s: not back: %v, down for %s", name, err, watch.DownFor())
		}
		t.Logf("%s: a failing call took at most %.2f s; back after %.2f s", name, longest.Seconds(), time.Since(back).Seconds())
	}
	if said := log.String(); strings.Count(said, "state_store_lost") != 3 || strings.Count(said, "state_store_back") != 3 {
		t.Errorf("said\n%s", said)
	}
}

// Who gives up by himself knows nothing of the store.
func TestWatched_AGivenUpCallIsNoFailure(t *testing.T) {
	t.Parallel()
	watch := telemetry.NewStore("w", nil, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	hook := watched{watch, time.Minute}.ProcessHook(func(ctx context.Context, _ redis.Cmder) error {
		cancel()
		return ctx.Err()
	})
	if err := hook(ctx, redis.NewCmd(ctx, "GET", "k")); !errors.Is(err, context.Canceled) || watch.DownFor() != 0 {
		t.Errorf("error %v, down for %s", err, watch.DownFor())
	}
}

// E1: a function's process has four connections at most, another as many as it is told.
func TestConnections_AreFewInAFunction(t *testing.T) {
	t.Parallel()
	function := []string{"AWS_LAMBDA_FUNCTION_NAME=llmq-dev-worker-rt"}
	for _, tc := range []struct {
		env        []string
		configured int
		want       int
	}{{nil, 32, 32}, {nil, 2, 2}, {function, 32, 4}, {function, 2, 2}} {
		if got := connections(tc.env, tc.configured); got != tc.want {
			t.Errorf("connections(%v, %d) = %d, want %d", tc.env, tc.configured, got, tc.want)
		}
	}
}
