package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares with a file. A missing one fails, so that a lost golden is seen.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read the golden file (write it with -update): %v", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-file +now; rewrite with -update):\n%s", file, diff)
	}
}

// fakeCalls records what it is given and answers as do says.
type fakeCalls struct {
	do     func(context.Context, llmq.Request) (*llmq.Reply, error)
	stream func(context.Context, llmq.Request) (llmq.Stream, error)

	refuses error                               // what every look at a call by its id gets; nil is none
	ends    chan llmq.Call                      // how the call ends that is waited for; nil: it does not
	follow  func(at int64) (llmq.Stream, error) // of a known call

	mu    sync.Mutex
	seen  []llmq.Request       // guarded by mu
	known map[string]llmq.Call // guarded by mu
}

func (f *fakeCalls) Do(ctx context.Context, r llmq.Request) (*llmq.Reply, error) {
	f.mu.Lock()
	f.seen = append(f.seen, r)
	f.mu.Unlock()
	return f.do(ctx, r)
}

func (f *fakeCalls) Stream(ctx context.Context, r llmq.Request) (llmq.Stream, error) {
	f.mu.Lock()
	f.seen = append(f.seen, r)
	f.mu.Unlock()
	return f.stream(ctx, r)
}

func (f *fakeCalls) requests() []llmq.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]llmq.Request(nil), f.seen...)
}

// Of the calls that are asked for by their id those that were submitted are known, and stand as they are put.

func (f *fakeCalls) Submit(_ context.Context, r llmq.Request) (llmq.Call, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, r)
	if f.refuses != nil {
		return llmq.Call{}, f.refuses
	}
	c := llmq.Call{ID: r.ID, State: llmq.StateQueued, Created: callCreated, Deadline: r.Deadline}
	f.put(r.Tenant, c)
	return c, nil
}

func (f *fakeCalls) Find(_ context.Context, tenant, id string) (llmq.Call, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuses != nil {
		return llmq.Call{}, f.refuses
	}
	c, known := f.known[tenant+"/"+id]
	if !known {
		return llmq.Call{}, llmq.Errorf(llmq.CodeCallNotFound, "no call %q is known", id).At("id")
	}
	return c, nil
}

func (f *fakeCalls) Wait(ctx context.Context, tenant, id string) (llmq.Call, error) {
	c, err := f.Find(ctx, tenant, id)
	if err != nil || c.State.Over() {
		return c, err
	}
	if f.ends == nil {
		<-ctx.Done()
		return c, nil
	}
	select {
	case <-ctx.Done():
	case c = <-f.ends:
	}
	return c, nil
}

func (f *fakeCalls) Withdraw(ctx context.Context, tenant, id string) (llmq.Call, error) {
	c, err := f.Find(ctx, tenant, id)
	if err == nil && !c.State.Over() {
		c.State, c.Err = llmq.StateCancelled, llmq.Errorf(llmq.CodeCancelled, "the request was cancelled")
		f.mu.Lock()
		defer f.mu.Unlock()
		f.put(tenant, c)
	}
	c.Reply = nil
	return c, err
}

func (f *fakeCalls) Follow(ctx context.Context, tenant, id string, at int64) (llmq.Stream, error) {
	if _, err := f.Find(ctx, tenant, id); err != nil {
		return nil, err
	}
	return f.follow(at)
}

// put is the caller's under f.mu.
func (f *fakeCalls) put(tenant string, c llmq.Call) {
	if f.known == nil {
		f.known = map[string]llmq.Call{}
	}
	f.known[tenant+"/"+c.ID] = c
}

var callCreated = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// bundle is a door with everything behind it in view.
type bundle struct {
	door  *Handler
	calls *fakeCalls
	log   *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The key of a tenant that may use everything.
var (
	testKeys   = authtest.New()
	testKey    = testKeys.Issue(authtest.All("team-a", "chat-a", "conv-a", "both-a", "raw-a", "reports"))
	testSecret = testKey.Key
)

func catalogue() llmq.Catalogue {
	return llmq.NewCatalogue([]llmq.Model{
		{Alias: "chat-a", Lanes: llmq.Lanes(), Targets: []llmq.Target{
			{Model: "chat-a", Name: "eu", Provider: "vllm", ModelID: "vendor/chat-a", Wires: []llmq.Wire{llmq.WireOpenAI}, MaxConcurrency: 4},
			{Model: "chat-a", Name: "us", Provider: "groq", ModelID: "chat-a-large", Wires: []llmq.Wire{llmq.WireOpenAI}, MaxConcurrency: 4},
		}},
		{Alias: "conv-a", Lanes: llmq.Lanes(), Targets: []llmq.Target{
			{Model: "conv-a", Name: "eu", Provider: "bedrock", ModelID: testARN, Wires: []llmq.Wire{llmq.WireConverse}, MaxConcurrency: 4},
		}},
		{Alias: "both-a", Lanes: llmq.Lanes(), Targets: []llmq.Target{
			{Model: "both-a", Name: "conv", Provider: "bedrock", ModelID: "m1", Wires: []llmq.Wire{llmq.WireConverse}, MaxConcurrency: 4},
			{Model: "both-a", Name: "open", Provider: "vllm", ModelID: "m2", Wires: []llmq.Wire{llmq.WireOpenAI}, MaxConcurrency: 4},
		}},
		{Alias: "reports", Lanes: []llmq.Lane{llmq.LaneBulk}, Targets: []llmq.Target{
			{Model: "reports", Name: llmq.JobTarget, Provider: llmq.JobProvider, Wires: []llmq.Wire{llmq.WireJob}, MaxConcurrency: 4},
		}},
		{Alias: "raw-a", Lanes: llmq.Lanes(), Targets: []llmq.Target{
			{Model: "raw-a", Name: "x", Provider: "bedrock", ModelID: rawARN, Wires: []llmq.Wire{llmq.WireInvoke}, MaxConcurrency: 4},
		}},
	})
}

const (
	testARN = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.vendor.model-v1:0"
	rawARN  = "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/a1b2"
)

var testMeta = llmq.Meta{
	RequestID: "r-1", Model: "chat-a", Target: "chat-a@eu", Provider: "vllm", ModelID: "vendor/chat-a", Lane: llmq.LaneRT,
	Fallback: true, Attempts: 2, QueueWait: 1500 * 1e6, Provided: 2345 * 1e6, Worker: "worker-rt-7",
}

func ok(context.Context, llmq.Request) (*llmq.Reply, error) {
	return &llmq.Reply{Status: http.StatusOK, ContentType: "application/json", Body: []byte(`{"id":"x", "text":"<b>&"}`), Meta: testMeta}, nil
}

func setup(t *testing.T, do func(context.Context, llmq.Request) (*llmq.Reply, error)) *bundle {
	t.Helper()
	b := &bundle{calls: &fakeCalls{do: do}, log: &lockedBuffer{}}
	var err error
	b.door, err = New(DefaultConfig(), Deps{Calls: b.calls, Keys: testKeys.Door(), Rates: authtest.NoRates{}, Catalogue: catalogue(), HashID: hashed, Logger: slog.New(slog.NewJSONHandler(b.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// send makes one request; h holds name, value pairs that go over the usual headers,
// and an empty value removes one.
func (b *bundle) send(method, target, body string, h ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+testSecret)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(h); i += 2 {
		r.Header.Del(h[i])
		if h[i+1] != "" {
			r.Header.Set(h[i], h[i+1])
		}
	}
	w := httptest.NewRecorder()
	b.door.ServeHTTP(w, r)
	return w
}

const chatBody = `{"model":"chat-a","messages":[{"role":"user","content":"café ☕"}]}`

func (b *bundle) chat(h ...string) *httptest.ResponseRecorder {
	return b.send(http.MethodPost, "/v1/chat/completions", chatBody, h...)
}

// openAI reads an error in OpenAI's shape.
func openAI(t *testing.T, w *httptest.ResponseRecorder) (code, message string) {
	t.Helper()
	var e openAIBody
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
		t.Fatalf("status %d: not an OpenAI error: %v\n%s", w.Code, err, w.Body)
	}
	return e.Error.Code, e.Error.Message
}

// refused fails unless w is an OpenAI-shaped error of that status and code, and
// nothing was handed over.
func (b *bundle) refused(t *testing.T, w *httptest.ResponseRecorder, status int, code llmq.Code) {
	t.Helper()
	if got, message := openAI(t, w); w.Code != status || got != string(code) {
		t.Errorf("got %d %s (%s), want %d %s", w.Code, got, message, status, code)
	}
	if n := len(b.calls.requests()); n != 0 {
		t.Errorf("%d calls were handed over", n)
	}
}
