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
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/bench/core"
	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/percentile"
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
	answer time.Duration // what the provider takes
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
	flags.DurationVar(&p.answer, "provider", 50*time.Millisecond, "what the provider takes for a call, 0 to 1s")
	flags.DurationVar(&p.each, "for", 10*time.Second, "how long a round lasts, 1s to 1m")
	flags.IntVar(&p.rounds, "rounds", 5, "rounds of each, in turns, 1 to 20; the table has medians")
	profile := flags.String("cpuprofile", "", "write where the time of the door's rounds goes to this file, for go tool pprof")
	report := flags.String("out", "", "write the table to this file too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if p.rate < 1 || p.rate > 10_000 || p.hosted < 1 || p.hosted > 1000 || p.rounds < 1 || p.rounds > 20 || p.each < time.Second || p.each > time.Minute || p.answer < 0 || p.answer > time.Second {
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
	if err := r.Fake.SetLatency(server.Latency{Mean: p.answer}); err != nil {
		return err
	}
	var profiled io.Writer
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close() // it is a profile: what was lost of it is seen
		profiled = f
	}
	rows, err := measure(ctx, r, p, progress, profiled)
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
	process       []float64 // processor time of the whole process, ms a call
	valkey        []float64 // and of Valkey
}

func measure(ctx context.Context, r *rig.Rig, p plan, progress, profiled io.Writer) ([]row, error) {
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
	doorURL, closeDoor, err := core.Serve(door)
	if err != nil {
		return nil, err
	}
	defer closeDoor()
	proxyURL, closeProxy, err := core.Serve(proxy)
	if err != nil {
		return nil, err
	}
	defer closeProxy()
	store := redis.NewClient(&redis.Options{Addr: r.Valkey.Addr(), Password: r.Valkey.Password(), PoolSize: 1})
	defer store.Close() // read from only
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
			from, err := processor(ctx, store)
			if err != nil {
				return nil, err
			}
			runtime.GC()
			runtime.ReadMemStats(&before)
			if profiled != nil && i == 1 && round == 0 {
				if err := pprof.StartCPUProfile(profiled); err != nil {
					return nil, err
				}
			}
			took, err := l.run(ctx, p.each)
			pprof.StopCPUProfile()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rows[i].name, err)
			}
			runtime.ReadMemStats(&after)
			until, err := processor(ctx, store)
			if err != nil {
				return nil, err
			}
			n := float64(len(took))
			rows[i].p50 = append(rows[i].p50, rank(took, 50))
			rows[i].p99 = append(rows[i].p99, rank(took, 99))
			rows[i].allocs = append(rows[i].allocs, float64(after.Mallocs-before.Mallocs)/n)
			rows[i].bytes = append(rows[i].bytes, float64(after.TotalAlloc-before.TotalAlloc)/n)
			rows[i].process = append(rows[i].process, (until.process-from.process).Seconds()*1000/n)
			rows[i].valkey = append(rows[i].valkey, (until.valkey-from.valkey).Seconds()*1000/n)
			fmt.Fprintf(progress, "· round %d of %d, %s: p50 %.2f ms, p99 %.2f ms, processor %.2f + %.2f ms a call\n", round+1, p.rounds, rows[i].name, rank(took, 50), rank(took, 99),
				rows[i].process[round], rows[i].valkey[round])
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

// rank is a percentile in milliseconds, of what can't be none.
func rank(all []time.Duration, p int) float64 {
	v, _ := percentile.Of(all, p)
	return float64(v.Microseconds()) / 1000
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

func write(out io.Writer, p plan, rows []row, now time.Time) {
	fmt.Fprintf(out, "# What the door adds to a call\n\nMade by `go run ./local/bench/door -rate %d -hosted %d -provider %s -for %s -rounds %d -out results/door.md` on %d processors (%s/%s), %s.\n\n",
		p.rate, p.hosted, p.answer, p.each, p.rounds, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, now.UTC().Format(time.DateOnly))
	fmt.Fprintf(out, "The door runs the calls itself (the queue refuses), under submission record, claim and slot in a real Valkey. Its handler, the proxy, the provider, which answers\n"+
		"after %s, and the callers, who come %d times a second whether or not others have been answered, are one process, and Valkey another on the same processors.\n"+
		"Medians of %d rounds of %s, in turns. Processor time and allocations are of all that is in the process, callers and provider too.\n\n", p.answer, p.rate, p.rounds, p.each)
	fmt.Fprint(out, "| | calls a second | p50 | p99 | processor a call, process + Valkey | allocations a call | bytes a call |\n|---|---|---|---|---|---|---|\n")
	for i, r := range rows {
		rate := p.rate
		used := fmt.Sprintf("%.2f + %.2f ms", median(r.process), median(r.valkey))
		allocs, size := fmt.Sprintf("%.0f", median(r.allocs)), fmt.Sprintf("%.0f", median(r.bytes))
		if i == 2 { // its door is a process of its own
			rate, used, allocs, size = p.hosted, "–", "–", "–"
		}
		fmt.Fprintf(out, "| %s | %d | %.2f ms | %.2f ms | %s | %s | %s |\n", r.name, rate, median(r.p50), median(r.p99), used, allocs, size)
	}
	bare, door := rows[0], rows[1]
	fmt.Fprintf(out, "\nBeyond the proxy the door takes: p50 %.2f ms, p99 %.2f ms, %.2f ms of processor in its process and %.2f ms in Valkey, %.0f allocations and %.0f bytes a call.\n",
		median(door.p50)-median(bare.p50), median(door.p99)-median(bare.p99), median(door.process)-median(bare.process), median(door.valkey)-median(bare.valkey),
		median(door.allocs)-median(bare.allocs), median(door.bytes)-median(bare.bytes))
}
