package secrets

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// fakeStore answers with value or err and counts.
type fakeStore struct {
	mu    sync.Mutex // guards all
	value string
	err   error
	calls int
	took  time.Duration

	before string // "" is none
}

func (f *fakeStore) GetPreviousValue(context.Context, string) (Secret, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.before == "" && f.err == nil {
		return Secret{}, ErrNotFound
	}
	return New(f.before), f.err
}

func (f *fakeStore) GetSecretValue(ctx context.Context, _ string) (Secret, error) {
	f.mu.Lock()
	f.calls++
	value, err, took := f.value, f.err, f.took
	f.mu.Unlock()
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return Secret{}, ctx.Err()
		}
	}
	return New(value), err
}

func (f *fakeStore) set(value string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.value, f.err = value, err
}

var ref = config.Secret{ARN: "arn:aws:secretsmanager:us-east-1:123456789012:secret:x"}

// expect resolves by f and compares value and number of fetches so far.
func expect(t *testing.T, f func(context.Context, config.Secret) (Secret, error), store *fakeStore, want string, calls int) {
	t.Helper()
	got, err := f(t.Context(), ref)
	if err != nil || got.Reveal() != want || store.calls != calls {
		t.Errorf("got %q after %d fetches (error %v), want %q after %d", got.Reveal(), store.calls, err, want, calls)
	}
}

func TestResolve_VariableMustBeThere(t *testing.T) {
	t.Parallel()
	r := NewResolver([]string{"KEY=" + value + "\n", "EMPTY=", "LINES=sk-live\nhunter2", "JUNK"}, nil)
	got, err := r.Resolve(t.Context(), config.Secret{Env: "KEY"})
	if err != nil || got.Reveal() != value {
		t.Errorf("got %q, %v", got.Reveal(), err)
	}
	for _, tc := range []struct {
		ref  config.Secret
		want string
	}{
		{config.Secret{Env: "NONE"}, "secret variable NONE is missing or empty"},
		{config.Secret{Env: "EMPTY"}, "secret variable EMPTY is missing or empty"},
		{config.Secret{Env: "LINES"}, "secret variable LINES holds a space, a line break or another character that no key has"},
		{config.Secret{}, "a secret is needed and none is configured"},
		{ref, "secret " + ref.ARN + " needs Secrets Manager, which this program does not use"},
	} {
		_, err := r.Resolve(t.Context(), tc.ref)
		if !errors.Is(err, llmq.CodeConfiguration) || llmq.AsError(err).Message != tc.want {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

func TestResolve_CachesForFiveMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{value: "one"}
		r := NewResolver(nil, store)
		expect(t, r.Resolve, store, "one", 1)
		store.set("two", nil)
		time.Sleep(fresh - time.Nanosecond)
		expect(t, r.Resolve, store, "one", 1)
		time.Sleep(time.Nanosecond)
		expect(t, r.Resolve, store, "two", 2)
	})
}

func TestRefresh_FetchesOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{value: "one"}
		r := NewResolver(nil, store)
		expect(t, r.Refresh, store, "one", 1)
		store.set("two", nil)
		expect(t, r.Refresh, store, "one", 1)
		time.Sleep(pause)
		expect(t, r.Refresh, store, "two", 2)
		expect(t, r.Refresh, store, "two", 2)
		expect(t, r.Resolve, store, "two", 2)
	})
}

func TestRefresh_StormMakesOneFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{value: "one"}
		r := NewResolver(nil, store)
		expect(t, r.Resolve, store, "one", 1)
		time.Sleep(pause)
		store.took = time.Second
		store.set("two", nil)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if s, err := r.Refresh(t.Context(), ref); err != nil || s.IsZero() {
					t.Errorf("got %q, %v", s.Reveal(), err)
				}
			})
		}
		wg.Wait()
		expect(t, r.Resolve, store, "two", 2)
	})
}

func TestResolve_FailingStoreLeavesTheOldValueForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{value: "one"}
		r := NewResolver(nil, store)
		expect(t, r.Resolve, store, "one", 1)
		down := errors.New("throttled")
		store.set("", down)
		time.Sleep(fresh)
		expect(t, r.Resolve, store, "one", 2)
		expect(t, r.Resolve, store, "one", 2) // and asks once a minute only
		time.Sleep(pause)
		expect(t, r.Resolve, store, "one", 3)
		time.Sleep(stale - fresh - pause)
		if s, err := r.Resolve(t.Context(), ref); !errors.Is(err, down) || !s.IsZero() {
			t.Errorf("got %q, %v after an hour", s.Reveal(), err)
		}
		store.set("two", nil)
		expect(t, r.Resolve, store, "two", 5)
	})
}

func TestResolve_DeletedSecretStopsWorking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{value: "one"}
		r := NewResolver(nil, store)
		expect(t, r.Resolve, store, "one", 1)
		store.set("", ErrNotFound)
		time.Sleep(fresh)
		for range 2 {
			_, err := r.Resolve(t.Context(), ref)
			if !errors.Is(err, ErrNotFound) || !errors.Is(err, llmq.CodeConfiguration) {
				t.Errorf("got %v", err)
			}
		}
		if store.calls != 2 {
			t.Errorf("%d fetches, want 2: a secret that is gone is not asked for by every call", store.calls)
		}
		store.set("two", nil)
		time.Sleep(pause)
		expect(t, r.Resolve, store, "two", 3)
	})
}

func TestResolve_NoErrorHoldsTheValue(t *testing.T) {
	t.Parallel()
	store := &fakeStore{value: value + " \n " + value}
	_, err := NewResolver([]string{"K=" + store.value}, store).Resolve(t.Context(), ref)
	_, err2 := NewResolver([]string{"K=" + store.value}, store).Resolve(t.Context(), config.Secret{Env: "K"})
	for _, err := range []error{err, err2} {
		if err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("got %v", err)
		}
	}
}

// SEC04: after a rotation both values are there; that there is no earlier one is no fault, and is remembered.
func TestVersions_AreTheCurrentAndTheOneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{value: "first"}
		r := NewResolver([]string{"KEY=local"}, store)
		want := func(calls int, values ...string) {
			t.Helper()
			got, err := r.Versions(t.Context(), ref)
			var text []string
			for _, s := range got {
				text = append(text, s.Reveal())
			}
			if err != nil || strings.Join(text, " ") != strings.Join(values, " ") || store.calls != calls {
				t.Errorf("got %q, %v after %d fetches; want %q after %d", text, err, store.calls, values, calls)
			}
		}
		want(2, "first")
		want(2, "first")
		store.value, store.before = "second", "first"
		time.Sleep(fresh)
		want(4, "second", "first")
		want(4, "second", "first")
		store.err = errors.New("down")
		time.Sleep(fresh)
		want(6, "second", "first")
		time.Sleep(stale)
		if got, err := r.Versions(t.Context(), ref); err == nil {
			t.Errorf("after an hour of failures: %v", got)
		}
		if got, err := r.Versions(t.Context(), config.Secret{Env: "KEY"}); err != nil || len(got) != 1 || got[0].Reveal() != "local" {
			t.Errorf("a variable: %v, %v", got, err)
		}
	})
}
