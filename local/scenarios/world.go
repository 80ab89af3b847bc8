package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

// world is a running local cloud under watch.
type world struct {
	*rig.Rig
	*rig.Watch

	door        *http.Client
	wipes       []time.Time // when the state store was emptied
	deadLetters int         // that the scenario leaves on purpose
}

// wipe empties the state store.
func (w *world) wipe(ctx context.Context) error {
	w.wipes = append(w.wipes, time.Now())
	if err := w.Store.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("wipe: %w", err)
	}
	return nil
}

// tenant is whose calls the scenarios' are, at the door and on queues.
const tenant = "default"

// Start starts a world until the trial ends. Its provider takes latency for each call, about.
func (t *trial) Start(ctx context.Context, latency time.Duration, change func(*config.Config)) (*world, error) {
	w, err := t.unwatched(ctx, latency, change)
	if err != nil {
		return nil, err
	}
	t.watch(w) //nolint:contextcheck // it watches until Close
	return w, nil
}

// watch watches a world from now on until the trial ends.
func (t *trial) watch(w *world) {
	w.Watch = rig.NewWatch(w.Rig)
	t.onClose(func(context.Context) error { return w.Watch.Close() })
}

// unwatched is Start without a watch, which asks the state store a few times a second. The scenario has it watched before it ends, for what
// is held of every world.
func (t *trial) unwatched(ctx context.Context, latency time.Duration, change func(*config.Config)) (*world, error) {
	o := rig.Options{Functions: t.functions, Engine: valkey.Real, Linked: true, Change: change}
	if t.real() {
		o.Env = []string{keyEnv + "=" + t.Backend.key}
		o.Change = func(c *config.Config) {
			if change != nil {
				change(c)
			}
			t.Backend.apply(c)
		}
	}
	r, err := rig.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	t.onClose(r.Close)
	w := &world{Rig: r, door: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}}
	t.onClose(func(context.Context) error { w.door.CloseIdleConnections(); return nil })
	t.worlds = append(t.worlds, w)
	return w, w.slow(latency, t.Seed)
}

// slow makes provider calls take about as long as mean, a fifth more or less, as real ones differ. 0 is no time.
func (w *world) slow(mean time.Duration, seed uint64) error {
	if mean == 0 {
		return nil
	}
	return w.Fake.SetLatency(server.Latency{Distribution: server.Lognormal, Mean: mean, Deviation: mean / 5, Seed: seed})
}

// lane changes how the workers of a lane run.
func lane(c *config.Config, l llmq.Lane, workers, batch int) {
	conf := c.Lanes[l]
	conf.MaxConcurrency, conf.BatchSize = workers, batch
	c.Lanes[l] = conf
}

// wholeShare opens all slots to all lanes.
func wholeShare(c *config.Config) {
	c.Limiter.BackgroundShare = config.Share{Of: 1, Given: true}
}

// capped bounds the calls of the chat model.
func capped(n int) func(*config.Config) {
	return func(c *config.Config) { c.Models[0].Targets[0].MaxConcurrency = n }
}

// Program is a Go program that calls models through this world's queue, until the trial ends.
func (t *trial) Program(ctx context.Context, w *world) (*client.Client, error) {
	return t.programOf(ctx, w.Environ())
}

func (t *trial) programOf(ctx context.Context, environ []string) (*client.Client, error) {
	p, err := wiring.New(ctx, environ, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	t.onClose(func(context.Context) error { return p.Close() }) //nolint:contextcheck // it has a bound of its own
	c, err := p.Client()
	if err != nil {
		return nil, err
	}
	t.onClose(func(context.Context) error { c.Close(); return nil }) //nolint:contextcheck // its goodbye has a bound of its own
	return c, nil
}

// environOf is what configures a function or a program of this world by a file of its own, until the trial ends.
func (t *trial) environOf(w *world, change func(*config.Config)) ([]string, error) {
	environ := w.Environ()
	const file = "LLMQ_CONFIG="
	at := slices.IndexFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, file) })
	cfg, err := config.Load(strings.TrimPrefix(environ[at], file), environ)
	if err != nil {
		return nil, err
	}
	change(cfg)
	text, err := cfg.Marshal()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "llmq-scenario-")
	if err != nil {
		return nil, err
	}
	t.onClose(func(context.Context) error { return os.RemoveAll(dir) })
	environ[at] = file + filepath.Join(dir, "llmq.yaml")
	return environ, os.WriteFile(filepath.Join(dir, "llmq.yaml"), text, 0o600)
}

// request is a chat call whose id is what it says.
func request(id string, lane llmq.Lane, within time.Duration) llmq.Request {
	return llmq.Request{
		ID: id, Tenant: tenant, Op: llmq.OpChat, Model: llmq.ModelRef{Alias: rig.ModelChat}, Lane: lane, Fallback: llmq.FallbackChain,
		Deadline: time.Now().Add(within), Body: rig.ChatBody(rig.ModelChat, id),
	}
}

// call is one over HTTPS.
type call struct {
	ID      string        // the Idempotency-Key, and what it says
	Lane    llmq.Lane     // "" is the route's own
	Within  time.Duration // its deadline; 0 is the lane's
	Path    string        // "" is a chat
	Body    []byte        // nil says the id
	Key     string        // the caller's; "" is that of tenant default
	Session string        // "" is none
}

// answer is what a caller got.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
	Code   llmq.Code     // of an error
	Err    error         // there was no answer
	Began  time.Time     // when it was sent
	Took   time.Duration // until all of the answer was there
}

var errNotAnswered = errors.New("not answered as it should be")

// ok reports whether the provider's answer to this very call came.
func (a answer) ok(id string) bool {
	return a.Err == nil && a.Status == http.StatusOK && bytes.Contains(a.Body, []byte(id))
}

// honest reports whether it is an error that says what it is: one of our codes, with its status, and whether to try again; and
// not one that means that llmq itself failed.
func (a answer) honest() bool {
	retry := a.Header.Get("X-Should-Retry")
	return a.Err == nil && a.Status >= 400 && a.Code != "" && a.Code != llmq.CodeInternal && a.Code.Info().Status == a.Status &&
		(retry == "true" || retry == "false")
}

// Ask makes a call at the door and waits for its end.
func (w *world) Ask(ctx context.Context, c call) answer {
	if c.Path == "" {
		c.Path = "/v1/chat/completions"
	}
	if c.Body == nil {
		c.Body = rig.ChatBody(rig.ModelChat, c.ID)
	}
	a := answer{Began: time.Now()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+c.Path, bytes.NewReader(c.Body))
	if err != nil {
		a.Err = err
		return a
	}
	req.Header.Set("Authorization", "Bearer "+cmp.Or(c.Key, w.Key))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", c.ID)
	if c.Lane != "" {
		req.Header.Set("X-LLMQ-Lane", string(c.Lane))
	}
	if c.Session != "" {
		req.Header.Set("X-LLMQ-Session", c.Session)
	}
	if c.Within > 0 {
		req.Header.Set("X-LLMQ-Timeout-Secs", strconv.Itoa(int(c.Within/time.Second)))
	}
	resp, err := w.door.Do(req)
	if err != nil {
		a.Err = err
		return a
	}
	defer resp.Body.Close() // it was read to its end
	a.Body, a.Err = io.ReadAll(resp.Body)
	a.Took, a.Status, a.Header = time.Since(a.Began), resp.StatusCode, resp.Header
	a.Code = llmq.Code(resp.Header.Get("X-LLMQ-Error-Code"))
	return a
}

// startOf is how long after the call's sending the provider first saw it.
func (w *world) startOf(id string, sent time.Time) (time.Duration, error) {
	calls := w.ByRequest()[id]
	if len(calls) == 0 {
		return 0, fmt.Errorf("the provider never saw %s", id)
	}
	return calls[0].At.Sub(sent), nil
}

// busyDoors counts the invocations of the door that run.
func (w *world) busyDoors() int {
	n := 0
	for _, i := range w.Lambda.Instances(cloud.FunctionEnqueue) {
		if i.State == lambda.StateBusy {
			n++
		}
	}
	return n
}
