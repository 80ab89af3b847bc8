// Door measures what the door adds to a call that it runs where its caller waits: HTTP, JSON, key, submission record, claim,
// admission, result and settlement, beside a bare reverse proxy before the same provider, at the same rate, in turns. The door's
// handler, the proxy, the provider and the callers share one process; the state store is a real Valkey. It prints Markdown.
//
//	go run ./local/bench/door -out results/door.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "door: "+err.Error())
		os.Exit(1)
	}
}

// plan is what is measured.
type plan struct {
	rate   int           // calls a second
	hosted int           // calls a second through the Lambda host, which has a process for each call that runs
	each   time.Duration // of a round
	rounds int
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("door", flag.ContinueOnError)
	flags.SetOutput(progress)
	p := plan{}
	flags.IntVar(&p.rate, "rate", 1000, "calls a second, 1 to 10000")
	flags.IntVar(&p.hosted, "hosted", 50, "calls a second through the Lambda host, 1 to 1000")
	flags.DurationVar(&p.each, "for", 10*time.Second, "how long a round lasts, 1s to 1m")
	flags.IntVar(&p.rounds, "rounds", 5, "rounds of each, in turns, 1 to 20; the table has medians")
	report := flags.String("out", "", "write the table to this file too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if p.rate < 1 || p.rate > 10_000 || p.hosted < 1 || p.hosted > 1000 || p.rounds < 1 || p.rounds > 20 || p.each < time.Second || p.each > time.Minute {
		return errors.New("a flag is out of its range; -help tells them")
	}
	// The door asks only the local cloud; the keys of whoever starts this stay out of it.
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": cloud.Producer, "AWS_SECRET_ACCESS_KEY": "local", "AWS_SESSION_TOKEN": ""} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	r, err := rig.Start(ctx, rig.Options{
		Engine: valkey.Real, Step: func(s string) { fmt.Fprintln(progress, "· "+s) },
		Change: func(c *config.Config) {
			t := &c.Models[0].Targets[0]
			t.MaxConcurrency, t.Limits.Initial = 1000, 1000
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, r.Close(closing))
	}()
	// A queue that refuses has a model's calls run where their callers wait.
	defer r.SQS.Inject(sqs.Fault{Kind: sqs.Refuse})()
	rows, err := measure(ctx, r, p, progress)
	if err != nil {
		return err
	}
	var page strings.Builder
	write(&page, p, rows, time.Now())
	if _, err := io.WriteString(out, page.String()); err != nil {
		return err
	}
	if *report == "" {
		return nil
	}
	return os.WriteFile(*report, []byte(page.String()), 0o644) // a document
}

// row is what was measured of one arrangement: a figure a round.
type row struct {
	name          string
	p50, p99      []float64 // ms
	allocs, bytes []float64 // of the whole process, a call
}

func measure(ctx context.Context, r *rig.Rig, p plan, progress io.Writer) ([]row, error) {
	process, err := wiring.New(ctx, r.Environ(), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer process.Close() //nolint:contextcheck // the bench is over, and its end has a bound of its own
	door, err := process.Door(ctx)
	if err != nil {
		return nil, err
	}
	proxy, err := bare(r)
	if err != nil {
		return nil, err
	}
	doorURL, closeDoor, err := serve(door)
	if err != nil {
		return nil, err
	}
	defer closeDoor()
	proxyURL, closeProxy, err := serve(proxy)
	if err != nil {
		return nil, err
	}
	defer closeProxy()
	rows := []row{{name: "bare reverse proxy"}, {name: "door, direct"}, {name: "the same through the Lambda host"}}
	loads := []load{
		{url: proxyURL, key: "none", rate: p.rate},
		{url: doorURL, key: r.Key, rate: p.rate, direct: true},
		{url: r.URL, key: r.Key, rate: p.hosted, direct: true},
	}
	for _, l := range loads { // connections, the engine and the processes there are then
		if _, err := l.run(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	for round := range p.rounds {
		for i, l := range loads {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			took, err := l.run(ctx, p.each)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rows[i].name, err)
			}
			runtime.ReadMemStats(&after)
			n := float64(len(took))
			rows[i].p50 = append(rows[i].p50, rank(took, 50))
			rows[i].p99 = append(rows[i].p99, rank(took, 99))
			rows[i].allocs = append(rows[i].allocs, float64(after.Mallocs-before.Mallocs)/n)
			rows[i].bytes = append(rows[i].bytes, float64(after.TotalAlloc-before.TotalAlloc)/n)
			fmt.Fprintf(progress, "· round %d of %d, %s: p50 %.2f ms, p99 %.2f ms\n", round+1, p.rounds, rows[i].name, rank(took, 50), rank(took, 99))
		}
	}
	return rows, nil
}

// bare is what any gateway costs: the standard library's reverse proxy before the same provider.
func bare(r *rig.Rig) (http.Handler, error) {
	provider := r.Config.Providers[0]
	u, err := url.Parse(provider.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("the provider's URL: %w", err)
	}
	key := ""
	for _, v := range r.Environ() {
		if value, ok := strings.CutPrefix(v, provider.APIKey.Env+"="); ok {
			key = value
		}
	}
	return &httputil.ReverseProxy{
		Transport: &http.Transport{MaxIdleConnsPerHost: 1000},
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(&url.URL{Scheme: u.Scheme, Host: u.Host})
			pr.Out.Header.Set("Authorization", "Bearer "+key)
		},
	}, nil
}

// serve serves a handler on loopback.
func serve(h http.Handler) (address string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // stop closes it
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // it ends when stop says so
	}()
	return "http://" + l.Addr().String(), func() { _ = srv.Close(); <-done }, nil
}

// rank is the nearest-rank percentile, in milliseconds.
func rank(all []time.Duration, p int) float64 {
	s := slices.Sorted(slices.Values(all))
	return float64(s[max(0, (len(s)*p+99)/100-1)].Microseconds()) / 1000
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

func write(out io.Writer, p plan, rows []row, now time.Time) {
	fmt.Fprintf(out, "# What the door adds to a call\n\nMade by `go run ./local/bench/door -rate %d -hosted %d -for %s -rounds %d -out results/door.md` on %d processors (%s/%s), %s.\n\n",
		p.rate, p.hosted, p.each, p.rounds, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, now.UTC().Format(time.DateOnly))
	fmt.Fprintf(out, "The door runs the calls itself (the queue refuses), under submission record, claim and slot in a real Valkey. Its handler, the proxy, the provider, which answers\n"+
		"at once, and the callers, who come %d times a second whether or not others have been answered, are one process. Medians of %d rounds of %s, in turns.\n\n", p.rate, p.rounds, p.each)
	fmt.Fprint(out, "| | calls a second | p50 | p99 | allocations a call, all that is in the process | bytes a call |\n|---|---|---|---|---|---|\n")
	for i, r := range rows {
		rate := p.rate
		allocs, size := fmt.Sprintf("%.0f", median(r.allocs)), fmt.Sprintf("%.0f", median(r.bytes))
		if i == 2 {
			rate, allocs, size = p.hosted, "–", "–"
		}
		fmt.Fprintf(out, "| %s | %d | %.2f ms | %.2f ms | %s | %s |\n", r.name, rate, median(r.p50), median(r.p99), allocs, size)
	}
	bare, door := rows[0], rows[1]
	fmt.Fprintf(out, "\nOf it the door's own: p50 %.2f ms, %.0f allocations and %.0f bytes a call; p50 is %.1f times the proxy's, p99 %.1f times.\n",
		median(door.p50)-median(bare.p50), median(door.allocs)-median(bare.allocs), median(door.bytes)-median(bare.bytes),
		median(door.p50)/median(bare.p50), median(door.p99)/median(bare.p99))
}
