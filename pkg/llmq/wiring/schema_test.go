package wiring

import (
	"bytes"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// B13: state of a newer release refuses the start; a new or an older store is taken, and marked.
func TestSchema_NewerStateRefusesTheStart(t *testing.T) {
	t.Parallel()
	ours := strconv.Itoa(keys.Schema)
	for name, tt := range map[string]struct {
		stored  string
		refused bool
	}{
		"a new store": {stored: ""}, "ours": {stored: ours}, "older": {stored: strconv.Itoa(keys.Schema - 1)},
		"newer": {stored: strconv.Itoa(keys.Schema + 1), refused: true}, "of an unknown form": {stored: "2.1-rc", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, space := llmqtest.NewMiniredis(t), keys.New("e")
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.stored != "" {
				if err := server.Set(space.Schema(), tt.stored); err != nil {
					t.Fatal(err)
				}
			}
			store := clientOf(t, server.Addr())
			err := checkSchema(t.Context(), store, space, slog.New(slog.DiscardHandler))
			if tt.refused != errors.Is(err, llmq.CodeConfiguration) || !tt.refused && err != nil {
				t.Errorf("error %v, want refused: %t", err, tt.refused)
			}
			want := ours
			if tt.refused { // it is the newer release's
				want = tt.stored
			}
			if got, err := server.Get(space.Schema()); err != nil || got != want {
				t.Errorf("the store is marked %q (%v), want %q", got, err, want)
			}
		})
	}
}

// D11: a function starts without a state store, in its time.
func TestSchema_StoreThatIsDownDelaysNoStart(t *testing.T) {
	t.Parallel()
	server := llmqtest.NewMiniredis(t)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	store := clientOf(t, server.Addr())
	server.Close()
	var log bytes.Buffer
	began := time.Now()
	if err := checkSchema(t.Context(), store, keys.New("e"), slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Errorf("refused: %v", err)
	}
	if took := time.Since(began); took > 2*schemaWait || !strings.Contains(log.String(), "not looked at") {
		t.Errorf("took %s, log %q", took, log.String())
	}
}

func clientOf(t *testing.T, address string) redis.UniversalClient {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: address, DisableIdentity: true, ContextTimeoutEnabled: true, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
