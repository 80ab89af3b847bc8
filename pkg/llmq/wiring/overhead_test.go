package wiring

import (
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/internal/offload"
	"github.com/llm-queue/llmq/pkg/llmq/live"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/retry"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

const (
	overheadRounds = 5  // the median counts
	overheadTurns  = 40 // of each of the two in a round
	overheadCalls  = 20 // in a turn
)

// BenchmarkOverhead is what settings that are live, a log at INFO and metrics add to the worker's own CPU time and allocations a call:
// two workers on one real Valkey, whose own time is not counted, take turns.
//
//	go test ./pkg/llmq/wiring -run '^$' -bench Overhead -benchtime 1x
func BenchmarkOverhead(b *testing.B) {
	rdb := direct(b, realValkey(b, false))
	p := newProcess(b, rdb, preset(b, rdb))
	bare := p.measured(nil, slog.New(slog.DiscardHandler), nil)
	rec := telemetry.NewRecorder()
	whole := p.measured(p.watched(), slog.New(slog.NewJSONHandler(struct{ io.Writer }{io.Discard}, &slog.HandlerOptions{Level: slog.LevelInfo})), rec)
	flush := func() {
		if err := rec.FlushEMF(io.Discard, "llmq/bench"); err != nil {
			b.Error(err)
		}
	}
	n := 0
	turn := func(w *worker.Worker, told func()) (cpu, mallocs float64) {
		began, had := cpuTime(b), allocated()
		for range overheadCalls {
			n++
			if end := handle(b.Context(), w, message("o-"+strconv.Itoa(n))); end != "ack ok" {
				b.Fatalf("a call ended as %s", end)
			}
			told()
		}
		return float64((cpuTime(b) - began).Microseconds()), float64(allocated() - had)
	}
	for b.Loop() {
		var ratio, bareCPU, bareAllocs, moreAllocs []float64
		for round := range 1 + overheadRounds {
			var cpu, mallocs [2]float64
			for range overheadTurns {
				c, m := turn(bare, func() {})
				cpu[0], mallocs[0] = cpu[0]+c, mallocs[0]+m
				c, m = turn(whole, flush)
				cpu[1], mallocs[1] = cpu[1]+c, mallocs[1]+m
			}
			if round == 0 {
				continue // it only warms up
			}
			const calls = overheadTurns * overheadCalls
			ratio, bareCPU = append(ratio, 100*(cpu[1]/cpu[0]-1)), append(bareCPU, cpu[0]/calls)
			bareAllocs, moreAllocs = append(bareAllocs, mallocs[0]/calls), append(moreAllocs, (mallocs[1]-mallocs[0])/calls)
		}
		b.ReportMetric(median(ratio), "%-more-cpu")
		b.ReportMetric(median(bareCPU), "cpu-us/call")
		b.ReportMetric(median(bareAllocs), "allocs/call")
		b.ReportMetric(median(moreAllocs), "more-allocs/call")
	}
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// watched follows live settings, of which there are none.
func (p *process) watched() *Process {
	fixed := &rules{catalogue: catalogue()}
	w := live.NewWatch(live.New(p.valkey, p.space), 30*time.Second, fixed, func(live.State) (*rules, error) { return fixed, nil }, func(string, error) {})
	return &Process{rules: w}
}

// measured is a worker with or without what is measured.
func (p *process) measured(rules *Process, log *slog.Logger, rec *telemetry.Recorder) *worker.Worker {
	p.t.Helper()
	deps := engine.Deps{
		Valkey: p.valkey, Catalogue: catalogue(), Claims: p.claims, Stops: p.stops, Capacity: p.gate, Results: p.results,
		Providers: map[string]provider.Provider{"p": instant{}}, Log: log, Metrics: rec,
	}
	if rules != nil {
		deps.Rules = rules.engineRules
	}
	e, err := engine.New(engine.Config{Worker: "w", AttemptTimeout: time.Minute, RTCapacityWait: time.Second, Retry: retry.Default()}, deps)
	if err != nil {
		p.t.Fatalf("new engine: %v", err)
	}
	timeouts := map[llmq.Lane]worker.Timeouts{}
	for _, l := range llmq.Lanes() {
		timeouts[l] = worker.Timeouts{Default: l.DefaultTimeout(), Max: l.MaxTimeout()}
	}
	w, err := worker.New(worker.Config{Names: names, Senders: queue.Senders{Own: []string{"door"}}, Catalogue: catalogue(), Timeouts: timeouts},
		worker.Deps{Queue: noQueue{}, Engine: e, Bodies: offload.NewValkey(p.valkey, p.space), Keys: testKeys.Records, Log: log, Metrics: rec})
	if err != nil {
		p.t.Fatalf("new worker: %v", err)
	}
	return w
}
