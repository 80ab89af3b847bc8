// Package worker turns a batch of messages into outcomes: each message is run by the
// engine, handed back, or moved to the dead-letter queue with its reason. Whatever
// happens to one message, its neighbours never notice.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

const (
	// Lease is how long a message stays hidden without renewal: longer than the claim's
	// 45 s, so that it never comes back to a claim that still holds, and short enough that
	// a killed worker's messages are back within a minute (FEATURES B7).
	Lease = 55 * time.Second
	// Margin is what an invocation keeps back of its time to store results and answer.
	Margin = 8 * time.Second
)

// Action is what becomes of a message.
type Action int

const (
	// Ack is for a message whose result is stored, or that lies in the dead-letter queue: delete it.
	Ack Action = iota + 1
	// Keep is for one that comes back by its visibility, which has been set: do not delete it.
	Keep
)

// Outcome is the end of one message's handling. Everything but the deletion has been
// done: visibility, claim, dead-letter queue.
type Outcome struct {
	MessageID string
	Action    Action
	Reason    string // for logs and metrics; from a short list
}

// runner is what the worker needs of the engine.
type runner interface {
	Run(ctx context.Context, c engine.Call) engine.Verdict
	Ended(ctx context.Context, r llmq.Request) (bool, error)
}

// messages is what the worker needs of its queues.
type messages interface {
	Send(ctx context.Context, q queue.Name, m queue.Outgoing) error
	Extend(ctx context.Context, q queue.Name, leases []queue.Lease) []error
	Delete(ctx context.Context, q queue.Name, receipts []string) []error
}

// bodies holds what messages' refs point at.
type bodies interface {
	Put(ctx context.Context, key string, body []byte) (llmq.Ref, error)
	// Get fails as [fs.ErrNotExist] where nothing is stored.
	Get(ctx context.Context, ref llmq.Ref) ([]byte, error)
	Delete(ctx context.Context, key string) error
}

// Timeouts are a lane's deadlines, counted from when a message was first sent.
type Timeouts struct {
	Default time.Duration // of a message that names no deadline
	Max     time.Duration // the longest that a message may ask for
}

// Config is what the worker knows about its deployment.
type Config struct {
	Names     queue.Names
	Senders   queue.Senders // whose messages are taken; some are required
	Catalogue llmq.Catalogue
	Timeouts  map[llmq.Lane]Timeouts // one of each lane
	BodyBytes int64                  // what the bodies of all that runs may take in memory; 0 is no bound
	Drain     time.Duration          // how long what runs may go on after [Worker.Drain]; 0 is not at all
}

// Deps are the worker's collaborators; all are required from Queue to Log.
type Deps struct {
	Queue  messages
	Engine runner
	Bodies bodies
	Keys   keys
	Log    *slog.Logger
	// Timeout is the deadline of a model's messages that name none, counted from when they were first sent; 0, or nil, is the
	// lane's.
	Timeout func(alias string, op llmq.Op, l llmq.Lane) time.Duration
	Metrics *telemetry.Recorder // nil: nothing is counted
	Traces  *tracing.Tracer     // nil: nothing is traced
	Store   *telemetry.Store    // nil: nobody knows for how long the state store is lost
	Replies replier             // nil: producers are told nothing
	// Pass reports whether a request is for another worker, with what to do, before anything is fetched for it. Nil: none is.
	Pass func(q llmq.Request, receives int) (engine.Verdict, bool)
}

// Worker handles batches. It is safe for concurrent use. Of batches it keeps only how much
// memory they take and who of them runs.
type Worker struct {
	cfg Config
	Deps
	homes map[queue.Name]home // every queue of the deployment
	rooms room
	runs  company
	drain drain
}

// home is what a queue's name stands for.
type home struct {
	alias string
	lane  llmq.Lane
}

// New checks its input and lists every fault at once.
func New(cfg Config, d Deps) (*Worker, error) {
	var faults []error
	for what, missing := range map[string]bool{
		"Config.Names": cfg.Names.Prefix == "", "Deps.Queue": d.Queue == nil, "Deps.Engine": d.Engine == nil,
		"Deps.Bodies": d.Bodies == nil, "Deps.Keys": d.Keys == nil, "Deps.Log": d.Log == nil,
	} {
		if missing {
			faults = append(faults, fmt.Errorf("worker: %s is required", what))
		}
	}
	if cfg.Senders.None() {
		faults = append(faults, errors.New("worker: Config.Senders names nobody, so every message would be refused: give the door's and admin's in queues.sender_ids, or producers"))
	}
	for _, l := range llmq.Lanes() {
		if t := cfg.Timeouts[l]; t.Default <= 0 || t.Max < t.Default {
			faults = append(faults, fmt.Errorf("worker: Config.Timeouts[%s] must be positive and Max not below Default, is %s and %s", l, t.Default, t.Max))
		}
	}
	if len(faults) > 0 {
		slices.SortFunc(faults, func(a, b error) int { return slices.Compare([]byte(a.Error()), []byte(b.Error())) })
		return nil, errors.Join(faults...)
	}
	w := &Worker{cfg: cfg, Deps: d, homes: map[queue.Name]home{}, rooms: newRoom(cfg.BodyBytes), drain: newDrain(cfg.Drain)}
	for _, m := range cfg.Catalogue.Models() {
		for _, l := range m.Lanes {
			w.homes[cfg.Names.Model(m.Alias, l)] = home{m.Alias, l}
		}
	}
	return w, nil
}

// Handle runs a batch, its messages side by side, and returns one outcome each, in
// their order. It returns when everything it started has ended, some time before the
// context's deadline.
func (w *Worker) Handle(ctx context.Context, msgs []queue.Message) []Outcome {
	began := time.Now()
	ds, of := unite(msgs)
	ends := make([]Outcome, len(ds))
	for i, d := range ds {
		ends[i] = Outcome{MessageID: d.ID, Action: Keep, Reason: "not_finished"}
	}
	var limit time.Time
	if d, ok := ctx.Deadline(); ok {
		limit = d.Add(-Margin)
	}
	ctx, waiting, end := w.drain.watch(ctx)
	defer end()
	keeper := w.keep(ctx, ds)
	var wg sync.WaitGroup
	for i, d := range ds {
		wg.Go(func() {
			defer func() { keeper.over(i, ends[i].Action == Ack) }()
			defer func() {
				if p := recover(); p != nil {
					// The value may hold a body; its type may not.
					w.Log.Error("message handling panicked", "message_id", d.ID, "panic_type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
				}
			}()
			ends[i] = w.handle(ctx, waiting, d, limit, func() { keeper.settle(i) })
		})
	}
	wg.Wait()
	keeper.stop()
	keeper.retire(ctx)
	out := make([]Outcome, len(msgs))
	for i := range msgs {
		out[i] = ends[of[i]]
	}
	w.count(msgs, out, began)
	return out
}

// count tells the metrics what came, by when it began to be handled, and what became of it; releases are counted where they are made.
func (w *Worker) count(msgs []queue.Message, out []Outcome, began time.Time) {
	if w.Metrics == nil {
		return
	}
	oldest := map[queue.Name]time.Duration{}
	for i, m := range msgs {
		l, age := w.labels(m), max(0, began.Sub(m.SentAt))
		oldest[m.Queue] = max(oldest[m.Queue], age)
		w.Metrics.Count(telemetry.Received, l, 1)
		if out[i].Action == Ack {
			w.Metrics.Count(telemetry.Acked, l, 1)
			w.Metrics.Observe(telemetry.QueueWait, l, seconds(age))
			if out[i].Reason == string(llmq.CodeExpired) {
				w.Metrics.Count(telemetry.Expired, l, 1)
			}
		}
	}
	for q, age := range oldest {
		if _, ours := w.homes[q]; ours {
			w.Metrics.Set(telemetry.QueueOldest, telemetry.Labels{Queue: string(q)}, seconds(age))
		}
	}
}

// seconds are d's, to the millisecond.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// faulty counts a request to a queue that failed.
func (w *Worker) faulty(q queue.Name, cause string) {
	model := w.homes[q].alias
	if model == "" {
		model = unknownModel
	}
	w.Metrics.Count(telemetry.QueueErrors, telemetry.Labels{Model: model, Cause: cause}, 1)
}

// unknownModel labels what concerns a queue that this deployment doesn't know.
const unknownModel = "unknown"

// labels are those of the message's queue: what a message says of itself is not trusted with a series.
func (w *Worker) labels(m queue.Message) telemetry.Labels {
	here, ok := w.homes[m.Queue]
	if !ok {
		return telemetry.Labels{Model: unknownModel}
	}
	return telemetry.Labels{Model: here.alias, Lane: string(here.lane)}
}

// handle runs one message. What has not begun when waiting ends is released. settle ends its renewals, before its
// visibility is set to anything else.
func (w *Worker) handle(ctx, waiting context.Context, m *delivery, limit time.Time, settle func()) (out Outcome) {
	log := w.Log.With("message_id", m.ID, "queue", string(m.Queue))
	req, ref, err := w.decode(m)
	if err != nil {
		settle()
		return w.refuse(ctx, log, m, req.Tenant, llmq.AsError(err))
	}
	ended := w.beginSpan(m, &req)
	defer func() { ended(out) }()
	if w.Pass != nil {
		if v, isForAnother := w.Pass(req, m.ReceiveCount); isForAnother {
			return w.end(ctx, log, m, req, ref, v, settle)
		}
	}
	leave, roomy := w.rooms.enter(waiting, weight(m.Body, ref), until(req.Deadline, limit))
	if !roomy {
		return w.unbegun(ctx, log, m, req.Deadline, noRoom, settle)
	}
	defer leave()
	if isStored, err := w.load(waiting, m, &req, ref, limit); w.drain.hasBegun() {
		return w.unbegun(ctx, log, m, req.Deadline, draining, settle)
	} else if isLost(err, m, req, ref) && !errors.Is(err, llmq.CodeQueueUnavailable) {
		return w.end(ctx, log, m, req, ref, w.lose(ctx, log, m, req, llmq.AsError(err)), settle)
	} else if err != nil {
		settle()
		return w.refuse(ctx, log, m, req.Tenant, llmq.AsError(err))
	} else if isStored {
		return w.tell(ctx, log, m, req, Outcome{m.ID, Ack, "already_stored"}, settle)
	}
	ends, err := w.allow(ctx, &req)
	if err != nil {
		settle()
		return w.refuse(ctx, log, m, req.Tenant, llmq.AsError(err))
	}
	return w.end(ctx, log, m, req, ref, w.run(ctx, waiting, log, m, req, ends, limit), settle)
}

// lose has the engine end a request whose own body can't be had.
func (w *Worker) lose(ctx context.Context, log *slog.Logger, m *delivery, r llmq.Request, why *llmq.Error) engine.Verdict {
	return w.Engine.Run(ctx, engine.Call{Request: r, MessageID: m.ID, QueuedAt: m.SentAt, Receives: m.ReceiveCount, Lost: why, Bury: func(ctx context.Context, l engine.Letter) error {
		return w.deadLetter(ctx, log, m.Message, r.Tenant, l)
	}})
}

// end does with a message what the engine says.
func (w *Worker) end(ctx context.Context, log *slog.Logger, m *delivery, req llmq.Request, ref *llmq.Ref, v engine.Verdict, settle func()) Outcome {
	out := Outcome{MessageID: m.ID, Action: Keep, Reason: v.Reason}
	m.ended = v.Result
	switch v.Action {
	case engine.Stored:
		out.Action = Ack
		if ownBody(req, ref) && !v.KeepBody { // what a producer has put aside is its own: other messages may name it
			m.body = ref.Key
		}
		return w.tell(ctx, log, m, req, out, settle)
	case engine.Release:
		settle()
		w.release(ctx, log, m, max(w.outagePace(req.Deadline, v), spare(m.Message, req.Deadline)), v.Reason)
		if v.Defer != nil {
			v.Defer(context.WithoutCancel(ctx))
		}
	case engine.Refuse:
		settle()
		return w.refuse(ctx, log, m, req.Tenant, v.Err)
	default:
	}
	return out
}

// unbegun hands a message back that has not come as far as the engine, for that reason or for the drain.
func (w *Worker) unbegun(ctx context.Context, log *slog.Logger, m *delivery, deadline time.Time, reason string, settle func()) Outcome {
	if w.drain.hasBegun() {
		reason = draining
	}
	settle()
	w.release(ctx, log, m, spare(m.Message, deadline), reason)
	return Outcome{m.ID, Keep, reason}
}

const (
	// newerFor is how long a message of a newer version, or of a queue that only a newer
	// configuration knows, waits for newer workers.
	newerFor = time.Hour
	// newerEvery is how often it is looked at meanwhile.
	newerEvery = 30 * time.Second
	// Another worker may know the queue already and be given the message next: so it comes back soon, by chance, or this one would
	// have it each time (FEATURES B17). Only after so many receives it looks as if none knows it yet.
	soonLeast, soonMost, soonReceives = time.Second, 5 * time.Second, 20
	// storeRetry is when a message is looked at again whose body or key could not be fetched.
	storeRetry = 10 * time.Second
)

// refuse handles a message that is no request for this worker: it goes back while
// waiting may help, else to the dead-letter queue with its reason. tenant is whose it is,
// "" where that is not known.
func (w *Worker) refuse(ctx context.Context, log *slog.Logger, m *delivery, tenant string, why *llmq.Error) Outcome {
	switch {
	case (errors.Is(why, llmq.CodeNewerEnvelope) || errors.Is(why, llmq.CodeModelNotConfigured)) && time.Since(m.SentAt) < newerFor:
		after := newerEvery
		if m.ReceiveCount <= soonReceives {
			after = soonLeast + rand.N(soonMost-soonLeast) //nolint:gosec // spreads retries; nothing is secret
		}
		w.release(ctx, log, m, after, string(why.Code))
		return Outcome{m.ID, Keep, string(why.Code)}
	case errors.Is(why, llmq.CodeQueueUnavailable), errors.Is(why, llmq.CodeInternal): // nothing is known against the message
		log.Warn("body or key not fetched", "cause", why.Err)
		w.release(ctx, log, m, max(storeRetry, spare(m.Message, time.Time{})), string(why.Code))
		return Outcome{m.ID, Keep, string(why.Code)}
	}
	if err := w.deadLetter(ctx, log, m.Message, tenant, engine.Letter{Why: why}); err != nil {
		log.Error("not dead-lettered", "reason", string(why.Code), "error", err)
		w.release(ctx, log, m, max(storeRetry, spare(m.Message, time.Time{})), string(why.Code))
		return Outcome{m.ID, Keep, string(why.Code)}
	}
	return Outcome{m.ID, Ack, string(why.Code)}
}

// release sets when the message comes back. Where that fails, it comes back at the end
// of its lease.
func (w *Worker) release(ctx context.Context, log *slog.Logger, m *delivery, after time.Duration, reason string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	l := w.labels(m.Message)
	l.Reason = reason
	w.Metrics.Count(telemetry.Released, l, 1)
	if err := errors.Join(w.Queue.Extend(ctx, m.Queue, m.leases(min(after, maxRelease)))...); err != nil {
		w.faulty(m.Queue, "lease")
		log.Warn("visibility not changed", "reason", reason, "error", err)
		return
	}
	log.Debug("message_released", "reason", reason, "after_ms", after.Milliseconds())
}

// maxRelease is the longest that a message is handed back for.
const maxRelease = 15 * time.Minute
