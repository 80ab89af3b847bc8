package offload

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

func setupValkey(t *testing.T) (*Valkey, *miniredis.Miniredis) {
	t.Helper()
	m := llmqtest.NewMiniredis(t)
	return NewValkey(luatest.Pipe(t, m), keys.New("dev")), m
}

// B9: without a bucket a body lies beside what else belongs to its request, for as long as its message or dead letter may live.
func TestValkey_KeepsABodyUnderItsRequest(t *testing.T) {
	t.Parallel()
	v, m := setupValkey(t)
	body := bytes.Repeat([]byte("b"), MaxValkeyBytes)
	ref, err := v.Put(t.Context(), key, body)
	if err != nil {
		t.Fatal(err)
	}
	tail := strings.TrimPrefix(key, "off/")
	tenant, rid, _ := strings.Cut(tail, "/")
	name := "llmq:dev:off:" + tenant + ":{" + rid + "}"
	if ttl := m.TTL(name); ttl < 14*24*time.Hour {
		t.Errorf("%v holds %s for %v, want it to outlive a dead letter's 14 days", m.Keys(), name, ttl)
	}
	if got, err := v.Get(t.Context(), ref); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for range 2 {
		if err := v.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if left := m.Keys(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// SEC19: a body that is lost, in a wipe say, or another than was announced is a clear error.
func TestValkey_OnlyWhatWasAnnouncedIsRead(t *testing.T) {
	t.Parallel()
	v, _ := setupValkey(t)
	ref, err := v.Put(t.Context(), key, []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{`{"a":2}`, `{"a":1}}`, `{}`} {
		if _, err := v.Put(t.Context(), key, []byte(other)); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Get(t.Context(), ref); !errors.Is(err, llmq.CodeBadEnvelope) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", other, err)
		}
	}
	if err := v.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get(t.Context(), ref); !errors.Is(err, llmq.CodeBadEnvelope) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a lost one: %v", err)
	}
}

func TestValkey_KeepsNothingElse(t *testing.T) {
	t.Parallel()
	v, m := setupValkey(t)
	for _, other := range []string{"res/abcdefghijklmnop/x", "spill/abcdefghijklmnop/x", "in/billing/a.json", "off/../x", "off/abcdefghijklmnop/a{b}", ""} {
		if _, err := v.Put(t.Context(), other, []byte("{}")); err == nil {
			t.Errorf("%q was taken", other)
		}
		if _, err := v.Get(t.Context(), refTo(other, []byte("{}"))); !errors.Is(err, llmq.CodeBadEnvelope) {
			t.Errorf("%q: %v", other, err)
		}
		if v.Delete(t.Context(), other) == nil {
			t.Errorf("%q was deleted", other)
		}
	}
	if _, err := v.Put(t.Context(), key, make([]byte, MaxValkeyBytes+1)); !errors.Is(err, llmq.CodeTooLarge) {
		t.Errorf("of a body too large: %v", err)
	}
	if there := m.Keys(); len(there) != 0 {
		t.Errorf("stored: %v", there)
	}
}

func TestValkey_OutageIsUnavailable(t *testing.T) {
	t.Parallel()
	v, _ := setupValkey(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, put := v.Put(ctx, key, []byte("{}"))
	_, get := v.Get(ctx, refTo(key, []byte("{}")))
	for doing, err := range map[string]error{"put": put, "get": get, "delete": v.Delete(ctx, key)} {
		if !errors.Is(err, llmq.CodeQueueUnavailable) {
			t.Errorf("%s: %v", doing, err)
		}
	}
}
