package live

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/settings"
)

// stored is a store as a watch sees it.
type stored struct {
	mu    sync.Mutex // guards all below
	state State
	err   error
	loads int
	slow  time.Duration
}

func (s *stored) load(ctx context.Context) (State, error) {
	s.mu.Lock()
	s.loads++
	state, err, slow := s.state, s.err, s.slow
	s.mu.Unlock()
	select {
	case <-time.After(slow):
		return state, err
	case <-ctx.Done():
		return State{}, ctx.Err()
	}
}

func (s *stored) set(state State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.err = state, err
}

// watchOf is a watch whose value is the rpm of model a, "file" before it was read.
func watchOf(s *stored, failed *[]string) *Watch[string] {
	w := NewWatch(&Store{}, 30*time.Second, "file", func(st State) (string, error) {
		v := st.Overrides.Models["a"]["rpm"]
		if v == "bad" {
			return "", errors.New("no such rpm")
		}
		return "rpm " + v, nil
	}, func(cause string, _ error) { *failed = append(*failed, cause) })
	w.load = s.load
	return w
}

// E2: a change is followed within the reload time, and however many calls ask, the store is asked once in it.
func TestWatch_AsksOnceInAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, failed := &stored{state: State{Revision: 1, Overrides: rpm("5")}}, []string{}
		w := watchOf(s, &failed)
		if w.Last() != "file" {
			t.Errorf("before the first look: %s", w.Last())
		}
		for range 1000 {
			if got := w.Now(t.Context()); got != "rpm 5" {
				t.Fatalf("got %s", got)
			}
		}
		s.set(State{Revision: 2, Overrides: rpm("6")}, nil)
		time.Sleep(30*time.Second - time.Nanosecond)
		if got := w.Now(t.Context()); got != "rpm 5" || s.loads != 1 {
			t.Errorf("within the time: %s after %d looks", got, s.loads)
		}
		time.Sleep(time.Nanosecond)
		if got := w.Now(t.Context()); got != "rpm 6" || s.loads != 2 || w.Last() != "rpm 6" || len(failed) != 0 {
			t.Errorf("after it: %s after %d looks, %v", got, s.loads, failed)
		}
	})
}

// E2: whatever is wrong with what is stored, the last good one stays, and it is told.
func TestWatch_KeepsTheLastGoodOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, failed := &stored{state: State{Revision: 1, Overrides: rpm("5")}}, []string{}
		w := watchOf(s, &failed)
		w.Now(t.Context())
		for _, step := range []struct {
			state State
			err   error
		}{
			{State{Revision: 2, Err: settings.ErrUnreadable}, nil},
			{State{Revision: 3, Err: settings.ErrNewer}, nil},
			{State{Revision: 4, Overrides: rpm("bad")}, nil},
			{State{}, errors.New("down")},
		} {
			s.set(step.state, step.err)
			time.Sleep(30 * time.Second)
			if got := w.Now(t.Context()); got != "rpm 5" {
				t.Errorf("%+v: %s", step, got)
			}
		}
		if got := strings.Join(failed, " "); got != "unreadable newer invalid store" {
			t.Errorf("told: %s", got)
		}
		s.set(State{Revision: 5, Overrides: rpm("9")}, nil)
		time.Sleep(tryAgain) // a store that was down is asked sooner
		if got := w.Now(t.Context()); got != "rpm 9" {
			t.Errorf("mended: %s", got)
		}
	})
}

// A wiped store counts its revisions anew: what is stored then is another change all the same.
func TestWatch_SeesAWipedStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, failed := &stored{state: State{Revision: 1, Overrides: rpm("5"), change: "x"}}, []string{}
		w := watchOf(s, &failed)
		w.Now(t.Context())
		for _, tc := range []struct {
			state State
			want  string
		}{{State{Revision: 1, Overrides: rpm("6"), change: "y"}, "rpm 6"}, {State{}, "rpm "}} {
			s.set(tc.state, nil)
			time.Sleep(30 * time.Second)
			if got := w.Now(t.Context()); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		}
	})
}

// The first callers wait for what is stored: a cap that is tighter than the file's must hold for them too. Later ones don't, and
// a store that hangs costs one call a second.
func TestWatch_OnlyTheFirstLookIsWaitedForByAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, failed := &stored{state: State{Revision: 1, Overrides: rpm("5")}, slow: 100 * time.Millisecond}, []string{}
		w := watchOf(s, &failed)
		ask := func() map[string]int {
			got := map[string]int{}
			var mu sync.Mutex
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					began := time.Now()
					v := w.Now(t.Context()) + " after " + time.Since(began).String()
					mu.Lock()
					defer mu.Unlock()
					got[v]++
				})
			}
			all.Wait()
			return got
		}
		if got := ask(); got["rpm 5 after 100ms"] != 10 {
			t.Errorf("the first: %v", got)
		}
		s.set(State{Revision: 2, Overrides: rpm("6")}, nil)
		s.slow = time.Hour
		time.Sleep(30 * time.Second)
		if got := ask(); got["rpm 5 after 0s"] != 9 || got["rpm 5 after 1s"] != 1 {
			t.Errorf("a store that hangs: %v", got)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if got := watchOf(s, &failed); got.Now(gone) != "file" {
			t.Error("a caller who has gone gets what there is")
		}
	})
}
