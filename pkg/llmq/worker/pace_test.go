package worker_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// dark runs a worker without a state store for as long as lasts, giving it one message that asks to live
// for life, whenever it has come back, and returns the delays.
func dark(t *testing.T, lasts, life time.Duration, verdict engine.Verdict) (delays []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{start: time.Now()}
		w.run = func(context.Context, engine.Call) engine.Verdict { return verdict }
		w.extend = func(_ context.Context, _ queue.Name, leases []queue.Lease) error {
			if leases[0].For != worker.Lease {
				delays = append(delays, leases[0].For)
			}
			return nil
		}
		log := slog.New(slog.DiscardHandler)
		store, cfg := telemetry.NewStore("w", nil, log), config()
		for lane := range cfg.Timeouts {
			cfg.Timeouts[lane] = worker.Timeouts{Default: life, Max: life}
		}
		made, err := worker.New(cfg, worker.Deps{Queue: fakeQueue{w}, Engine: runner{w}, Bodies: bodies{w}, Keys: allowance{w}, Log: log, Store: store})
		if err != nil {
			t.Fatal(err)
		}
		m := message("m", envelope("r"))
		for m.ReceiveCount = 1; time.Since(w.start) < lasts; m.ReceiveCount++ {
			store.Failed(time.Now(), "refused")
			if out := made.Handle(t.Context(), []queue.Message{m}); out[0].Action != worker.Keep {
				t.Fatalf("outcome %+v", out)
			}
			time.Sleep(delays[len(delays)-1])
		}
	})
	return delays
}

var lost = engine.Verdict{Action: engine.Release, After: 5 * time.Second, Reason: "store_unavailable"}

// C9: soon back at first, so that a short outage costs little; then further apart.
func TestHandle_ReleasesGrowWithTheOutage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lasts, life time.Duration
		atMost      time.Duration // each
		looks       int           // at most
	}{
		{6 * time.Second, time.Hour, 3 * time.Second, 6},
		{time.Minute, time.Hour, 15 * time.Second, 18},
		{time.Hour, 2 * time.Hour, 15 * time.Second, 500},
		{time.Hour, 30 * time.Second, 5 * time.Minute, 60}, // nobody waits any more
	} {
		delays := dark(t, tt.lasts, tt.life, lost)
		if delays[0] > 2*time.Second || delays[0] < time.Second {
			t.Errorf("%v of %v: first away for %v, want 1 s to 2 s", tt.lasts, tt.life, delays[0])
		}
		for _, d := range delays {
			if d > tt.atMost {
				t.Errorf("%v of %v: away for %v, want at most %v", tt.lasts, tt.life, d, tt.atMost)
			}
		}
		if len(delays) > tt.looks {
			t.Errorf("%v of %v: %d receives, want at most %d", tt.lasts, tt.life, len(delays), tt.looks)
		}
		t.Logf("an outage of %v, a deadline of %v: %d receives", tt.lasts, tt.life, len(delays))
	}
}

// B5, C9: whatever it is handed back for, and for however long, a message has receives left when SQS drops it.
func TestHandle_NoOutageWalksAMessageToTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	const retention = 4 * 24 * time.Hour
	full := engine.Verdict{Action: engine.Release, After: time.Second, Reason: "no_capacity"}
	for name, verdict := range map[string]engine.Verdict{"no state store": lost, "no capacity": full} {
		for _, life := range []time.Duration{time.Minute, time.Hour, 12 * time.Hour} {
			n := len(dark(t, retention, life, verdict))
			t.Logf("%s for 4 days, a deadline of %v: %d receives", name, life, n)
			if n > 900 {
				t.Errorf("%s: a deadline of %v: %d receives in 4 days, want at most 900 of the 1000", name, life, n)
			}
		}
	}
}

// What gives its claim back comes back no sooner than that is free.
func TestHandle_ReleaseWithoutStoreIsNoShorterThanTheClaims(t *testing.T) {
	t.Parallel()
	verdict := lost
	verdict.Defer = func(context.Context) {}
	if d := dark(t, time.Second, time.Hour, verdict)[0]; d != verdict.After {
		t.Errorf("away for %v, want %v", d, verdict.After)
	}
}

// C9: after an outage a claim may be nobody's, so that a message of it comes back soon, until it could have lapsed.
func TestHandle_BusyMessageComesBackSoonAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		verdict := engine.Verdict{Action: engine.Release, After: 40 * time.Second, Reason: "running_elsewhere"}
		w := &world{start: time.Now()}
		w.run = func(context.Context, engine.Call) engine.Verdict { return verdict }
		var away time.Duration
		w.extend = func(_ context.Context, _ queue.Name, leases []queue.Lease) error {
			if leases[0].For != worker.Lease {
				away = leases[0].For
			}
			return nil
		}
		log := slog.New(slog.DiscardHandler)
		store := telemetry.NewStore("w", nil, log)
		made, err := worker.New(config(), worker.Deps{Queue: fakeQueue{w}, Engine: runner{w}, Bodies: bodies{w}, Keys: allowance{w}, Log: log, Store: store})
		if err != nil {
			t.Fatal(err)
		}
		handed := func() time.Duration {
			made.Handle(t.Context(), []queue.Message{message("m", envelope("r"))})
			return away
		}
		if got := handed(); got != verdict.After {
			t.Errorf("without an outage: away for %v, want %v", got, verdict.After)
		}
		store.Failed(time.Now(), "timeout")
		store.Answered()
		if got := handed(); got < time.Second || got > 4*time.Second {
			t.Errorf("after an outage: away for %v, want 1 s to 4 s", got)
		}
		time.Sleep(45 * time.Second)
		if got := handed(); got != verdict.After {
			t.Errorf("long after it: away for %v, want %v", got, verdict.After)
		}
	})
}

// E7: what the worker counts.
func TestHandle_CountsWhatCameAndWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{start: time.Now()}
		w.run = func(_ context.Context, c engine.Call) engine.Verdict {
			switch c.Request.ID {
			case "r-1":
				return lost
			case "r-2":
				return engine.Verdict{Action: engine.Stored, Reason: "expired"}
			case "r-3":
				return engine.Verdict{Action: engine.Leave, Reason: "claim_lost"}
			}
			return engine.Verdict{Action: engine.Stored, Reason: "ok"}
		}
		rec, log := telemetry.NewRecorder(), slog.New(slog.DiscardHandler)
		made, err := worker.New(config(), worker.Deps{Queue: fakeQueue{w}, Engine: runner{w}, Bodies: bodies{w}, Keys: allowance{w}, Log: log, Metrics: rec})
		if err != nil {
			t.Fatal(err)
		}
		stray := message("5", envelope("r-5"))
		stray.Queue = "llm-not-ours"
		made.Handle(t.Context(), append(messages(4), stray))
		var out strings.Builder
		if err := rec.FlushEMF(&out, "n"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`"lane":"rt","model":"chat-a","llmq_sqs_acked_total":2,"llmq_sqs_expired_total":1,"llmq_sqs_received_total":4,"llmq_sqs_wait_seconds":[0,0]`,
			`"lane":"rt","model":"chat-a","reason":"store_unavailable","llmq_sqs_released_total":1`,
			`"queue":"llm-chat-a-rt","llmq_queue_oldest_seconds":0`,
			`"model":"unknown","llmq_sqs_received_total":1`,
			`"model":"unknown","reason":"other","llmq_sqs_released_total":1`,
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %s in\n%s", want, &out)
			}
		}
	})
}
