package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// The body and headers of every code in each dialect are API.
func TestErrors_EveryCodeInEachShapeIsGolden(t *testing.T) {
	t.Parallel()
	for _, shape := range []struct{ name, path string }{{"openai", "/v1/chat/completions"}, {"bedrock", "/model/conv-a/converse"}, {"native", callsPath}} {
		var out strings.Builder
		for _, info := range llmq.Codes() {
			b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) {
				e := llmq.Errorf(info.Code, "what <was> wrong & where").At("model").Because(errors.New("cause, canary7f3a"))
				e.Meta = testMeta
				e.Meta.Lane = llmq.LaneBG
				if info.Code == llmq.CodeNoCapacity {
					e.RetryAfter = 2001 * time.Millisecond
				}
				return nil, fmt.Errorf("wrapped: %w", e)
			})
			body := chatBody
			if shape.name == "native" {
				_, b.calls.refuses = b.calls.do(t.Context(), llmq.Request{})
				body = submitted
			}
			w := b.send(http.MethodPost, shape.path, body, "Idempotency-Key", "r-1")
			fmt.Fprintf(&out, "== %s\n%d\n%s%s\n\n", info.Code, w.Code, headerLines(w.Header()), w.Body)
		}
		if strings.Contains(out.String(), "canary7f3a") {
			t.Error("a cause is shown to callers")
		}
		golden(t, "testdata/errors."+shape.name+".golden", out.String())
	}
}

func headerLines(h http.Header) string {
	var lines []string
	for name, vs := range h {
		lines = append(lines, name+": "+strings.Join(vs, " | ")+"\n")
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}

// docs/ERRORS.md is made here, from the same table as the answers.
func TestErrors_DocumentIsUpToDate(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`# Errors

Generated from the error table in ` + "`pkg/llmq/errors.go`" + ` (rewrite with ` + "`go test ./pkg/llmq/httpapi -run Document -update`" + `).

The code is in the body's ` + "`error.code`" + ` on OpenAI's paths and our own, and in the header ` + "`X-LLMQ-Error-Code`" + ` everywhere. Every error says
` + "`x-should-retry`" + `; a retryable one adds ` + "`Retry-After`" + ` (seconds) and ` + "`retry-after-ms`" + `. On ` + "`/model/...`" + ` the error has Bedrock's shape, and
the status that Bedrock gives the exception where an AWS SDK would otherwise repeat a call that must not be repeated. On ` + "`/llmq/v1/...`" + ` it is
` + "`{\"error\":{\"code\",\"message\",\"field\",\"retryable\",\"retry_after_ms\"}}`" + `; within a call's document ` + "`retryable`" + ` says whether the same may succeed under a new id.

| code | status | retry | on /model/... | what happened | what to do |
|---|---|---|---|---|---|
`)
	for _, info := range llmq.Codes() {
		retry := "no"
		if info.Retry {
			retry = "yes"
		}
		exception, status := bedrockError(info)
		fmt.Fprintf(&b, "| `%s` | %d | %s | %d `%s` | %s | %s |\n", info.Code, info.Status, retry, status, exception, info.Means, info.Do)
	}
	golden(t, "../../../docs/ERRORS.md", b.String())
}

// AWS SDKs repeat these statuses on their own, whatever the exception.
func TestBedrockError_RepeatableStatusIsGivenOnlyWhereARepeatMayHelp(t *testing.T) {
	t.Parallel()
	for _, info := range llmq.Codes() {
		exception, status := bedrockError(info)
		repeated := status == 429 || status == 502 || status == 503 || status == 504
		if repeated != info.Retry {
			t.Errorf("%s: retry %t, but %d %s", info.Code, info.Retry, status, exception)
		}
	}
}

func TestErrors_RetryAfterIsRoundedUp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		after    time.Duration
		secs, ms string
	}{
		{0, "1", "1000"},
		{-time.Second, "1", "1000"},
		{time.Nanosecond, "1", "1"},
		{350 * time.Millisecond, "1", "350"},
		{time.Second, "1", "1000"},
		{1001 * time.Millisecond, "2", "1001"},
		{time.Hour, "3600", "3600000"},
	} {
		h := http.Header{}
		describe(h, "/", llmq.Errorf(llmq.CodeRateLimited, "x").After(tc.after))
		if h.Get("Retry-After") != tc.secs || h.Get("Retry-After-Ms") != tc.ms {
			t.Errorf("%s: got %q and %q", tc.after, h.Get("Retry-After"), h.Get("Retry-After-Ms"))
		}
	}
}

func TestErrors_WithoutAMessageSayWhatTheCodeMeans(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	WriteError(w, "/v1/models", &llmq.Error{Code: llmq.CodeNoCapacity})
	if _, message := openAI(t, w); message != llmq.CodeNoCapacity.Info().Means {
		t.Errorf("got %q", message)
	}
}

func TestErrors_ForeignErrorIsInternalAndNotShown(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) { return nil, errors.New("canary7f3a") })
	w := b.chat()
	if code, _ := openAI(t, w); w.Code != 500 || code != "internal_error" || strings.Contains(w.Body.String(), "canary7f3a") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if !strings.Contains(b.log.String(), `"level":"ERROR"`) || !strings.Contains(b.log.String(), "canary7f3a") {
		t.Errorf("the cause is missing in the log: %s", b.log.String())
	}
}

// H02: the door's own wait ends in its own words, after exactly that long.
func TestServeHTTP_WaitEndsInTimeoutThatNamesTheRequest(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"openai": "/v1/chat/completions", "bedrock": "/model/conv-a/converse"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, func(ctx context.Context, _ llmq.Request) (*llmq.Reply, error) {
					<-ctx.Done()
					return nil, fmt.Errorf("wait: %w", ctx.Err())
				})
				start := time.Now()
				w := b.send(http.MethodPost, path, chatBody, "Idempotency-Key", "slow-1", "X-LLMQ-Timeout-Secs", "300")
				if took := time.Since(start); took != 280*time.Second {
					t.Errorf("it took %s", took)
				}
				want := http.StatusGatewayTimeout
				if name == "bedrock" {
					want = http.StatusRequestTimeout
				}
				if w.Code != want || w.Header().Get("X-Should-Retry") != "false" || w.Header().Get("Retry-After") != "" || w.Header().Get("X-LLMQ-Request-Id") != "slow-1" ||
					!strings.Contains(w.Body.String(), "take up request slow-1, send it again with the same Idempotency-Key: slow-1") {
					t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
				}
			})
		})
	}
}

// A timeout that is the call's own end is what a repeat would get again: nobody is told
// to take it up. The error, which others may hold too, is left as it is.
func TestServeHTTP_StoredTimeoutIsNotToBeTakenUp(t *testing.T) {
	t.Parallel()
	shared := llmq.Errorf(llmq.CodeTimeout, "the deadline passed")
	b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) { return nil, shared })
	for range 2 {
		if _, message := openAI(t, b.chat("X-LLMQ-Request-Id", "r-5")); message != "the deadline passed" {
			t.Errorf("got %q", message)
		}
	}
	if shared.Message != "the deadline passed" {
		t.Errorf("the shared error was changed: %q", shared.Message)
	}
}

func TestServeHTTP_DeadlineIsCountedFromTheArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, ok)
		start := time.Now()
		b.chat("X-LLMQ-Timeout-Secs", "7")
		b.chat("X-LLMQ-Lane", "bulk")
		reqs := b.calls.requests()
		if len(reqs) != 2 || reqs[0].Deadline.Sub(start) != 7*time.Second || reqs[1].Deadline.Sub(start) != 900*time.Second || reqs[1].Lane != llmq.LaneBulk {
			t.Errorf("handed over: %+v", reqs)
		}
	})
}

// A replayed error is the end of its id: an SDK that repeats it would get it again.
func TestServeHTTP_FinalErrorIsNotRetried(t *testing.T) {
	t.Parallel()
	e := llmq.Errorf(llmq.CodeRateLimited, "slow down").After(7 * time.Second)
	e.Final = true
	b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) { return nil, e })
	w := b.chat("Idempotency-Key", "r-6")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("X-Should-Retry") != "false" || w.Header().Get("Retry-After") != "" || w.Header().Get("X-Amz-Retry-After") != "" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
}
