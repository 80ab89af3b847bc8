package auth_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
)

// KT3, SEC04: while a rotation overlaps both secrets work, then only the new one; kid and tenant stay. An expired key is told so to
// its holder alone.
func TestCheck_RotationOverlapsAndKeysExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := authtest.New()
		w := authtest.All("team-a", "m")
		w.Life = 48 * time.Hour
		old := k.Issue(w)
		made, err := k.Registry.Rotate(t.Context(), old.Record.KID, 24*time.Hour, 72*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := wantCode(t, k, old.Key, ""), wantCode(t, k, made.Key, ""); a.KeyID() != b.KeyID() || a.Tenant() != b.Tenant() {
			t.Errorf("the callers differ: %+v %+v", a, b)
		}
		time.Sleep(24*time.Hour - time.Second)
		wantCode(t, k, old.Key, "")
		time.Sleep(time.Second)
		_, err = k.Checker.Check(t.Context(), "Bearer "+old.Key)
		if !errors.Is(err, llmq.CodeInvalidKey) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("the old secret after the overlap: %v", err)
		}
		wantCode(t, k, made.Key, "")
		time.Sleep(48 * time.Hour)
		wantCode(t, k, made.Key, llmq.CodeInvalidKey)
		if models, err := k.Records.Allowed(t.Context(), old.Record.KID, "team-a"); err != nil || len(models) != 1 {
			t.Errorf("what was queued before runs on: %v, %v", models, err)
		}
	})
}

// KT3: a warm process takes a new secret 5 s after it last read the record, and is not made to read it more often by one that is
// none.
func TestCheck_NewSecretIsSoonKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := authtest.New()
		old := k.Issue(authtest.All("team-a", "m"))
		wantCode(t, k, old.Key, "")
		made, err := k.Registry.Rotate(t.Context(), old.Record.KID, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		reads := k.Objects.Calls()
		time.Sleep(5*time.Second - time.Millisecond)
		wantCode(t, k, made.Key, llmq.CodeInvalidKey)
		time.Sleep(time.Millisecond)
		wantCode(t, k, made.Key, "")
		for range 100 {
			wantCode(t, k, old.Key, llmq.CodeInvalidKey)
		}
		if n := k.Objects.Calls() - reads; n != 1 {
			t.Errorf("%d reads", n)
		}
	})
}

// SEC04: after a rotation of the pepper keys of both work; after the next one those of the first do not.
func TestCheck_PepperRotates(t *testing.T) {
	t.Parallel()
	o := &authtest.Objects{}
	p := func(names ...string) auth.Peppers {
		return func(context.Context) ([][]byte, error) {
			var out [][]byte
			for _, n := range names {
				out = append(out, []byte(strings.Repeat(n, 32)))
			}
			return out, nil
		}
	}
	issue := func(peppers auth.Peppers) string {
		i, err := auth.NewRegistry("test", peppers, o).Create(t.Context(), "ops", authtest.All("team-a", "m"))
		if err != nil {
			t.Fatal(err)
		}
		return i.Key
	}
	first, second := issue(p("a")), issue(p("b", "a"))
	for _, tc := range []struct {
		peppers auth.Peppers
		key     string
		good    bool
	}{
		{p("a"), first, true},
		{p("b", "a"), first, true},
		{p("b", "a"), second, true},
		{p("c", "b"), first, false},
		{p("c", "b"), second, true},
	} {
		c, err := auth.NewChecker("test", tc.peppers, auth.NewRecords(o))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Check(t.Context(), "Bearer "+tc.key); (err == nil) != tc.good {
			t.Errorf("%v, want good %v", err, tc.good)
		}
	}
}

// A pepper that can't be fetched is an outage, not a bad key.
func TestCheck_WithoutAPepperNobodyIsServed(t *testing.T) {
	t.Parallel()
	k := authtest.New()
	key := k.Issue(authtest.All("team-a", "m")).Key
	c, err := auth.NewChecker("test", func(context.Context) ([][]byte, error) { return nil, errors.New("down") }, k.Records)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Check(t.Context(), "Bearer "+key); !errors.Is(err, llmq.CodeQueueUnavailable) {
		t.Errorf("got %v", err)
	}
}
