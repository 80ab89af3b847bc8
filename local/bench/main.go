// Bench measures what one call through the queue costs, on the real binaries in the
// local cloud, with a provider that answers at once: wall time, round trips to the state
// store, requests to SQS; and how many messages the local cloud itself carries. It prints a table on a terminal and JSON in a pipe.
//
// Absolute times are this machine's; the counts are the bill, and don't depend on it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/percentile"
	"github.com/llm-queue/llmq/local/rig"
)

func main() {
	serveFunction() // does not return when this is a function's process
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
}

// Report is what one call costs. Counts are means over Calls; times are percentiles, in
// milliseconds.
type Report struct {
	Calls            int                `json:"calls"`
	Store            string             `json:"store"`
	WallP50          float64            `json:"wall_p50_ms"`
	WallP99          float64            `json:"wall_p99_ms"`
	QueueWaitP50     float64            `json:"queue_wait_p50_ms"`
	ValkeyReads      float64            `json:"valkey_round_trips"` // packets of commands that the server read
	ValkeyCommands   map[string]float64 `json:"valkey_commands"`
	SQSRequests      map[string]float64 `json:"sqs_requests"` // as AWS bills them, one for every 64 KiB; receives among them that found nothing are the event source's idle cost
	SQSRequestsTotal float64            `json:"sqs_requests_total"`
	ColdMS           float64            `json:"first_call_ms"`
	Pipeline         *Pipeline          `json:"pipeline,omitempty"` // nil when it was not asked for
}

func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	calls := flags.Int("calls", 500, "calls to measure, one after the other, 10 to 100000")
	messages := flags.Int("messages", 20_000, "messages to send through the local cloud with an empty function; 0 leaves that out")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *calls < 10 || *calls > 100_000 {
		return fmt.Errorf("-calls is %d; it must be from 10 to 100000", *calls)
	}
	if *messages < 0 || *messages > 1_000_000 {
		return fmt.Errorf("-messages is %d; it must be from 0 to 1000000", *messages)
	}
	var pipeline *Pipeline
	if *messages > 0 {
		p, err := measurePipeline(ctx, *messages, errOut)
		if err != nil {
			return err
		}
		pipeline = &p
	}
	r, err := rig.Start(ctx, rig.Options{
		Step:   func(s string) { fmt.Fprintln(errOut, "· "+s) },
		Logger: slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, r.Close(closing))
	}()
	rep, err := measure(ctx, r, *calls, errOut)
	if err != nil {
		return err
	}
	rep.Pipeline = pipeline
	return show(out, rep)
}

const warmUp = 20

func measure(ctx context.Context, r *rig.Rig, calls int, errOut io.Writer) (Report, error) {
	cold, err := one(ctx, r, "cold")
	if err != nil {
		return Report{}, err
	}
	for i := range warmUp {
		if _, err := one(ctx, r, "warm-"+strconv.Itoa(i)); err != nil {
			return Report{}, err
		}
	}
	rdb := store(r)
	defer rdb.Close() // the bench is over
	before, err := counters(ctx, rdb)
	if err != nil {
		return Report{}, err
	}
	sqsBefore := r.SQS.Stats().Billed
	walls, waits := make([]float64, 0, calls), make([]float64, 0, calls)
	for i := range calls {
		s, err := one(ctx, r, "call-"+strconv.Itoa(i))
		if err != nil {
			return Report{}, err
		}
		walls, waits = append(walls, s.wall), append(waits, s.queueWait)
		if done := i + 1; done%max(1, calls/5) == 0 {
			fmt.Fprintf(errOut, "· %d of %d calls\n", done, calls)
		}
	}
	after, err := counters(ctx, rdb)
	if err != nil {
		return Report{}, err
	}
	n := float64(calls)
	rep := Report{
		Calls: calls, Store: r.Valkey.Kind(), ColdMS: cold.wall, WallP50: rank(walls, 50), WallP99: rank(walls, 99), QueueWaitP50: rank(waits, 50),
		ValkeyCommands: map[string]float64{}, SQSRequests: map[string]float64{},
	}
	// The reading of the counters itself is one packet with one command.
	rep.ValkeyReads = (after.reads - before.reads - 1) / n
	for name, count := range after.commands {
		if d := count - before.commands[name]; d > 0 && name != "info" {
			rep.ValkeyCommands[name] = d / n
		}
	}
	for op, count := range r.SQS.Stats().Billed {
		if d := count - sqsBefore[op]; d > 0 {
			rep.SQSRequests[op] = float64(d) / n
			rep.SQSRequestsTotal += float64(d) / n
		}
	}
	return rep, nil
}

var errWrongAnswer = errors.New("not the answer to this call")

type sample struct{ wall, queueWait float64 }

// one sends a call through the queue and checks its answer.
func one(ctx context.Context, r *rig.Rig, text string) (sample, error) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, rig.ModelChat, text)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return sample{}, err
	}
	req.Header.Set("Authorization", "Bearer "+r.Key)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return sample{}, err
	}
	defer resp.Body.Close() // it was read to its end
	reply, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(reply, []byte(text)) {
		return sample{}, fmt.Errorf("call %s: %s %s: %w", text, resp.Status, reply, errors.Join(err, errWrongAnswer))
	}
	wait, err := strconv.ParseFloat(resp.Header.Get("X-LLMQ-Queue-Wait-Ms"), 64)
	if err != nil {
		return sample{}, fmt.Errorf("call %s: queue wait: %w", text, err)
	}
	return sample{wall: float64(took.Microseconds()) / 1000, queueWait: wait}, nil
}

func store(r *rig.Rig) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.Valkey.Addr(), Password: r.Valkey.Password(), DisableIdentity: true})
}

type counts struct {
	reads    float64
	commands map[string]float64
}

// counters reads the server's own counts. A server that keeps none (miniredis) is an
// error: a figure that was not measured is worth nothing.
func counters(ctx context.Context, rdb *redis.Client) (counts, error) {
	text, err := rdb.Info(ctx, "stats", "commandstats").Result()
	if err != nil {
		return counts{}, fmt.Errorf("the state store keeps no counts (install valkey-server): %w", err)
	}
	c := counts{commands: map[string]float64{}}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "total_reads_processed" {
			if c.reads, err = strconv.ParseFloat(value, 64); err != nil {
				return counts{}, fmt.Errorf("counter %s: %w", name, err)
			}
		}
		if cmd, ok := strings.CutPrefix(name, "cmdstat_"); ok {
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			if c.commands[cmd], err = strconv.ParseFloat(calls, 64); err != nil {
				return counts{}, fmt.Errorf("counter %s: %w", name, err)
			}
		}
	}
	if c.reads == 0 {
		return counts{}, errors.New("the state store keeps no counts; install valkey-server")
	}
	return c, nil
}

// rank is a percentile of what can't be none.
func rank(v []float64, p int) float64 {
	value, _ := percentile.Of(v, p)
	return value
}

func show(out io.Writer, rep Report) error {
	if f, ok := out.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
			return table(out, rep)
		}
	}
	return json.NewEncoder(out).Encode(rep)
}

func table(out io.Writer, rep Report) error {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-28s "+format+"\n", append([]any{name}, args...)...)
	}
	fmt.Fprintf(out, "one call through the queue, %d calls one after the other, provider answers at once, %s\n", rep.Calls, rep.Store)
	row("wall time p50, p99", "%.1f ms, %.1f ms", rep.WallP50, rep.WallP99)
	row("of it in the queue, p50", "%.0f ms", rep.QueueWaitP50)
	row("first call (cold)", "%.0f ms", rep.ColdMS)
	row("Valkey round trips", "%.2f", rep.ValkeyReads)
	for _, name := range slices.Sorted(maps.Keys(rep.ValkeyCommands)) {
		row("  "+name, "%.2f", rep.ValkeyCommands[name])
	}
	row("SQS requests", "%.2f", rep.SQSRequestsTotal)
	for _, name := range slices.Sorted(maps.Keys(rep.SQSRequests)) {
		row("  "+name, "%.2f", rep.SQSRequests[name])
	}
	if rep.Pipeline != nil {
		pipelineTable(out, *rep.Pipeline)
	}
	return nil
}
