package wiring

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// What the client library says of a lost store is a line of the process's log, at debug level, and not one of its own. A process is
// started for that, and Start fails for want of a configuration: the log is set before anything connects.
func TestStart_TakesWhatTheStoresClientSays(t *testing.T) { //nolint:paralleltest // the library has one logger for the process
	log := &syncBuffer{}
	if _, err := Start([]string{"LLMQ_CONFIG=/nonexistent"}, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))); err == nil {
		t.Fatal("started without a configuration")
	}
	t.Cleanup(func() { logRedis(slog.New(slog.DiscardHandler)) })
	lost := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody is there") },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = lost.Close() })
	if err := lost.Set(t.Context(), "k", "a body", 0).Err(); err == nil {
		t.Fatal("a store that is not there took a command")
	}
	said := log.String()
	if !strings.Contains(said, "level=DEBUG msg=state_store_client") || !strings.Contains(said, "nobody is there") || strings.Contains(said, "a body") {
		t.Errorf("the log says %q", said)
	}
}
