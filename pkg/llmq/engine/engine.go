// Package engine runs one request: it takes the claim and a slot in one round trip,
// makes the attempt inside every deadline, decides what came back, and stores the
// result under the claim's fence. What failed is tried again after a wait, at the same
// target or at the next of the request's chain; a long wait becomes a release.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/results"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

// Config bounds what the engine does.
type Config struct {
	Worker         string         // name of this process in meta and logs
	AttemptTimeout time.Duration  // one attempt, but of a stream; positive
	FirstContent   time.Duration  // of a stream: from an attempt's begin to its first content; 0 is no bound
	Stall          time.Duration  // of a stream: between two signs of life; 0 is no bound
	RTCapacityWait time.Duration  // how long an rt request waits here for a slot; 0 asks once, never negative
	Retry          retry.Policy   // how often a target is tried, and how far apart; [retry.Default] is FEATURES D2
	MaxReceives    int            // failed attempts, throttles apart, after which a request is dead-lettered; 0 is no bound
	Fallback       fallback.Rules // where a request goes when its first target fails; zero is the model's own targets
}

// Deps are the engine's collaborators; all are required but the last three.
type Deps struct {
	Valkey    redis.UniversalClient
	Catalogue llmq.Catalogue
	Claims    *claims.Store
	Stops     *claims.Stops // the engine does not close it
	Capacity  *capacity.Gate
	Results   *results.Store
	Providers map[string]provider.Provider // by configured name
	Log       *slog.Logger
	Metrics   *telemetry.Recorder // nil: nothing is counted
	Traces    *tracing.Tracer     // nil: nothing is traced

	// Rules are those that hold now. A call asks for them when it begins, and whenever it asks for a slot; the answer may
	// take a look at the state store. Nil: Catalogue and Config.Fallback hold for good.
	Rules func(ctx context.Context) Rules
}

// Rules are what may change while an engine runs. The models, their targets and their providers stay the same. A call keeps those that
// it began with, but for the limits of targets: these hold for each slot anew.
type Rules struct {
	Catalogue llmq.Catalogue
	Fallback  fallback.Rules
}

// Engine runs requests. It is safe for concurrent use and keeps no state of them but what the state store
// could not be told.
type Engine struct {
	cfg Config
	Deps
	gate  gate
	debts *debts
}

// New checks its input and lists every fault at once.
func New(cfg Config, d Deps) (*Engine, error) {
	var faults []error
	require := func(ok bool, what string) {
		if !ok {
			faults = append(faults, fmt.Errorf("engine: %s is required", what))
		}
	}
	require(cfg.Worker != "", "Config.Worker")
	require(cfg.AttemptTimeout > 0, "a positive Config.AttemptTimeout")
	require(cfg.RTCapacityWait >= 0, "a Config.RTCapacityWait of at least 0")
	require(cfg.Retry.Attempts > 0 && cfg.Retry.ThrottleAttempts > 0, "Config.Retry with at least one attempt of either kind")
	require(cfg.Retry.Curve.Base > 0 && cfg.Retry.Curve.Max >= cfg.Retry.Curve.Base, "Config.Retry with a curve")
	require(d.Valkey != nil, "Deps.Valkey")
	require(d.Claims != nil, "Deps.Claims")
	require(d.Stops != nil, "Deps.Stops")
	require(d.Capacity != nil, "Deps.Capacity")
	require(d.Results != nil, "Deps.Results")
	require(d.Log != nil, "Deps.Log")
	for _, m := range d.Catalogue.Models() {
		for _, t := range m.Targets {
			require(d.Providers[t.Provider] != nil, "provider "+t.Provider+" of target "+t.String())
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if d.Rules == nil {
		fixed := Rules{Catalogue: d.Catalogue, Fallback: cfg.Fallback}
		d.Rules = func(context.Context) Rules { return fixed }
	}
	return &Engine{cfg: cfg, Deps: d, gate: slots{d.Capacity}, debts: newDebts()}, nil
}

// Call is one request to run.
type Call struct {
	Request  llmq.Request
	QueuedAt time.Time // when it was sent to the queue; zero if it was not
	// MessageID is its message's, for the log; "" where no message stands for it.
	MessageID string
	Receives  int       // of its message, this one included; 0 where no message stands for it
	Limit     time.Time // this process can't run past it; zero is no limit
	// Stop is closed once the process is to start nothing more: what waits for a slot or for its next try is then released,
	// with what it has come to. An attempt goes on for as long as Run's context does (FEATURES E11). Nil never stops.
	Stop <-chan struct{}
	// Direct says that its caller waits right here and that no message stands for it (FEATURES E12). It gets a slot only
	// beyond the rt calls that wait for one, and what would have to wait is released at once.
	Direct bool
	// AtOnce says of a direct call that it is released where no slot of the current step is free at once, in place of a look at
	// the others: a moment's wait in the queue is better than another target.
	AtOnce bool
	// Refused ends the request without an attempt: it is stored as its outcome, once the claim is taken. nil runs it.
	Refused *llmq.Error
	// Lost says that the request's own body is gone, and why: its message is buried and its caller told at once. The message must be
	// the one of the request's id. nil runs it.
	Lost *llmq.Error

	// Alone waits until nothing else runs in this process and keeps it so until Run has returned. It is asked for a request
	// whose worker died before, and reports false where ctx ended first. While it waits, the request's claim is
	// free: whoever kills this process meanwhile takes nobody along. Nil runs such a request like any
	// other; a direct one is released, since it would take the door along.
	Alone func(ctx context.Context, takeovers int) bool
	// Bury puts the call's message into its dead-letter queue. Nil is for a call without one.
	Bury func(ctx context.Context, l Letter) error
}

// Letter is what a dead letter tells of its message.
type Letter struct {
	Why      *llmq.Error
	Attempts int    // made at providers; 0 where none was, or nobody knows
	Class    string // of the last attempt that failed, from a short list; "" where none did
}

// Action says what is to become of the call's message.
type Action int

const (
	// Stored says that the request has ended and its result is stored, or that a later message carries it: acknowledge.
	Stored Action = iota + 1
	// Release says to hand the message back for Verdict.After, then to call Verdict.Defer.
	Release
	// Leave says to touch nothing. Another owner has the request, or nothing could be stored;
	// the message comes back when its lease ends.
	Leave
	// Refuse says that the message must not be run: move it to the dead-letter queue with Verdict.Err.
	Refuse
)

// Verdict is how a run ended.
type Verdict struct {
	Action Action
	After  time.Duration // Release: how long the message is to stay away
	Reason string        // for logs and metrics; from a short list
	Err    *llmq.Error   // Refuse: why
	Defer  func(context.Context)
	// KeepBody says of an acknowledged message that its offloaded body is not to be deleted: another of the same request, in the
	// dead-letter queue or sent again from there, points at it.
	KeepBody bool
	// Result is the end that this run has come to, for a caller who waits right here. It is there although the state store could not be
	// told of it. nil where there is none, or another owner's stands.
	Result *llmq.Result
}

// ReasonStoreUnavailable is the reason of a verdict that the state store's silence made. For how long that
// lasts the engine does not know; whoever does sets the release's time.
const ReasonStoreUnavailable = "store_unavailable"

// ReasonBusy is the reason of a release because another owner runs the request.
const ReasonBusy = "running_elsewhere"

// The other reasons.
const (
	reasonDeferred    = "deferred"
	reasonNoCapacity  = "no_capacity"
	reasonUnknown     = "model_not_configured"
	reasonUnknownJob  = "unknown_job"
	reasonOutOfTime   = "out_of_time"
	reasonInterrupted = "interrupted"
	reasonDraining    = "draining"
	reasonLost        = "claim_lost"
	reasonRetry       = "retry_later"
	reasonEarly       = "deadline_ahead"
	reasonCancelled   = "cancelled"
	reasonRecovered   = "reply_recovered"
	reasonOutdated    = "later_generation"
	reasonBuried      = "dead_lettered"
	reasonUnburied    = "dead_letter_queue_unavailable"
	reasonNotAlone    = "must_run_alone"
	reasonMisfit      = "key_of_wrong_type"
)

// Run takes one request as far as it can go now. It returns only after everything it
// started has ended.
func (e *Engine) Run(ctx context.Context, c Call) Verdict {
	r := e.newRun(ctx, c)
	v := r.run(ctx)
	v.Result = r.result
	r.traceEnd(v)
	return v
}

// Ended reports whether a request's end is stored, and stands for its generation. A claim of a wrong type tells of none.
func (e *Engine) Ended(ctx context.Context, r llmq.Request) (bool, error) {
	var b luascript.Batch
	over := e.Claims.Over(&b, r)
	if err := b.Run(ctx, e.Valkey); err != nil {
		return false, err
	}
	ended, err := over()
	if capacity.IsMisfit(err) {
		return false, nil
	}
	return ended, err
}
