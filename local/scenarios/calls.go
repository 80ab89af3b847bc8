package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// What becomes of single calls.
func calls() []scenario {
	return []scenario{
		{ID: "S01", What: "one call per operation and lane: the provider's exact bytes, and the full meta in the headers", Run: s01, Safety: safe},
		{ID: "S03", What: "200 calls at once, of three operations and three lanes, a quarter of them over HTTPS and the others from a Go program: each caller gets its own answer", Run: s03, Safety: lowVolume},
		{
			ID: "S04", Run: s04,
			What: "LangChain and LangGraph of npm (in full form of PyPI too, where they can be installed), with base URL and key by environment and nothing else changed: " +
				"invoke, batch, lanes, bound tools, structured output, a tool loop, queued embeddings",
		},
		{ID: "S16", What: "a queued call is cancelled: its caller is told, and the provider never sees it", Run: s16},
		{ID: "S19", What: "a call's deadline passes while it is queued: it is answered as timeout or expired, and the provider never sees it", Run: s19},
		{ID: "S29", What: "a call repeated under its key while it runs and after its end: one provider call, the same answer for all", Run: s29, Safety: safe},
		{ID: "S56", What: "200 running calls are cancelled, one after the other: the attempt is stopped and the slot is free, p99 under 20 ms", Run: s56, Quiet: true},
	}
}

// operation is one thing that a model may be asked for over HTTPS.
type operation struct {
	op    llmq.Op
	model string
	path  string
	body  func(text string) []byte
	reply string // the member that a reply to it has at least
}

func operations() []operation {
	return []operation{
		{llmq.OpChat, rig.ModelChat, "/v1/chat/completions", func(text string) []byte { return rig.ChatBody(rig.ModelChat, text) }, `"choices":[{}]`},
		{llmq.OpEmbeddings, rig.ModelEmbed, "/v1/embeddings", func(text string) []byte {
			return fmt.Appendf(nil, `{"model":%q,"input":%q}`, rig.ModelEmbed, text)
		}, `"data":[{}]`},
		{llmq.OpConverse, rig.ModelConverse, "/model/" + rig.ModelConverse + "/converse", func(text string) []byte {
			return fmt.Appendf(nil, `{"messages":[{"role":"user","content":[{"text":%q}]}]}`, text)
		}, `"output":{}`},
	}
}

// isReply reports whether a body has the member that a reply to the operation has.
func (o operation) isReply(body []byte) bool {
	var members map[string]json.RawMessage
	name, _, _ := strings.Cut(strings.TrimPrefix(o.reply, `"`), `"`)
	return json.Unmarshal(body, &members) == nil && len(members[name]) > 0
}

func s01(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 20*time.Millisecond, nil)
	if err != nil {
		return err
	}
	var ids []string
	for _, o := range t.operations() {
		for _, l := range llmq.Lanes() {
			id := string(o.op) + "-" + string(l)
			ids = append(ids, id)
			// White space and an escape that any decoding and encoding again would change.
			want := []byte(`{ "id":"` + id + `", "said":"caf\u00e9 ☕", "n":1.50, ` + o.reply + ` }`)
			if err := w.Fake.Program(server.Match{}, server.Reply{Body: want}); err != nil {
				return err
			}
			a := w.Ask(ctx, call{ID: id, Lane: l, Path: o.path, Body: o.body(id)})
			good := a.Err == nil && a.Status == 200 && (bytes.Equal(a.Body, want) || t.real() && o.isReply(a.Body))
			t.Hold(good, "%s got %d %s %v, want %s", id, a.Status, a.Body, a.Err, want)
			for name, value := range map[string]string{
				"X-LLMQ-Model": o.model, "X-LLMQ-Lane": string(l), "X-LLMQ-Target": "main", "X-LLMQ-Attempts": "1", "X-LLMQ-Fallback-Used": "false", "X-LLMQ-Request-Id": id,
			} {
				t.Hold(a.Header.Get(name) == value, "%s: %s is %q, want %q", id, name, a.Header.Get(name), value)
			}
			for _, name := range []string{"X-LLMQ-Provider", "X-LLMQ-Model-Id", "X-LLMQ-Worker", "X-LLMQ-Queue-Wait-Ms", "X-LLMQ-Provider-Ms"} {
				t.Hold(a.Header.Get(name) != "", "%s: no %s", id, name)
			}
		}
	}
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	return err
}

func s03(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 200*time.Millisecond, nil)
	if err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	n := 200
	if t.real() {
		n = 20
	} else {
		if err := w.warmDoors(ctx, n/4); err != nil {
			return err
		}
		if _, err := program.Do(ctx, request("warm-program", llmq.LaneRT, time.Minute)); err != nil {
			return err
		}
	}
	ids := rig.Numbered("mixed", n)
	wrong := make([]string, n)
	chance := t.Chance()
	began := time.Now()
	var callers sync.WaitGroup
	for i, id := range ids {
		o, l := t.operations()[chance.IntN(len(t.operations()))], llmq.Lanes()[chance.IntN(3)]
		// An embedding does not say what was asked; its usage does, for each asks with another length.
		text := id + " " + strings.Repeat("x", 8*i)
		body := o.body(text)
		callers.Go(func() {
			var reply []byte
			if i%4 == 0 {
				a := w.Ask(ctx, call{ID: id, Lane: l, Path: o.path, Body: body, Within: 2 * time.Minute})
				if a.Err != nil || a.Status != 200 {
					wrong[i] = fmt.Sprintf("%d %.200s %v", a.Status, a.Body, a.Err)
					return
				}
				reply = a.Body
			} else {
				r := request(id, l, 2*time.Minute)
				r.Op, r.Model, r.Body = o.op, llmq.ModelRef{Alias: o.model}, body
				got, err := program.Do(ctx, r)
				if err != nil {
					wrong[i] = err.Error()
					return
				}
				reply = got.Body
			}
			own := bytes.Contains(reply, []byte(id+" "))
			switch {
			case t.real(): // what a model says is not known; that it is the call's own is the stored result's to tell
				own = o.isReply(reply)
			case o.op == llmq.OpEmbeddings:
				var got struct {
					Usage struct {
						Prompt int `json:"prompt_tokens"`
					}
				}
				own = json.Unmarshal(reply, &got) == nil && got.Usage.Prompt == server.Tokens(text)
			}
			if !own {
				wrong[i] = fmt.Sprintf("another's answer: %.200s", reply)
			}
		})
	}
	callers.Wait()
	t.Note("all_answered_s", round(time.Since(began).Seconds()))
	bad := 0
	for i, what := range wrong {
		if what != "" {
			if bad++; bad <= 3 {
				t.Hold(false, "%s got %s", ids[i], what)
			}
		}
	}
	t.Note("own_answer", n-bad)
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	return err
}

// warmDoors makes n doors be there, a few at a time: on AWS each starts on a processor of its own, and here all share few.
func (w *world) warmDoors(ctx context.Context, n int) error {
	const step = 5
	if err := w.Fake.Program(server.Match{}, server.Reply{Hang: true, Times: n}); err != nil {
		return err
	}
	errs := make([]error, n)
	var failed atomic.Bool // one that has failed keeps no door busy
	var callers sync.WaitGroup
	for i, id := range rig.Numbered("warm", n) {
		callers.Go(func() {
			if a := w.Ask(ctx, call{ID: id, Lane: llmq.LaneBG}); !a.ok(id) {
				failed.Store(true)
				errs[i] = fmt.Errorf("%s: %d %.200s: %w", id, a.Status, a.Body, errors.Join(a.Err, errNotAnswered))
			}
		})
		if i%step == step-1 {
			if err := rig.Poll(ctx, "doors to start", func() bool { return failed.Load() || w.busyDoors() == i+1 && w.queuedOrRunning(ctx) >= i+1 }); err != nil {
				return err
			}
		}
	}
	stop := w.releasing(ctx) // over and over: those that wait for a slot hang only once they have one
	callers.Wait()
	stop()
	return errors.Join(errs...)
}

// queuedOrRunning counts messages of all queues; 0 where they can't be counted.
func (w *world) queuedOrRunning(ctx context.Context) int {
	waiting, _, err := w.Depth(ctx)
	if err != nil {
		return 0
	}
	return waiting
}

// occupied starts a world whose one slot is held by a call that hangs.
func (t *trial) occupied(ctx context.Context) (w *world, release func() error, err error) {
	if w, err = t.Start(ctx, 0, capped(1)); err != nil {
		return nil, nil, err
	}
	if err := w.Fake.Program(server.Match{}, server.Reply{Hang: true}); err != nil {
		return nil, nil, err
	}
	if err := w.Send(ctx, rig.ModelChat, llmq.LaneBG, deadline, []string{"holder"}); err != nil {
		return nil, nil, err
	}
	return w, func() error {
		w.Fake.Release(server.Match{})
		return w.AwaitDrained(ctx)
	}, w.Fake.AwaitInFlight(ctx, "", 1)
}

func s16(ctx context.Context, t *trial) error {
	w, release, err := t.occupied(ctx)
	if err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	type end struct {
		err error
		at  time.Time
	}
	ended := make(chan end, 1)
	go func() {
		_, err := program.Do(ctx, request("queued", llmq.LaneBG, time.Minute))
		ended <- end{err, time.Now()}
	}()
	bg := w.Config.Queues.Names().Model(rig.ModelChat, llmq.LaneBG)
	if err := rig.Poll(ctx, "the call to be queued", func() bool {
		d, err := w.QueueDepth(ctx, bg)
		return err == nil && d.Visible+d.InFlight+d.Delayed == 2
	}); err != nil {
		return err
	}
	began := time.Now()
	if _, err := program.Cancel(ctx, tenant, "queued"); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	e := <-ended
	t.Note("caller_told_ms", ms(e.at.Sub(began)))
	t.Hold(errors.Is(e.err, llmq.CodeCancelled), "the caller got %v, want cancelled", e.err)
	if err := release(); err != nil {
		return err
	}
	t.neverSeen(ctx, w, "queued")
	_, err = t.Account(ctx, w, []string{"holder"})
	return err
}

// neverSeen holds that the provider was not asked for a request.
func (t *trial) neverSeen(ctx context.Context, w *world, id string) {
	w.Look(ctx)
	n := len(w.ByRequest()[id])
	t.Note("provider_calls_of_it", n)
	t.Hold(n == 0, "the provider saw %s %d times", id, n)
}

func s19(ctx context.Context, t *trial) error {
	w, release, err := t.occupied(ctx)
	if err != nil {
		return err
	}
	const within = 3 * time.Second
	a := w.Ask(ctx, call{ID: "late", Lane: llmq.LaneBG, Within: within})
	t.Note("answered_after_s", round(a.Took.Seconds()))
	t.Note("code", string(a.Code))
	t.Hold(a.Code == llmq.CodeExpired || a.Code == llmq.CodeTimeout, "the caller got %d %s %v, want expired or timeout", a.Status, a.Body, a.Err)
	t.Hold(a.Took < within+4*time.Second, "the caller was answered after %s, its deadline was %s", a.Took, within)
	if err := release(); err != nil {
		return err
	}
	t.neverSeen(ctx, w, "late")
	_, err = t.Account(ctx, w, []string{"holder"})
	return err
}

func s29(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, nil)
	if err != nil {
		return err
	}
	o := t.operations()[0]
	same := call{ID: "same", Lane: llmq.LaneRT, Path: o.path, Body: o.body("same")}
	if !t.real() {
		if err := w.Fake.Program(server.Match{}, server.Reply{Hang: true}); err != nil {
			return err
		}
	}
	const callers = 10
	answers := make([]answer, callers, callers+1)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() { answers[i] = w.Ask(ctx, same) })
	}
	if !t.real() {
		if err := w.Fake.AwaitInFlight(ctx, "", 1); err != nil {
			return err
		}
		// All have asked when so many doors are at work; another call would show at once.
		if err := rig.Poll(ctx, "all callers to wait", func() bool { return w.busyDoors() == callers }); err != nil {
			return err
		}
		w.Fake.Release(server.Match{})
	}
	group.Wait()
	answers = append(answers, w.Ask(ctx, same))
	alike := 0
	for _, a := range answers {
		// A model says the same thing twice under another id of its own: equal bytes are one call.
		if (a.ok("same") || t.real() && a.Status == 200 && o.isReply(a.Body)) && bytes.Equal(a.Body, answers[0].Body) {
			alike++
		}
	}
	t.Note("callers", len(answers))
	t.Note("same_answer", alike)
	t.Hold(alike == len(answers), "%d of %d callers got the one answer", alike, len(answers))
	other := w.Ask(ctx, call{ID: "same", Lane: llmq.LaneRT, Path: o.path, Body: o.body("another")})
	t.Note("another_body_under_the_key", string(other.Code))
	t.Hold(other.Code == llmq.CodeIdempotencyMismatch, "another body under the key got %d %s", other.Status, other.Code)
	a, err := t.Account(ctx, w, []string{"same"})
	t.onceEach(a, []string{"same"})
	return err
}

func s56(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, nil)
	if err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	const n = 200
	var stopped, freed []time.Duration
	for i := range n {
		id := "cancel-" + strconv.Itoa(i)
		if err := w.Fake.Program(server.Match{}, server.Reply{Hang: true}); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() {
			_, err := program.Do(ctx, request(id, llmq.LaneRT, time.Minute))
			ended <- err
		}()
		if err := w.Fake.AwaitInFlight(ctx, "", 1); err != nil {
			return err
		}
		began := time.Now()
		if _, err := program.Cancel(ctx, tenant, id); err != nil {
			return fmt.Errorf("cancel: %w", err)
		}
		if err := w.Fake.AwaitInFlight(ctx, "", 0); err != nil {
			return err
		}
		stopped = append(stopped, time.Since(began))
		for taken := 1; taken > 0; {
			if taken, err = w.Slots(ctx); err != nil {
				return err
			}
		}
		freed = append(freed, time.Since(began))
		if err := <-ended; !errors.Is(err, llmq.CodeCancelled) {
			t.Hold(false, "%s ended with %v, want cancelled", id, err)
		}
	}
	t.Note("cancelled", n)
	t.Note("attempt_stopped_p50_ms", ms(rank(stopped, 50)))
	t.Note("attempt_stopped_p99_ms", ms(rank(stopped, 99)))
	t.Note("slot_free_p50_ms", ms(rank(freed, 50)))
	t.Note("slot_free_p99_ms", ms(rank(freed, 99)))
	t.Hold(rank(freed, 99) < 20*time.Millisecond, "slot free after %s at p99, want under 20 ms", rank(freed, 99))
	return nil
}
