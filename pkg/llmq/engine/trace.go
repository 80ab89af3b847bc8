package engine

import (
	"errors"
	"log/slog"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
)

// The trace of one call at DEBUG (FEATURES E8). Each of its lines has the request's id. Whether it is wanted is asked once a
// call: below DEBUG the methods here return at once and allocate nothing.

// log is the process's, for a line about this request.
func (r *run) log() *slog.Logger {
	return r.Log.With("request_id", r.Request.ID, "lane", string(r.Request.Lane))
}

// trace writes one line.
func (r *run) trace(event string, attrs ...slog.Attr) {
	args := make([]any, len(attrs))
	for i, a := range attrs {
		args[i] = a
	}
	r.log().Debug(event, args...)
}

func ms(key string, d time.Duration) slog.Attr { return slog.Int64(key, d.Milliseconds()) }

func (r *run) traceStarted() {
	if !r.traced {
		return
	}
	attrs := []slog.Attr{slog.String("model", r.Request.Model.String()), ms("queue_wait_ms", r.meta.QueueWait), slog.Int("receives", r.Receives), slog.Int("takeovers", r.claim.Takeovers)}
	if r.MessageID != "" {
		attrs = append(attrs, slog.String("message_id", r.MessageID))
	}
	r.trace("call_started", attrs...)
}

func (r *run) traceSlot() {
	if !r.traced {
		return
	}
	r.trace("slot_acquired", slog.String("target", r.target().String()), ms("waited_ms", r.waited))
}

// traceNoSlot tells of an ask that got none, by a request that has waited for so long.
func (r *run) traceNoSlot(a *admission, waited time.Duration) {
	if !r.traced {
		return
	}
	missing := a.short.String()
	if a.unheard {
		missing = ReasonStoreUnavailable
	}
	r.trace("slot_unavailable", slog.String("target", r.target().String()), ms("waited_ms", waited), slog.String("missing", missing), ms("retry_ms", a.retry))
}

// traceWait tells of a live call that sleeps until it asks again.
func (r *run) traceWait(until time.Time) {
	if !r.traced || r.Request.Lane != llmq.LaneRT {
		return
	}
	r.trace("rt_capacity_wait", slog.String("target", r.target().String()), secs(time.Until(until)))
}

func secs(d time.Duration) slog.Attr {
	return slog.Float64("sleep_secs", d.Round(time.Millisecond).Seconds())
}

func (r *run) traceAttempt(err error, took time.Duration) {
	if !r.traced {
		return
	}
	attrs := []slog.Attr{slog.String("target", r.target().String()), slog.Int("attempts", r.meta.Attempts), ms("provider_ms", took)}
	if err == nil {
		r.trace("attempt_done", append(attrs, slog.String("outcome", "ok"))...)
		return
	}
	r.trace("attempt_done", append(append(attrs, slog.String("outcome", outcomeOf(err).String())), causes(err)...)...)
}

func (r *run) traceBackoff(d retry.Decision) {
	if !r.traced {
		return
	}
	r.trace("backoff", slog.String("target", r.target().String()), slog.String("move", d.Move.String()), slog.String("why", d.Why), secs(d.After))
}

func (r *run) traceStep() {
	if !r.traced {
		return
	}
	r.trace("fallback", slog.String("target", r.target().String()))
}

// traceEnd tells how the run ended: that the message goes back, or that the call is over in this process.
func (r *run) traceEnd(v Verdict) {
	if !r.traced {
		return
	}
	attrs := []slog.Attr{slog.Int("attempts", r.meta.Attempts), ms("total_ms", time.Since(r.begun))}
	if r.meta.Target != "" {
		attrs = append(attrs, slog.String("target", r.meta.Model+"@"+r.meta.Target))
	}
	if v.Action == Release {
		r.trace("call_requeued", append(attrs, slog.String("outcome", v.Reason), secs(v.After))...)
		return
	}
	r.trace("call_done", append(attrs, slog.String("outcome", r.outcome(v)))...)
}

// outcome is what a call has come to here: ok, an error's code, or why the message is let go without an end of its own.
func (r *run) outcome(v Verdict) string {
	switch {
	case r.result == nil:
		return v.Reason
	case r.result.Err != nil:
		return string(r.result.Err.Code)
	}
	return "ok"
}

// causes tell why an attempt failed, in words of fixed lists: what the provider said may quote the prompt.
func causes(err error) []slog.Attr {
	pe, ok := errors.AsType[*provider.Error](err)
	if !ok {
		return []slog.Attr{slog.String("cause", causeOf(err))}
	}
	return []slog.Attr{
		slog.String("class", pe.Class.String()), slog.Int("status", pe.Status), slog.String("kind", provider.KnownKind(pe.Kind)), slog.String("cause", causeOf(pe.Err)),
	}
}
