package egress

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// A request that was taken whole is not made again, though its connection was a kept one
// and broke without a byte of an answer: the provider may have done its work.
func TestDo_RequestThatWasTakenIsNotRepeated(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // the count tells
		if calls.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, "{}") //nolint:errcheck // the client will tell
	})
	c := open(t, srv.URL, local(), hooks{})
	if _, err := c.Do(post(t, srv.URL, "{}")); err != nil {
		t.Fatal(err)
	}
	_, err := c.Do(post(t, srv.URL, "{}"))
	want(t, err, provider.Retryable, llmq.CodeProviderError)
	if got := calls.Load(); got != 2 {
		t.Errorf("the server had %d calls, want 2", got)
	}
}
