package results

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

// bodies keeps bodies in memory, or fails.
type bodies struct {
	stored map[string][]byte
	err    error
}

func (b *bodies) Put(_ context.Context, key string, body []byte) (llmq.Ref, error) {
	if b.err != nil {
		return llmq.Ref{}, b.err
	}
	b.stored[key] = body
	return llmq.Ref{Key: key, SHA256: strings.Repeat("0a", 32), Bytes: int64(len(body))}, nil
}

func (b *bodies) Get(_ context.Context, ref llmq.Ref) ([]byte, error) {
	return b.stored[ref.Key], b.err
}

func reply(body string) llmq.Result {
	return llmq.Result{RID: request("a").RID(), Tenant: "t", Reply: &llmq.Reply{Status: 200, ContentType: "application/json", Body: []byte(body)}}
}

func TestStore_EncodesSmallInsideAndLargeAside(t *testing.T) {
	t.Parallel()
	limit := 100
	for _, tc := range []struct {
		name  string
		body  string
		aside bool
	}{
		{"at the limit", `"` + strings.Repeat("x", limit-2) + `"`, false},
		{"above it", `"` + strings.Repeat("x", limit-1) + `"`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := &bodies{stored: map[string][]byte{}}
			s := New(nil, luatest.Space(), b, limit)
			stored, whyInside, err := s.Encode(t.Context(), reply(tc.body), false)
			if err != nil || whyInside != nil {
				t.Fatalf("encode: %v, %v", err, whyInside)
			}
			if inside := strings.Contains(string(stored), tc.body); inside == tc.aside || (len(b.stored) == 1) != tc.aside {
				t.Errorf("inside %v, %d put aside", inside, len(b.stored))
			}
			if tc.aside && b.stored["res/"+llmq.TenantHash("t")+"/"+string(request("a").RID())] == nil {
				t.Errorf("put under %v", b.stored)
			}
			got, err := s.Decode(t.Context(), request("a"), stored)
			if diff := cmp.Diff(reply(tc.body), got); diff != "" || err != nil {
				t.Errorf("back: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestStore_FailureToFetchABodyIsPassedOn(t *testing.T) {
	t.Parallel()
	down := llmq.Errorf(llmq.CodeQueueUnavailable, "down")
	b := &bodies{stored: map[string][]byte{}}
	s := New(nil, luatest.Space(), b, 1)
	stored, _, err := s.Encode(t.Context(), reply(`"xx"`), false)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	b.err = down
	if _, err := s.Decode(t.Context(), request("a"), stored); !errors.Is(err, down) {
		t.Errorf("decode = %v, want the failure", err)
	}
}

// DS25: a paid reply is stored whatever becomes of the bucket, also one that says nothing.
func TestStore_BodyThatCannotBePutAsideStaysInside(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(context.Context) error{
		"refused": func(context.Context) error { return errors.New("AccessDenied") },
		"silent":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, start := New(nil, luatest.Space(), failing(put), 1), time.Now()
				stored, why, err := s.Encode(t.Context(), reply(`"xx"`), false)
				if err != nil || why == nil || time.Since(start) > putWithin {
					t.Fatalf("encode = %v, %v after %v; want it told why it is inside", why, err, time.Since(start))
				}
				got, err := s.Decode(t.Context(), request("a"), stored)
				if diff := cmp.Diff(reply(`"xx"`), got); diff != "" || err != nil {
					t.Errorf("back: %v (-want +got):\n%s", err, diff)
				}
			})
		})
	}
}

// failing are bodies that can't be put.
type failing func(context.Context) error

func (f failing) Put(ctx context.Context, _ string, _ []byte) (llmq.Ref, error) {
	return llmq.Ref{}, f(ctx)
}

func (f failing) Get(ctx context.Context, _ llmq.Ref) ([]byte, error) { return nil, f(ctx) }

func TestStore_LookFindsWhatIsStored(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		h := newHub(t, c)
		look := func() []byte {
			var b luascript.Batch
			pending := h.store.Look(&b, request("a"))
			if err := b.Run(t.Context(), c); err != nil {
				t.Fatalf("run: %v", err)
			}
			got, err := pending()
			if err != nil {
				t.Fatalf("look: %v", err)
			}
			return got
		}
		if got := look(); got != nil {
			t.Errorf("nothing is stored, found %q", got)
		}
		h.put(t, "a")
		if got := string(look()); got != "result of a" {
			t.Errorf("found %q", got)
		}
	})
}

// KT6.
func TestStore_AnothersResultIsRefused(t *testing.T) {
	t.Parallel()
	s := New(nil, luatest.Space(), nil, 100)
	stored, _, err := s.Encode(t.Context(), reply(`"theirs"`), false)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	for name, r := range map[string]llmq.Request{"request": request("b"), "tenant": {ID: "a", Tenant: "u"}} {
		got, err := s.Decode(t.Context(), r, stored)
		if !errors.Is(err, llmq.CodeInternal) || got.Reply != nil || strings.Contains(err.Error(), "theirs") {
			t.Errorf("another %s got %+v, %v", name, got, err)
		}
	}
}
