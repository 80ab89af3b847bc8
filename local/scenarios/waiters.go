package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
)

// Many who wait at once: each gets its own answer, and nobody asks the state store again and again.
func waiters() []scenario {
	return []scenario{{
		ID: "S31",
		What: "1,000 calls of one Go program (short: 300) and 100 doors wait at once, the doors' callers with 20 keys of 20 tenants, whose ids are the same five: " +
			"while all wait a waiter looks for its result three times in 30 s at most, each gets its own answer, and who repeats a call, while it runs or after its end, gets the same one and pays nothing",
		Run: s31,
	}}
}

const (
	keysOfS31  = 20
	callsOfKey = 5               // the last call of every second key is a repeat of its first, so that 100 doors wait
	waitOfS31  = 5 * time.Minute // a caller's
	quietTime  = 30 * time.Second
	// readsInQuiet is how often a waiter looks in that time, should its wake have been lost: 5, 15 and 35 s after its begin.
	readsInQuiet = 3
)

func s31(ctx context.Context, t *trial) error {
	w, err := t.Start(ctx, 0, nil)
	if err != nil {
		return err
	}
	program, err := t.Program(ctx, w)
	if err != nil {
		return err
	}
	keys := make([]string, keysOfS31)
	for i := range keys {
		if keys[i], err = w.NewKey(ctx, fmt.Sprintf("tenant-%d", i)); err != nil {
			return err
		}
	}
	n := t.Size(1000, 300)
	if err := w.Fake.Program(server.Match{}, server.Reply{Hang: true, Times: 3 * n}); err != nil {
		return err
	}
	ids := rig.Numbered("program", n)
	var wrong mistakes
	var callers sync.WaitGroup
	for _, id := range ids {
		callers.Go(func() { wrong.add(asProgram(ctx, program, id)) })
	}
	answers := map[int][]byte{} // by the caller's place
	var mu sync.Mutex           // guards answers
	doors := doorCalls(keys)
	step := make(chan struct{}, 5) // so many doors start at once: on AWS each starts on a processor of its own
	for i, c := range doors {
		callers.Go(func() {
			step <- struct{}{}
			began := sync.OnceFunc(func() { <-step })
			go func() { _ = t.Pause(ctx, 300*time.Millisecond); began() }()
			a := w.Ask(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			answers[i] = a.Body
			wrong.add(own(a, c))
		})
	}
	waiting, cancel := context.WithTimeout(ctx, waitOfS31/2)
	defer cancel()
	busy, queued := 0, 0
	if err := rig.Poll(waiting, "all to wait", func() bool {
		busy, queued = w.busyDoors(), w.queuedOrRunning(ctx)
		return busy == len(doors) && queued >= n+len(doors)*9/10
	}); err != nil {
		return fmt.Errorf("%d doors and %d messages: %w", busy, queued, errors.Join(append(wrong.first(3), err)...))
	}
	reads, err := w.reads(ctx)
	if err != nil {
		return err
	}
	if err := t.Pause(ctx, quietTime); err != nil {
		return err
	}
	again, err := w.reads(ctx)
	if err != nil {
		return err
	}
	each := float64(again-reads) / float64(n+len(doors))
	t.Note("waiters", n+len(doors))
	t.Note("reads_of_the_store_a_waiter_in_30_s", round(each))
	t.Note("reads_of_the_store_a_second", round(float64(again-reads)/quietTime.Seconds()))
	t.Hold(each <= readsInQuiet, "%.1f reads a waiter in %s, want at most %d", each, quietTime, readsInQuiet)
	released := time.Now()
	stop := w.releasing(ctx)
	callers.Wait()
	stop()
	t.Note("all_answered_s", round(time.Since(released).Seconds()))
	for i, c := range doors { // after the end
		a := w.Ask(ctx, c)
		wrong.add(own(a, c))
		if !bytes.Equal(a.Body, answers[i]) {
			wrong.add(fmt.Errorf("%s of another time got another answer", c.ID))
		}
	}
	t.Note("own_answer", n+2*len(doors)-wrong.count())
	for _, what := range wrong.first(3) {
		t.Hold(false, "%s", what)
	}
	a, err := t.Account(ctx, w, ids)
	t.onceEach(a, ids)
	paidDoors := 0
	for text, calls := range w.ByRequest() {
		if strings.HasPrefix(text, "tenant-") {
			paidDoors += len(calls)
		}
	}
	t.Note("paid_calls_of_keys", paidDoors)
	t.Hold(paidDoors == len(doors)-keysOfS31/2, "%d calls were paid for, of %d that differ", paidDoors, len(doors)-keysOfS31/2)
	return err
}

// doorCalls are those of all keys: five ids, the same under each, and texts that tell whose they are.
func doorCalls(keys []string) []call {
	var all []call
	for i, key := range keys {
		for j := range callsOfKey {
			if j == callsOfKey-1 && i%2 == 0 {
				j = 0
			}
			text := fmt.Sprintf("tenant-%d/%d", i, j)
			all = append(all, call{ID: strconv.Itoa(j), Lane: llmq.LaneBG, Within: waitOfS31, Key: key, Body: rig.ChatBody(rig.ModelChat, text)})
		}
	}
	return all
}

// own says what is wrong with an answer to a call: it repeats the call's text, as every answer of the provider does.
func own(a answer, c call) error {
	var asked struct{ Messages []struct{ Content string } }
	if err := json.Unmarshal(c.Body, &asked); err != nil {
		return err
	}
	if text := asked.Messages[0].Content; a.Err != nil || a.Status != http.StatusOK || !saysAll(a.Body, text) {
		return fmt.Errorf("%s got %d %.200s: %w", text, a.Status, a.Body, errNotAnswered)
	}
	return nil
}

// saysAll reports whether a body holds a text, and not one that merely begins with it.
func saysAll(body []byte, text string) bool {
	return regexp.MustCompile(`(^|[^0-9a-z-])` + regexp.QuoteMeta(text) + `($|[^0-9/])`).Match(body)
}

// asProgram has a Go program call and wait, and says what is wrong with its answer.
func asProgram(ctx context.Context, p *client.Client, id string) error {
	reply, err := p.Do(ctx, request(id, llmq.LaneBG, waitOfS31))
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if !saysAll(reply.Body, id) {
		return fmt.Errorf("%s got %.200s: %w", id, reply.Body, errNotAnswered)
	}
	return nil
}

// mistakes gathers what went wrong, from any goroutine.
type mistakes struct {
	mu  sync.Mutex
	all []error
}

func (m *mistakes) add(err error) {
	if err == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, err)
}

func (m *mistakes) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

func (m *mistakes) first(n int) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[:min(n, len(m.all))]
}

// NewKey makes a key of a tenant that may call every model in every lane.
func (w *world) NewKey(ctx context.Context, tenant string) (string, error) {
	body, err := json.Marshal(map[string]any{
		"tenant": tenant, "scopes": []string{"call"}, "models": []string{rig.ModelChat}, "lanes": llmq.Lanes(),
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.AdminURL+"/keys/create", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+w.AdminKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.door.Do(req)
	if err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	defer resp.Body.Close() // it is read to its end
	var made struct{ Key string }
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || made.Key == "" {
		return "", fmt.Errorf("make a key: status %d: %w", resp.StatusCode, err)
	}
	return made.Key, nil
}

// reads counts the reads of single keys that the state store has served, as waiters read their results. Admissions of those who wait
// for a slot read many at once, and are not counted.
func (w *world) reads(ctx context.Context) (int, error) {
	info, err := w.Store.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("statistics of the store: %w", err)
	}
	total := 0
	for _, m := range regexp.MustCompile(`cmdstat_get:calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// releasing lets go whatever hangs at the provider, over and over, until it is stopped.
func (w *world) releasing(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			w.Fake.Release(server.Match{})
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
