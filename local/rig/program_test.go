package rig_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/valkey"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

const (
	// asProgram makes this test's binary a Go program that calls models, in place of a test.
	asProgram       = "RIG_TEST_PROGRAM"
	programs        = 3
	programEvery    = time.Second // a call begins: more wait, when they may run, than a program's part
	programCap      = 7           // 2 each, and one that nobody has
	programTakes    = 400 * time.Millisecond
	programsKnown   = 50 * time.Second // until all of them know that they all live
	programsOutage  = 70 * time.Second // the last 15 of it they run calls
	programsRecover = 60 * time.Second
	// programTime is a call's: one whose message was on its way when the store was lost waits for the outage, and for 15 s in which nothing starts.
	programTime = programsOutage + 15*time.Second + 20*time.Second
)

// programMain is a Go program that begins a call each second, until its input ends. It prints a line of each: how it ran.
func programMain(in io.Reader, out io.Writer) error {
	p, err := wiring.Open(context.Background(), os.Environ(), "default", slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	quit := make(chan struct{})
	go func() {
		defer close(quit)
		_, _ = io.Copy(io.Discard, in)
	}()
	var calls sync.WaitGroup
	var printing sync.Mutex
	next := time.NewTicker(programEvery)
	defer next.Stop()
	for running := true; running; { // what was sent before a loss waits for the store, so there must be calls that begin after it
		calls.Go(func() {
			said := "direct"
			reply, err := p.Chat(context.Background(), rig.ChatBody(rig.ModelChat, "hello"), client.Options{Timeout: programTime})
			if err != nil {
				said = "failed " + err.Error()
			} else if !reply.Meta.Direct {
				said = "queued"
			}
			printing.Lock()
			defer printing.Unlock()
			fmt.Fprintln(out, said)
		})
		select {
		case <-next.C:
		case <-quit:
			running = false
		}
	}
	calls.Wait()
	return p.Close()
}

// program is such a process.
type program struct {
	quit func() error // ends it and waits

	mu   sync.Mutex // guards all below
	said map[string]int
	bad  []string
	logs bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.Write(b)
}

func (p *program) count(how string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said[how]
}

func startProgram(t *testing.T, r *rig.Rig) *program {
	t.Helper()
	p := &program{said: map[string]int{}}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(r.Environ(), asProgram+"=1", "AWS_ACCESS_KEY_ID="+cloud.Producer, "AWS_SECRET_ACCESS_KEY=local")
	cmd.Stderr = p
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			how, _, failed := strings.Cut(lines.Text(), " ")
			if p.said[how]++; failed {
				p.bad = append(p.bad, lines.Text())
			}
			p.mu.Unlock()
		}
	})
	p.quit = sync.OnceValue(func() error {
		_ = in.Close() // tells it to end
		reading.Wait()
		return cmd.Wait()
	})
	t.Cleanup(func() { _ = p.quit() })
	return p
}

// C9, C12, DS56, R11: Go programs go on while the state store is lost, and neither they nor whoever is admitted when it is back exceed a
// cap at any moment. What was in flight in a worker ends before programs begin.
func TestProgram_ProgramsWithoutAStoreStayUnderTheCap(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{Linked: true, Engine: valkey.Real, Change: func(c *config.Config) {
		c.Models[0].Targets[0].MaxConcurrency = programCap
	}})
	if err := r.Fake.SetLatency(server.Latency{Mean: programTakes}); err != nil {
		t.Fatal(err)
	}
	var ps []*program
	for range programs {
		ps = append(ps, startProgram(t, r))
	}
	total := func(how string) (n int) {
		for _, p := range ps {
			n += p.count(how)
		}
		return n
	}
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-t.Context().Done():
		}
	}
	wait(programsKnown)
	queued := total("queued")
	if queued == 0 || total("direct") > 0 {
		t.Fatalf("%d calls were queued and %d ran here while all was well; %s", queued, total("direct"), ps[0].logs.String())
	}
	link := r.Links[cloud.PartValkey]
	link.Refuse()
	link.Cut()
	wait(programsOutage)
	direct := total("direct")
	link.Resume()
	wait(programsRecover)
	again := total("queued")
	for i, p := range ps {
		if err := p.quit(); err != nil {
			t.Errorf("program %d: %v", i, err)
		}
		if len(p.bad) > 0 {
			t.Errorf("program %d: %d calls failed, the first: %s", i, len(p.bad), p.bad[0])
		}
		if logs := p.logs.String(); strings.Count(logs, `"calls_uncounted"`) != 1 || strings.Count(logs, `"calls_counted_again"`) != 1 || !strings.Contains(logs, fmt.Sprintf(`"callers":%d`, programs)) {
			t.Errorf("program %d says %s", i, logs)
		}
	}
	peak := r.Fake.Stats().All.Peak
	t.Logf("%d calls queued, then %d without a store, then %d queued; at most %d at once under a cap of %d", queued, direct, again-queued, peak, programCap)
	if peak > programCap || direct < 2*programs || again <= queued {
		t.Errorf("want at most %d at once, and calls served in each phase", programCap)
	}
}
