// Package luatest is what tests of scripts, and of what is built on them, share: the
// state stores they run on, cases as data, and the check of a script's header. It
// imports testing, so nothing that is deployed may import it.
package luatest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// Servers starts each kind of real server at its first use and stops them at the end
// of a test binary. The zero value has started none.
type Servers struct {
	mu      sync.Mutex              // guards the start of servers too: a second user waits for the first
	running map[bool]*valkey.Server // by whether it is in cluster mode
}

// Main runs a package's tests, stops the servers, and fails when a goroutine is left.
func (s *Servers) Main(m *testing.M) {
	code := m.Run()
	for _, server := range s.running {
		if err := server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "stop valkey-server:", err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "leaked:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Real is a real server's address. The test is skipped where valkey-server is not
// installed, and fails there when CI is set.
func (s *Servers) Real(t testing.TB, cluster bool) *valkey.Server {
	t.Helper()
	if _, err := exec.LookPath("valkey-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI needs valkey-server: %v", err)
		}
		t.Skipf("needs valkey-server: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if running := s.running[cluster]; running != nil {
		return running
	}
	// Not the test's context: the server outlives the first test that asks for it.
	server, err := valkey.Start(context.WithoutCancel(t.Context()), valkey.Options{Engine: valkey.Real, Standalone: !cluster})
	if err != nil {
		t.Fatalf("start valkey-server: %v", err)
	}
	if s.running == nil {
		s.running = map[bool]*valkey.Server{}
	}
	s.running[cluster] = server
	return server
}

// Dial connects to a real server.
func (s *Servers) Dial(t testing.TB, cluster bool) redis.UniversalClient {
	t.Helper()
	server := s.Real(t, cluster)
	return closed(t, redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: []string{server.Addr()}, Password: server.Password(), IsClusterMode: cluster,
		DisableIdentity: true, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}))
}

// Pipe connects to a miniredis through its Dial, so that it works in a bubble.
func Pipe(t testing.TB, m *miniredis.Miniredis) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", // an address, so that nothing asks DNS
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := m.Dial()
			if err != nil {
				return nil, err
			}
			return newPumped(conn), nil
		},
		DisableIdentity: true, ContextTimeoutEnabled: true, PoolSize: 200, // more than ask at once: a wait for a connection is not made for bubbles
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	closed(t, c)
	return c
}

func closed(t testing.TB, c redis.UniversalClient) redis.UniversalClient {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return c
}

// Each runs a test on every store: miniredis, and a real server standalone and in
// cluster mode, where scripts must declare their keys.
func (s *Servers) Each(t *testing.T, test func(t *testing.T, c redis.UniversalClient)) {
	t.Helper()
	s.each(t, llmqtest.NewMiniredis, test)
}

func (s *Servers) each(t *testing.T, mini func(testing.TB) *miniredis.Miniredis, test func(t *testing.T, c redis.UniversalClient)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, Pipe(t, mini(t)))
	})
	t.Run("valkey", func(t *testing.T) {
		t.Parallel()
		test(t, s.Dial(t, false))
	})
	t.Run("valkey-cluster", func(t *testing.T) {
		t.Parallel()
		test(t, s.Dial(t, true))
	})
}

// Space is a key space that nobody else has, since tests share their servers.
func Space() keys.Space { return keys.New(strings.ToLower(rand.Text()[:16])) }
