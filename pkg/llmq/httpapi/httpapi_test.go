package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
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
	testKey    = testKeys.Issue(authtest.All("team-a", "chat-a", "conv-a", "both-a", "raw-a"))
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

func TestNew_ListsEverythingThatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := New(Config{}, Deps{})
	if err == nil {
		t.Fatal("want an error")
	}
	for _, want := range []string{"BodyLimit", "Wait", "Timeouts[rt]", "Timeouts[bg]", "Timeouts[bulk]", "Calls", "Keys", "Rates", "Catalogue", "HashID", "Logger"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in: %v", want, err)
		}
	}
}

func TestChat_HandsTheBytesOnAndBack(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	w := b.chat("Idempotency-Key", "r-1")
	if w.Code != http.StatusOK || w.Body.String() != `{"id":"x", "text":"<b>&"}` {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	want := http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"25"}, "Cache-Control": {"no-store"},
		"X-Llmq-Request-Id": {"r-1"}, "X-Llmq-Model": {"chat-a"}, "X-Llmq-Target": {"chat-a@eu"}, "X-Llmq-Provider": {"vllm"},
		"X-Llmq-Model-Id": {"vendor/chat-a"}, "X-Llmq-Fallback-Used": {"true"}, "X-Llmq-Attempts": {"2"}, "X-Llmq-Queue-Wait-Ms": {"1500"},
		"X-Llmq-Provider-Ms": {"2345"}, "X-Llmq-Worker": {"worker-rt-7"}, "X-Request-Id": {"r-1"}, "X-Llmq-Lane": {"rt"},
	}
	if diff := cmp.Diff(want, w.Header()); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	reqs := b.calls.requests()
	if len(reqs) != 1 || string(reqs[0].Body) != chatBody || reqs[0].Tenant != "team-a" || reqs[0].KeyID != testKey.Record.KID || len(reqs[0].Allowed) != 4 || reqs[0].Op != llmq.OpChat {
		t.Errorf("handed over: %+v", reqs)
	}
}

// A16: whole seconds, rounded up, of a reply and of an error alike; none where nothing is forecast.
func TestChat_TellsWhenItWasExpectedToStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		eta  *time.Duration
		want string
	}{{nil, ""}, {new(time.Duration(0)), "0"}, {new(1500 * time.Millisecond), "2"}, {new(time.Hour), "3600"}} {
		reply := &llmq.Reply{Status: 200, Body: []byte(`{}`), Meta: llmq.Meta{Eta: tt.eta}}
		failure := &llmq.Error{Code: llmq.CodeNoCapacity, Meta: llmq.Meta{Eta: tt.eta}}
		for name, do := range map[string]func(context.Context, llmq.Request) (*llmq.Reply, error){
			"reply": func(context.Context, llmq.Request) (*llmq.Reply, error) { return reply, nil },
			"error": func(context.Context, llmq.Request) (*llmq.Reply, error) { return nil, failure },
		} {
			if got := setup(t, do).chat().Header().Get("X-LLMQ-Eta"); got != tt.want {
				t.Errorf("%s of %v: %q, want %q", name, tt.eta, got, tt.want)
			}
		}
	}
}

// A reply's status and content type are the provider's too.
func TestChat_PassesStatusAndContentTypeOn(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) {
		return &llmq.Reply{Status: http.StatusAccepted, ContentType: "application/vnd.x+json\r\nSet-Cookie: a=b", Body: []byte(`{}`)}, nil
	})
	w := b.chat()
	if w.Code != http.StatusAccepted || w.Header().Get("Content-Type") != "application/vnd.x+jsonSet-Cookie: a=b" || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
}

func TestConverse_FindsTheModelInThePath(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/model/conv-a/converse", "/model/conv-a@eu/converse", "/model/conv-a%40eu/converse", "/model/" + testARN + "/converse",
		"/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A123456789012%3Ainference-profile%2Feu.vendor.model-v1%3A0/converse",
	} {
		b := setup(t, ok)
		w := b.send(http.MethodPost, path, `{"messages":[]}`)
		reqs := b.calls.requests()
		if w.Code != http.StatusOK || len(reqs) != 1 || reqs[0].Op != llmq.OpConverse {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}

func TestModels_ListsWiresInOpenAIsShape(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	w := b.send(http.MethodGet, "/v1/models", "")
	var list struct {
		Object string
		Data   []struct {
			ID, Object string
			Created    int64
			OwnedBy    string `json:"owned_by"`
			Wires      []string
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d: %v", w.Code, err)
	}
	if list.Object != "list" || len(list.Data) != 4 || list.Data[0].ID != "chat-a" || list.Data[0].Object != "model" || list.Data[0].OwnedBy != "llmq" ||
		list.Data[0].Created != b.door.since.Unix() || cmp.Diff(list.Data[2].Wires, []string{"openai", "converse"}) != "" {
		t.Errorf("got %s", w.Body)
	}
}

func TestHealth_IsOpenAndSaysOneThing(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	w := b.send(http.MethodGet, "/health", "", "Authorization", "")
	if w.Code != http.StatusOK || w.Body.String() != `{"status":"ok"}` {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestServeHTTP_PanicTellsTypeAndStackOnly(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/chat/completions", "/model/conv-a/converse"} {
		b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) { panic("canary7f3a") })
		w := b.send(http.MethodPost, path, chatBody, "Idempotency-Key", "r-9")
		if w.Code != http.StatusInternalServerError || w.Header().Get("X-LLMQ-Request-Id") != "r-9" || w.Header().Get("X-Should-Retry") != "false" {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
		log := b.log.String()
		if strings.Contains(log+w.Body.String(), "canary7f3a") {
			t.Errorf("the value got out: %s %s", log, w.Body)
		}
		if !strings.Contains(log, `"type":"string"`) || !strings.Contains(log, "httpapi_test.go") || !strings.Contains(log, "r-9") {
			t.Errorf("type, place or id is missing in the log: %s", log)
		}
	}
}

// SEC22 at the door: neither success nor failure puts a body or a key into the log.
func TestServeHTTP_LogsNeitherBodyNorKey(t *testing.T) {
	t.Parallel()
	const canary = "canary7f3a"
	b := setup(t, ok)
	for _, body := range []string{
		`{"model":"chat-a","messages":"` + canary + `"}`, `{"a":"` + canary, `{"model":"` + canary + `@` + canary + `","x":1}`, `{"stream":"` + canary + `"}`,
	} {
		b.send(http.MethodPost, "/v1/chat/completions", body, "X-LLMQ-User", canary, "X-LLMQ-Session", canary)
		b.send(http.MethodPost, "/v1/chat/completions", body, "Authorization", "Bearer "+canary)
	}
	if log := b.log.String(); strings.Contains(log, canary) || strings.Contains(log, testSecret) {
		t.Errorf("it got into the log: %s", log)
	}
	if got := strings.Count(b.log.String(), "\n"); got != 8 {
		t.Errorf("%d records for 8 requests", got)
	}
}

func TestServeHTTP_ReplyThatIsNoneIsAnInternalError(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]*llmq.Reply{"nil": nil, "status 500": {Status: 500, Body: []byte("{}")}, "status 0": {Body: []byte("{}")}} {
		b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) { return reply, nil })
		if code, _ := openAI(t, b.chat()); code != string(llmq.CodeInternal) {
			t.Errorf("%s: got %s", name, code)
		}
	}
}

// The same bytes come back over a real connection, with a length that tells a cut one.
func TestServeHTTP_OverAConnection(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("x"), 1<<20)
	b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) {
		return &llmq.Reply{Status: 200, Body: big}, nil
	})
	srv := httptest.NewServer(b.door)
	defer srv.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/chat/completions", strings.NewReader(chatBody))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "bearer "+testSecret)
	r.Header.Set("Content-Type", "application/json; charset=UTF-8")
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || res.ContentLength != 1<<20 || !bytes.Equal(got, big) {
		t.Errorf("got %d, %d bytes, %v", res.StatusCode, len(got), err)
	}
	srv.Client().CloseIdleConnections()
}

// hashed stands in for the keyed hash: what matters here is that nothing else is used.
func hashed(id string) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf("hashed-%d", len(id))
}

// DP5: what the door passes on of a user and a session are their hashes.
func TestDoor_UserAndSessionAreHashed(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	b.send(http.MethodPost, "/v1/chat/completions", `{"model":"chat-a","messages":[]}`, "X-LLMQ-User", "someone", "X-LLMQ-Session", "s-1")
	if got := b.calls.requests()[0]; got.User != "hashed-7" || got.Session != "hashed-3" {
		t.Errorf("user %q, session %q", got.User, got.Session)
	}
}
