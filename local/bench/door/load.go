package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/rig"
)

// load is callers who come at a steady rate, whether or not others have been answered.
type load struct {
	url, key string
	rate     int  // calls a second
	direct   bool // each must have been run where its caller waits
}

var errNotServed = errors.New("not served as it should be")

// run makes calls for d and returns how long each took, from its sending until all of its answer was there. The first that fails
// ends it.
func (l load) run(ctx context.Context, d time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()
	n := int(d.Seconds() * float64(l.rate))
	took := make([]time.Duration, n)
	var calls sync.WaitGroup
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for sent := 0; sent < n; {
		for due := min(n, int(time.Since(began).Seconds()*float64(l.rate))); sent < due; sent++ {
			i := sent
			calls.Go(func() {
				var err error
				if took[i], err = l.one(ctx, client); err != nil {
					cancel(err)
				}
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			calls.Wait()
			return nil, context.Cause(ctx)
		}
	}
	calls.Wait()
	return took, context.Cause(ctx)
}

func (l load) one(ctx context.Context, client *http.Client) (time.Duration, error) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hello"}]}`, rig.ModelChat)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+l.key)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() // it is read to its end
	reply, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	if err != nil || resp.StatusCode != http.StatusOK || l.direct && resp.Header.Get("X-LLMQ-Direct") != "true" {
		return 0, fmt.Errorf("%s %.200s: %w", resp.Status, reply, errors.Join(err, errNotServed))
	}
	return took, nil
}
