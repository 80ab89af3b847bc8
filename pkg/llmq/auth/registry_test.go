package auth_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
)

// KT2, KT3: the record holds no secret, and an end.
func TestCreate_KeepsADigestAndAnEnd(t *testing.T) {
	t.Parallel()
	k := authtest.New()
	i := k.Issue(auth.Wish{Tenant: "team-a"})
	body, _, err := k.Objects.Get(t.Context(), "keys/"+i.Record.KID+".json")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(i.Key, "_")
	if strings.Contains(string(body), parts[3]) || strings.Contains(string(body), parts[4]) || strings.Contains(string(body), authtest.Pepper) {
		t.Errorf("the record holds a secret: %s", body)
	}
	if !strings.Contains(string(body), `"models":[]`) || !strings.Contains(string(body), `"scopes":[]`) || !strings.Contains(string(body), `"lanes":[]`) {
		t.Errorf("an empty list is not seen: %s", body)
	}
	if life := time.Until(i.Record.ExpiresAt()); life > 90*24*time.Hour || life < 90*24*time.Hour-time.Minute {
		t.Errorf("it lives for %v", life)
	}
}

func TestCreate_RefusesWhatNoKeyCanBe(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*auth.Wish){
		"tenant":           func(w *auth.Wish) { w.Tenant = "Team A" },
		"name":             func(w *auth.Wish) { w.Name = strings.Repeat("n", 101) },
		"scopes":           func(w *auth.Wish) { w.Scopes = []auth.Scope{"admin"} },
		"lanes":            func(w *auth.Wish) { w.Lanes = []llmq.Lane{""} },
		"models":           func(w *auth.Wish) { w.Models = llmq.ModelSet{"*"} },
		"calls_per_minute": func(w *auth.Wish) { w.CallsPerMinute = auth.MaxCallsPerMinute + 1 },
		"expires_in_days":  func(w *auth.Wish) { w.Life = auth.MaxLife + 1 },
	} {
		k := authtest.New()
		w := authtest.All("team-a", "m")
		change(&w)
		_, err := k.Registry.Create(t.Context(), "ops", w)
		if e := llmq.AsError(err); e == nil || e.Code != llmq.CodeInvalidRequest || e.Field != field || k.Objects.Calls() != 0 {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Overlaps never lengthen what a secret has, 0 ends the others at once, and a key holds few secrets.
func TestRotate_BoundsOverlaps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := authtest.New()
		w := authtest.All("team-a", "m")
		w.Life = time.Hour
		first := k.Issue(w)
		kid := first.Record.KID
		rotate := func(overlap time.Duration) (auth.Issued, error) {
			return k.Registry.Rotate(t.Context(), kid, overlap, 0)
		}
		second, err := rotate(24 * time.Hour)
		if err != nil || !second.Record.Secrets[1].ExpiresAt.Equal(first.Record.ExpiresAt()) {
			t.Errorf("the first secret outlives its end: %+v, %v", second.Record, err)
		}
		if _, err := rotate(auth.MaxOverlap + 1); llmq.AsError(err).Field != "overlap_hours" {
			t.Errorf("too long an overlap: %v", err)
		}
		for range 2 {
			if _, err := rotate(24 * time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := rotate(24 * time.Hour); llmq.AsError(err).Field != "overlap_hours" {
			t.Errorf("a fifth secret: %v", err)
		}
		last, err := rotate(0)
		if err != nil || len(last.Record.Secrets) != 1 {
			t.Fatalf("at once: %+v, %v", last.Record, err)
		}
		wantCode(t, k, last.Key, "")
		for _, key := range []string{first.Key, second.Key} {
			wantCode(t, k, key, llmq.CodeInvalidKey)
		}
		if _, err := k.Registry.Revoke(t.Context(), "ops", kid); err != nil {
			t.Fatal(err)
		}
		if _, err := rotate(0); llmq.AsError(err).Code != llmq.CodeInvalidRequest {
			t.Errorf("rotate a revoked key: %v", err)
		}
	})
}

func TestRevoke_TellsWhenAndByWhomItWasFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := authtest.New()
		kid := k.Issue(authtest.All("team-a", "m")).Record.KID
		if _, err := k.Registry.Revoke(t.Context(), "first", kid); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		time.Sleep(time.Hour)
		r, err := k.Registry.Revoke(t.Context(), "second", kid)
		if err != nil || r.RevokedBy != "first" || !r.RevokedAt.Equal(at.Truncate(time.Second)) {
			t.Errorf("got %+v, %v", r, err)
		}
		for _, kid := range []string{"0000000000", "x", "../secrets"} {
			if _, err := k.Registry.Revoke(t.Context(), "ops", kid); llmq.AsError(err).Field != "kid" {
				t.Errorf("%s: %v", kid, err)
			}
		}
	})
}

// racing changes the record between another's read and write, n times.
type racing struct {
	auth.Objects
	mu   sync.Mutex
	n    int
	race func()
}

func (r *racing) Put(ctx context.Context, key string, body []byte, version string) error {
	r.mu.Lock()
	again := r.n > 0
	r.n--
	r.mu.Unlock()
	if again {
		r.race()
	}
	return r.Objects.Put(ctx, key, body, version)
}

// KT3: two changes at once both hold; a revocation is never overwritten by a rotation.
func TestChange_IsMadeAnewOverAnothers(t *testing.T) {
	t.Parallel()
	k := authtest.New()
	i := k.Issue(authtest.All("team-a", "m"))
	r := &racing{Objects: k.Objects, n: 1, race: func() {
		if _, err := k.Registry.Revoke(t.Context(), "ops", i.Record.KID); err != nil {
			t.Error(err)
		}
	}}
	if _, err := auth.NewRegistry(authtest.Env, authtest.Peppers, r).Rotate(t.Context(), i.Record.KID, 0, 0); !errors.Is(err, llmq.CodeInvalidRequest) {
		t.Errorf("rotate over a revocation: %v", err)
	}
	if got, err := k.Registry.Show(t.Context(), i.Record.KID); err != nil || got.RevokedAt == nil {
		t.Errorf("the revocation is lost: %+v, %v", got, err)
	}
}

func TestList_GoesPageByPage(t *testing.T) {
	t.Parallel()
	k := authtest.New()
	want := map[string]bool{}
	for range 7 {
		want[k.Issue(authtest.All("team-a", "m")).Record.KID] = true
	}
	k.Objects.Plant("keys/README", []byte("not ours"))
	after, pages := "", 0
	for more := true; more; pages++ {
		var list []*auth.Record
		var err error
		if list, more, err = k.Registry.List(t.Context(), after, 3); err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if !want[r.KID] {
				t.Errorf("%s is listed twice, or is none", r.KID)
			}
			delete(want, r.KID)
			after = r.KID
		}
	}
	if len(want) != 0 || pages != 3 {
		t.Errorf("%d keys are not listed on %d pages", len(want), pages)
	}
	if _, _, err := k.Registry.List(t.Context(), "../x", 3); llmq.AsError(err).Code != llmq.CodeInvalidRequest {
		t.Errorf("after what is no key: %v", err)
	}
}
