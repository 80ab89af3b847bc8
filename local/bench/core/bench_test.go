package core

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/bench/turns"
	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/worker"
)

// make bench-check compares what these report.

const (
	queued = "queued" // a model whose calls go by the queue
	direct = "direct" // one whose calls run where their callers wait
	slots  = 100
)

// instant is a provider that answers at once.
type instant struct{}

func (instant) Call(context.Context, provider.Request) (*provider.Response, error) {
	return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(`{"id":"x","choices":[]}`)}, nil
}

func start(b *testing.B, o Options) *Core {
	b.Helper()
	c, err := Start(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	return c
}

// BenchmarkWorker is a call in the worker: decoded, claimed, admitted, answered at once by its provider, stored and settled; beside
// two bare scripts, which are the round trips that it can't do without.
func BenchmarkWorker(b *testing.B) {
	c := start(b, Options{Own: instant{}, Models: []config.Model{Model(queued, slots)}, NoQueue: true})
	bare := redis.NewScript("#!lua\nreturn {1}\n")
	if err := bare.Load(b.Context(), c.Store).Err(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		got := turns.Compare(b, 200, func(i int) {
			m, err := c.Message(queued, llmq.LaneRT, strconv.Itoa(i))
			if err != nil {
				b.Fatal(err)
			}
			if out := c.Worker.Handle(b.Context(), []queue.Message{m}); out[0].Action != worker.Ack {
				b.Fatalf("outcome = %+v", out)
			}
		}, func(int) {
			for range 2 {
				if err := bare.EvalSha(b.Context(), c.Store, []string{"llmq:bench"}).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.ReportMetric(got.Time, "x-two-bare-scripts")
		b.ReportMetric(got.Allocs, "allocs/call")
	}
}

// BenchmarkQueue works a queue off, in batches of ten, one after the other; beside a bare loop that receives and deletes as many. What
// the worker does between is llmq's whole work for a call.
func BenchmarkQueue(b *testing.B) {
	c := start(b, Options{Own: instant{}, Models: []config.Model{Model(queued, slots)}})
	const batch, batches = most, 20
	fill := func(l llmq.Lane, round int) {
		if err := c.Send(b.Context(), queued, l, rig.Numbered(fmt.Sprintf("%s-%d", l, round), (turns.Rounds+1)*batches*batch)); err != nil {
			b.Fatal(err)
		}
	}
	// rt is worked off by the worker, bg by the bare loop.
	step := func(l llmq.Lane, work func([]queue.Message)) func(int) {
		return func(int) {
			messages, err := c.Receive(b.Context(), queued, l)
			if err != nil || len(messages) != batch {
				b.Fatalf("%d messages, %v", len(messages), err)
			}
			work(messages)
			if err := c.Delete(b.Context(), queued, l, messages); err != nil {
				b.Fatal(err)
			}
		}
	}
	ours := step(llmq.LaneRT, func(messages []queue.Message) {
		for _, out := range c.Worker.Handle(b.Context(), messages) {
			if out.Action != worker.Ack {
				b.Fatalf("outcome = %+v", out)
			}
		}
	})
	bare := step(llmq.LaneBG, func([]queue.Message) {})
	for round := 0; b.Loop(); round++ {
		fill(llmq.LaneRT, round)
		fill(llmq.LaneBG, round)
		got := turns.Compare(b, batches, ours, bare)
		b.ReportMetric(got.Time, "x-bare-sqs-loop")
	}
}

// behind is a provider on a socket, and a reverse proxy before it.
type behind struct {
	fake  *server.Server
	url   string // the provider's
	proxy string
}

const fakeKey = "fake"

func provide(b *testing.B) behind {
	b.Helper()
	fake, err := server.New(server.Options{APIKeys: []string{fakeKey}})
	if err != nil {
		b.Fatal(err)
	}
	address, stop, err := Serve(fake)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { fake.Close(); stop() })
	target, err := url.Parse(address)
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: slots}
	proxy, stopProxy, err := Serve(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(target)
			pr.Out.Header.Set("Authorization", "Bearer "+fakeKey)
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stopProxy(); transport.CloseIdleConnections() })
	return behind{fake, address, proxy}
}

// withDoor is a core whose provider is on a socket, with a loop that works its queue off.
func withDoor(b *testing.B) (c *Core, p behind, door, key string) {
	b.Helper()
	p = provide(b)
	byQueue, atOnce := Model(queued, slots), Model(direct, slots)
	byQueue.Calls.Routing, atOnce.Calls.Routing = config.RoutingQueue, config.RoutingDirect
	c = start(b, Options{URL: p.url, Key: fakeKey, Models: []config.Model{byQueue, atOnce}})
	door, key, err := c.Door(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		if err := c.Work(ctx, queued, llmq.LaneRT); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() { cancel(); loop.Wait() })
	return c, p, door, key
}

// ask makes a chat call and reads its answer to the end; first is told when the first line comes that says something, which the fake
// provider begins by its model's name in brackets.
func ask(b *testing.B, c *http.Client, base, key, model string, stream bool, first func()) {
	b.Helper()
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":"hello"}]}`, model, stream)
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close() // it is read to its end
	seen := false
	lines := bufio.NewReader(resp.Body)
	for err == nil {
		var line string
		line, err = lines.ReadString('\n')
		if !seen && strings.Contains(line, `"content":"[`) {
			seen = true
			if first != nil {
				first()
			}
		}
	}
	if !errors.Is(err, io.EOF) || resp.StatusCode != http.StatusOK || !seen {
		b.Fatalf("%s: %s, answered %t, %v", base, resp.Status, seen, err)
	}
}

func client(b *testing.B) *http.Client {
	b.Helper()
	t := &http.Transport{}
	b.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// BenchmarkDoor is a call that the door runs itself, over HTTP, beside a bare reverse proxy before the same provider.
func BenchmarkDoor(b *testing.B) {
	_, p, door, key := withDoor(b)
	h := client(b)
	for b.Loop() {
		got := turns.Compare(b, 200,
			func(int) { ask(b, h, door, key, direct, false, nil) },
			func(int) { ask(b, h, p.proxy, key, direct, false, nil) })
		b.ReportMetric(got.Time, "x-reverse-proxy")
	}
}

// BenchmarkStream is the time until the first word of a stream that comes through the queue, beside a bare reverse proxy.
func BenchmarkStream(b *testing.B) {
	_, p, door, key := withDoor(b)
	h := client(b)
	word := func(base, model string) float64 {
		began, took := time.Now(), time.Duration(0)
		ask(b, h, base, key, model, true, func() { took = time.Since(began) })
		return took.Seconds()
	}
	for b.Loop() {
		var ratios []float64
		for range turns.Rounds {
			var ours, bare []float64
			for range 30 {
				bare, ours = append(bare, word(p.proxy, queued)), append(ours, word(door, queued))
			}
			ratios = append(ratios, turns.Median(ours)/turns.Median(bare))
		}
		b.ReportMetric(turns.Median(ratios), "x-reverse-proxy")
	}
}

// BenchmarkCall counts what one call through the queue asks of Valkey and of SQS.
func BenchmarkCall(b *testing.B) {
	c, _, door, key := withDoor(b)
	h := client(b)
	for b.Loop() {
		const calls = 100
		for range 10 {
			ask(b, h, door, key, queued, false, nil)
		}
		before, sent := commands(b, c), c.Server.Stats().Billed
		for range calls {
			ask(b, h, door, key, queued, false, nil)
		}
		after := commands(b, c)
		// What comes now and then, as a renewal does, is no part of a call.
		for _, name := range []string{"evalsha", "eval", "get", "mget", "set", "publish", "subscribe"} {
			if n := (after[name] - before[name] + calls/2) / calls; n > 0 {
				b.ReportMetric(float64(n), name+"/call")
			}
		}
		for op, n := range c.Server.Stats().Billed {
			if n := (n - sent[op] + calls/2) / calls; n > 0 {
				b.ReportMetric(float64(n), op+"/call")
			}
		}
	}
}

// commands are Valkey's own counts.
func commands(b *testing.B, c *Core) map[string]int64 {
	b.Helper()
	text, err := c.Store.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	counts := map[string]int64{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		value, _, _ = strings.Cut(value, ",")
		if counts[name], err = strconv.ParseInt(value, 10, 64); err != nil {
			b.Fatalf("%s: %v", line, err)
		}
	}
	return counts
}

// BenchmarkColdStart is the time from an invocation that finds no process until it is answered, an event without messages, beside a
// function that does nothing; and what the functions weigh, for this machine's processor.
func BenchmarkColdStart(b *testing.B) {
	c, _, _, _ := withDoor(b) // for its configuration
	dir := b.TempDir()
	functions, err := cloud.Build(b.Context(), dir, map[string]string{"empty": "github.com/llm-queue/llmq/local/bench/core/empty"})
	if err != nil {
		b.Fatal(err)
	}
	weigh := func(path, unit string) {
		at, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(math.Round(float64(at.Size())/(1<<20)*100)/100, unit)
	}
	opts := lambda.DefaultOptions()
	opts.ScaleUp = 0 // more cold starts than AWS would make
	host, err := lambda.New(opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { host.Close(context.Background()) })
	for name, path := range map[string]string{"worker": functions.Worker, "empty": functions.Jobs["empty"]} {
		if err := host.Create(lambda.FunctionConfig{
			Name: name, Bootstrap: path, Timeout: time.Minute, MemoryMB: 256, Concurrency: 1,
			Env: append([]string{"AWS_ACCESS_KEY_ID=" + sender, "AWS_SECRET_ACCESS_KEY=local"}, c.Env...),
		}); err != nil {
			b.Fatal(err)
		}
	}
	cold := func(name string) func(int) {
		return func(int) {
			if err := host.Renew(name); err != nil {
				b.Fatal(err)
			}
			got, err := host.Invoke(b.Context(), name, []byte(`{"Records":[]}`), lambda.InvokeOptions{})
			if err != nil || got.FunctionError != "" {
				b.Fatalf("%s: %s %v", name, got.Payload, err)
			}
		}
	}
	for b.Loop() {
		got := turns.Compare(b, 3, cold("worker"), cold("empty"))
		b.ReportMetric(got.Time, "x-empty-function")
		weigh(functions.Worker, "worker-MiB")
		weigh(functions.Enqueue, "door-MiB")
	}
}
