package egress

import (
	"io"
	"net/http"
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
				c.used.at.Add(-int64(tt.rest))
			}
			if first, second := <-peers, <-peers; (first != second) != tt.fresh {
				t.Errorf("connections %s and %s; want a fresh one: %v", first, second, tt.fresh)
			}
		})
	}
}
