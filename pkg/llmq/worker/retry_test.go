package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// D2, D3, DS31: a long wait is spent in the queue, and what was tried before it counts after it.
func TestWhole_LongRetryAfterIsSpentInTheQueue(t *testing.T) {
	t.Parallel()
	calls := 0
	throttle := func(context.Context, provider.Request) (*provider.Response, error) {
		if calls++; calls == 2 {
			return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(`{}`)}, nil
		}
		return nil, &provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429, RetryAfter: 40 * time.Second}
	}
	wholeBubble(t, 1, throttle, func(t *testing.T, p *plant) {
		m, start := on("a", llmq.LaneBG), time.Now()
		m.SentAt = start
		w := p.worker("w")
		if diff := cmp.Diff([]string{"a keep retry_later"}, actions(w.Handle(t.Context(), []queue.Message{m}))); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the worker slept %v", took)
		}
		time.Sleep(44 * time.Second) // its visibility ends
		if diff := cmp.Diff([]string{"a ack ok"}, actions(p.worker("v").Handle(t.Context(), []queue.Message{m}))); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if meta := p.stored("a").Reply.Meta; meta.Attempts != 2 || meta.Takeovers != 0 {
			t.Errorf("meta %+v", meta)
		}
	})
}

// A5: the message of a call that is cancelled while it runs is acknowledged, and its neighbour runs on.
func TestWhole_CancelledMessageIsAcknowledged(t *testing.T) {
	t.Parallel()
	wholeBubble(t, 2, replies(20*time.Second), func(t *testing.T, p *plant) {
		go func() {
			time.Sleep(time.Second)
			var b luascript.Batch
			cancels := claims.New(p.space).Cancel(&b, "t", "a", []byte("{}"))
			if err := b.Run(t.Context(), p.valkey); err != nil {
				t.Errorf("cancel: %v", err)
			}
			if got, err := cancels(); err != nil || got.State != claims.CancelTold {
				t.Errorf("cancel = %+v, %v", got, err)
			}
		}()
		got := actions(p.worker("w").Handle(t.Context(), []queue.Message{on("a", llmq.LaneRT), on("b", llmq.LaneRT)}))
		if diff := cmp.Diff([]string{"a ack cancelled", "b ack ok"}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		p.wantError("a", llmq.CodeCancelled)
	})
}
