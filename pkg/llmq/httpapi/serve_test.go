package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

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
	if len(reqs) != 1 || string(reqs[0].Body) != chatBody || reqs[0].Tenant != "team-a" || reqs[0].KeyID != testKey.Record.KID || len(reqs[0].Allowed) != 5 || reqs[0].Op != llmq.OpChat {
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
