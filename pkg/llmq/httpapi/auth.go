package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// Rates counts the calls of keys, over all doors.
type Rates interface {
	// Take counts a call of a key that may make perMinute of them. call is unique to the call. An error
	// means that nothing could be counted. Implementations are safe for concurrent use.
	Take(ctx context.Context, kid string, perMinute int, call string) (auth.Rate, error)
}

// admit lets a request's sender in: no handler but an open one runs for nobody (SECURITY-DESIGN KT5).
func (h *Handler) admit(x *exchange) error {
	c, err := h.authenticate(x.r)
	if err != nil {
		return err
	}
	x.caller = c
	return nil
}

func (h *Handler) authenticate(r *http.Request) (auth.Caller, error) {
	if isSomebody(h.program) {
		return h.program, nil
	}
	values := r.Header.Values("Authorization")
	if len(values) > 1 {
		return auth.Caller{}, llmq.Errorf(llmq.CodeInvalidRequest, "the Authorization header is given %d times; send it once", len(values)).At("Authorization")
	}
	var value string
	if len(values) == 1 {
		value = values[0]
	}
	return h.keys.Check(r.Context(), value)
}

// charge takes one of the key's calls of the minute, and tells on every answer how many are left. A state store
// that can't be asked lets the call pass: it bounds a key's rate, and no money rests on it. (That the store is lost is
// told elsewhere, once.)
func (h *Handler) charge(x *exchange) error {
	most := x.caller.CallsPerMinute()
	if most == 0 {
		return nil
	}
	rate, err := h.rates.Take(x.r.Context(), x.caller.KeyID(), most, llmq.NewID())
	if err != nil {
		h.log.DebugContext(x.r.Context(), "key_rate_unknown", "request_id", x.id, "key_id", x.caller.KeyID(), "error", err)
		return nil
	}
	x.set("X-Ratelimit-Limit-Requests", strconv.Itoa(rate.Limit))
	x.set("X-Ratelimit-Remaining-Requests", strconv.Itoa(rate.Left))
	x.set("X-Ratelimit-Reset-Requests", rate.Reset.Round(time.Millisecond).String())
	if rate.RetryAfter > 0 {
		return llmq.Errorf(llmq.CodeRateLimited, "the key %s has made the %d calls that it may make in a minute", x.caller.KeyID(), rate.Limit).After(rate.RetryAfter)
	}
	return nil
}

func isSomebody(c auth.Caller) bool { return c.Tenant() != "" }
