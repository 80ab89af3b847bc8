// Package otlp keeps a process's spans and exports them as OTLP in protobuf over HTTP, within bounds that hold whatever the collector
// does: a span waits for nobody, a flush takes [FlushWithin], and a collector that fails is left alone for a while.
//
// The spans and their encoding are OpenTelemetry's SDK's. Its exporters are not used, for they retry in the background and
// link all of gRPC; nor is its batch processor, whose timer would run on in a function that is frozen (ADR 0025).
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// FlushWithin is the longest that [Exporter.Flush] takes.
	FlushWithin = 200 * time.Millisecond
	// closeWithin is the longest that the last flush of a program takes.
	closeWithin = 2 * time.Second
	// MostKept is how many spans wait for a flush; what comes beyond is dropped.
	MostKept = 2048
	// A collector that has failed is asked again after leastPause, and after twice the pause each further time, up to mostPause.
	leastPause = 30 * time.Second
	mostPause  = 5 * time.Minute
)

// Config says what is exported, and where to.
type Config struct {
	Endpoint string            // URL of the collector, to which /v1/traces is joined
	Ratio    float64           // of traces that begin here, or whose caller does not record them: 0 to 1 are kept
	Resource map[string]string // what the process is, by OpenTelemetry's names; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME go over it
	// Every is how often spans are exported by themselves. 0 is not at all: in a function nothing runs between two
	// invocations.
	Every time.Duration
	Log   *slog.Logger
}

// Exporter keeps spans until they are exported. It is safe for concurrent use.
type Exporter struct {
	provider *sdk.TracerProvider
	sends    *otlptrace.Exporter
	client   *client
	log      *slog.Logger
	wake     chan struct{} // capacity 1: half of what may be kept is there
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu     sync.Mutex // guards all below
	kept   []sdk.ReadOnlySpan
	lost   int           // since the last export that went well
	pause  time.Duration // after the last failure; 0 after a success
	closed time.Time     // nothing is exported before, by the wall clock: a frozen process's other one stands still
}

// New makes an exporter. ctx bounds the making alone, which calls nobody.
func New(ctx context.Context, cfg Config) (*Exporter, error) { //nolint:contextcheck // what it starts runs until Close
	e := &Exporter{client: newClient(cfg.Endpoint), log: cfg.Log, wake: make(chan struct{}, 1), stop: func() {}}
	e.sends = otlptrace.NewUnstarted(e.client)
	if err := e.sends.Start(ctx); err != nil {
		return nil, fmt.Errorf("start the export of traces: %w", err)
	}
	var attrs []attribute.KeyValue
	for name, value := range cfg.Resource {
		attrs = append(attrs, attribute.String(name, value))
	}
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attrs...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("resource of traces, from OTEL_RESOURCE_ATTRIBUTES too: %w", err)
	}
	// Each trace is decided upon once: whoever does not record it says nothing of the next process, which comes to the same
	// decision by the trace's id.
	ratio := sdk.TraceIDRatioBased(cfg.Ratio)
	e.provider = sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(ratio, sdk.WithRemoteParentNotSampled(ratio))), sdk.WithResource(res), sdk.WithSpanProcessor(keeper{e}))
	if cfg.Every > 0 {
		running, stop := context.WithCancel(context.Background())
		e.stop = stop
		e.running.Go(func() { e.run(running, cfg.Every) })
	}
	return e, nil
}

// Tracer makes the spans.
func (e *Exporter) Tracer(scope string) trace.Tracer { return e.provider.Tracer(scope) }

// run exports now and then.
func (e *Exporter) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.wake:
		}
		e.export(ctx, closeWithin)
	}
}

// Flush exports what is kept, and drops it where that fails: there is no error to be handled, but a line in the log.
func (e *Exporter) Flush() { e.export(context.Background(), FlushWithin) }

// Close flushes and ends. Spans that end later are dropped.
func (e *Exporter) Close() {
	e.stop()
	e.running.Wait()
	e.export(context.Background(), closeWithin)
	e.client.close()
}

// export sends what is kept, unless the collector is left alone for now.
func (e *Exporter) export(ctx context.Context, within time.Duration) {
	spans := e.take(time.Now().Round(0))
	if len(spans) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := e.sends.ExportSpans(ctx, spans)
	lost, pause := e.told(len(spans), err)
	switch {
	case err != nil:
		e.log.Warn("traces_not_exported", "cause", causeOf(err), "spans_lost", lost, "next_try_secs", int(pause/time.Second))
	case lost > 0:
		e.log.Info("traces_exported_again", "spans_lost", lost)
	}
}

// take is what is to be exported now.
func (e *Exporter) take(now time.Time) []sdk.ReadOnlySpan {
	e.mu.Lock()
	defer e.mu.Unlock()
	spans := e.kept
	e.kept = nil
	if now.Before(e.closed) {
		e.lost += len(spans)
		return nil
	}
	return spans
}

// told notes how an export of n spans went, and returns how many are lost by now and for how long nothing is exported.
func (e *Exporter) told(n int, err error) (lost int, pause time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		lost, e.lost, e.pause = e.lost, 0, 0
		return lost, 0
	}
	e.lost += n
	e.pause = min(max(2*e.pause, leastPause), mostPause)
	e.closed = time.Now().Round(0).Add(e.pause)
	return e.lost, e.pause
}

// keep holds a span that has ended until it is exported.
func (e *Exporter) keep(s sdk.ReadOnlySpan) {
	e.mu.Lock()
	full := len(e.kept) >= MostKept
	if full {
		e.lost++
	} else {
		e.kept = append(e.kept, s)
	}
	half := len(e.kept) >= MostKept/2
	e.mu.Unlock()
	if half {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// keeper is the exporter as the SDK knows it.
type keeper struct{ *Exporter }

var _ sdk.SpanProcessor = keeper{}

func (k keeper) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (k keeper) OnEnd(s sdk.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		k.keep(s)
	}
}
func (k keeper) ForceFlush(context.Context) error { return nil }
func (k keeper) Shutdown(context.Context) error   { return nil }

// causeOf says what went wrong without an address in it.
func causeOf(err error) string {
	if s, ok := errors.AsType[statusError](err); ok {
		return s.Error()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "unreachable"
}
