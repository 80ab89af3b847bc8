package egress

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A function is frozen between its invocations, and its connections may die meanwhile. One
// that was kept over a long rest is not written to: a call on it might fail after it was
// taken, and couldn't be made again.
func TestDo_KeptConnectionsAreNotTrustedAfterALongRest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rest  time.Duration
		fresh bool
	}{
		"in use":             {0, false},
		"short rest":         {trustIdle - 5*time.Second, false},
		"long rest":          {trustIdle + time.Second, true},
		"an hour":            {time.Hour, true},
		"the clock set back": {-time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peers := make(chan string, 2)
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				peers <- r.RemoteAddr
				io.WriteString(w, "{}") //nolint:errcheck // the client will tell
			})
			c := open(t, srv.URL, local(), hooks{})
			for range 2 {
				if _, err := c.Do(post(t, srv.URL, "{}")); err != nil {
					t.Fatal(err)
				}
				c.transport.last.Add(-int64(tt.rest))
			}
			if first, second := <-peers, <-peers; (first != second) != tt.fresh {
				t.Errorf("connections %s and %s; want a fresh one: %v", first, second, tt.fresh)
			}
		})
	}
}

// When one connection failed, the next call takes a fresh one instead of the failed one's
// idle siblings, each of which would cost a call more.
func TestDo_SiblingsOfAFailedConnectionAreNotTrusted(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	both, peers := make(chan struct{}), make(chan string, 4)
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) {
		case 1: // waits for the second, so that there are two connections
			<-both
		case 2:
			close(both)
		case 3:
			panic(http.ErrAbortHandler) // the third call's connection breaks
		}
		peers <- r.RemoteAddr
		io.WriteString(w, "{}") //nolint:errcheck // the client will tell
	})
	n := local()
	n.MaxIdle = 4
	c := open(t, srv.URL, n, hooks{})
	var two sync.WaitGroup
	for range 2 {
		two.Go(func() {
			if _, err := c.Do(post(t, srv.URL, "{}")); err != nil {
				t.Error(err)
			}
		})
	}
	two.Wait()
	if _, err := c.Do(post(t, srv.URL, "{}")); err == nil {
		t.Fatal("the broken call has no error")
	}
	if _, err := c.Do(post(t, srv.URL, "{}")); err != nil {
		t.Fatal(err)
	}
	first, second, last := <-peers, <-peers, <-peers
	if last == first || last == second {
		t.Errorf("connections %s and %s, after a failure %s; want a fresh one", first, second, last)
	}
}
