package egress

import (
	"io"
	"net/http"
	"sync"
	"testing"
)

// D15: one pooled transport per host, with as many idle connections kept as calls run side by side: a second round of them
// opens none.
func TestDo_D15ParallelCallsKeepTheirConnections(t *testing.T) {
	t.Parallel()
	const calls = 8
	var mu sync.Mutex
	seen := map[string]int{}
	together := make(chan struct{}, calls)
	release := make(chan struct{})
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.RemoteAddr]++
		mu.Unlock()
		together <- struct{}{}
		<-release
		io.WriteString(w, "{}") //nolint:errcheck // the client will tell
	})
	n := local()
	n.MaxIdle = calls
	c := open(t, srv.URL, n, hooks{})
	for range 2 {
		var round sync.WaitGroup
		for range calls {
			round.Go(func() {
				if _, err := c.Do(post(t, srv.URL, "{}")); err != nil {
					t.Error(err)
				}
			})
		}
		for range calls {
			<-together
		}
		for range calls {
			release <- struct{}{}
		}
		round.Wait()
	}
	if len(seen) != calls {
		t.Errorf("%d connections for two rounds of %d calls", len(seen), calls)
	}
}
