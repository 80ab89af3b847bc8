package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
)

// SEC02, KT2: one body for whatever is no key, and no piece of it in any output.
func TestServeHTTP_BadKeyIsOneBodyForAll(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	missing := b.chat("Authorization", "")
	b.refused(t, missing, http.StatusUnauthorized, llmq.CodeInvalidKey)
	if missing.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("WWW-Authenticate is %q", missing.Header().Get("WWW-Authenticate"))
	}
	otherTag := testSecret[:len(testSecret)-6] + "canary"
	for _, value := range []string{"Bearer canary7f3a", "Basic canary7f3a", "Bearer " + otherTag, "Bearer ' OR 1=1--canary7f3a", "Bearer " + strings.Repeat("canary7f3a", 800)} {
		wrong := b.chat("Authorization", value)
		if wrong.Code != http.StatusUnauthorized || wrong.Body.String() != missing.Body.String() {
			t.Errorf("%.30s: %d %s", value, wrong.Code, wrong.Body)
		}
	}
	if strings.Contains(b.log.String(), "canary") {
		t.Errorf("a piece of a key is in the log: %s", b.log)
	}
}

// SEC01: 10,000 keys that differ from a good one in one character: each is 401 in one body, nothing is read, counted or handed over for
// any, and no piece of them is in any output.
func TestServeHTTP_ForgedKeysCostNothing(t *testing.T) {
	t.Parallel()
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	wish := authtest.All("team-a", "chat-a")
	wish.CallsPerMinute = 1
	keys := authtest.New()
	key := keys.Issue(wish).Key
	b := setup(t, ok)
	b.door.keys = keys.Checker
	b.door.rates = rateFunc(func(string, int, string) (auth.Rate, error) {
		t.Error("a call of a forged key was counted")
		return auth.Rate{}, nil
	})
	want := b.chat("Authorization", "").Body.String()
	before, forged := keys.Objects.Calls(), 0
	for i := 0; forged < 10_000; i++ {
		at, c := i%len(key), alphabet[(i/len(key)+i)%len(alphabet)]
		if key[at] == c {
			continue
		}
		forged++
		w := b.chat("Authorization", "Bearer "+key[:at]+string(c)+key[at+1:])
		if w.Code != http.StatusUnauthorized || w.Body.String() != want {
			t.Fatalf("position %d: %d %s", at, w.Code, w.Body)
		}
	}
	if n := keys.Objects.Calls() - before; n != 0 || len(b.calls.requests()) != 0 {
		t.Errorf("%d reads and %d calls for %d forged keys", n, len(b.calls.requests()), forged)
	}
	secret := key[len(key)-50:]
	for at := 0; at+10 <= len(secret); at += 10 {
		if strings.Contains(b.log.String(), secret[at:at+10]) {
			t.Fatalf("a piece of the key is in the log")
		}
	}
}

// SEC02.
func TestServeHTTP_TwoAuthorizationValuesAre400(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(chatBody))
	r.Header["Authorization"] = []string{"Bearer " + testSecret, "Bearer " + testSecret}
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	b.door.ServeHTTP(w, r)
	b.refused(t, w, http.StatusBadRequest, llmq.CodeInvalidRequest)
}

// keyed is a door at which one key calls.
func keyed(t *testing.T, w auth.Wish, rates Rates) (*bundle, auth.Issued) {
	t.Helper()
	keys := authtest.New()
	key := keys.Issue(w)
	b := setup(t, ok)
	b.door.keys, b.door.rates = keys.Checker, rates
	return b, key
}

// KT4: scope, lane and model are the key's; what it lacks is 403, before anything is handed over. A key of a single
// target may call its model, by its name or pinned.
func TestServeHTTP_KeyMayDoWhatItLists(t *testing.T) {
	t.Parallel()
	chat := func(model string) string { return `{"model":"` + model + `","messages":[]}` }
	for _, tc := range []struct {
		name, path, body, lane string
		change                 func(*auth.Wish)
		status                 int
	}{
		{"all", "/v1/chat/completions", chat("chat-a"), "", func(*auth.Wish) {}, 200},
		{"no scope", "/v1/chat/completions", chat("chat-a"), "", func(w *auth.Wish) { w.Scopes = nil }, 403},
		{"other scopes", "/v1/chat/completions", chat("chat-a"), "", func(w *auth.Wish) { w.Scopes = []auth.Scope{"submit", "read", "cancel", "batch"} }, 403},
		{"no model", "/v1/chat/completions", chat("chat-a"), "", func(w *auth.Wish) { w.Models = nil }, 403},
		{"another model", "/v1/chat/completions", chat("both-a"), "", func(w *auth.Wish) { w.Models = llmq.ModelSet{"chat-a"} }, 403},
		{"by the provider's name", "/v1/chat/completions", chat("m2"), "", func(w *auth.Wish) { w.Models = llmq.ModelSet{"chat-a"} }, 403},
		{"one target", "/v1/chat/completions", chat("chat-a"), "", func(w *auth.Wish) { w.Models = llmq.ModelSet{"chat-a@us"} }, 200},
		{"one target, pinned", "/v1/chat/completions", chat("chat-a@us"), "", func(w *auth.Wish) { w.Models = llmq.ModelSet{"chat-a@us"} }, 200},
		{"another target, pinned", "/v1/chat/completions", chat("chat-a@eu"), "", func(w *auth.Wish) { w.Models = llmq.ModelSet{"chat-a@us"} }, 403},
		{"a target of another wire", "/v1/chat/completions", chat("both-a"), "", func(w *auth.Wish) { w.Models = llmq.ModelSet{"both-a@conv"} }, 403},
		{"no lane", "/v1/chat/completions", chat("chat-a"), "", func(w *auth.Wish) { w.Lanes = nil }, 403},
		{"another lane", "/v1/chat/completions", chat("chat-a"), "bulk", func(w *auth.Wish) { w.Lanes = []llmq.Lane{"rt", "bg"} }, 403},
		{"its lane", "/v1/chat/completions", chat("chat-a"), "bulk", func(w *auth.Wish) { w.Lanes = []llmq.Lane{"bulk"} }, 200},
		{"in the path", "/model/conv-a/converse", `{}`, "", func(w *auth.Wish) { w.Models = llmq.ModelSet{"chat-a"} }, 403},
		{"a gap", "/v1/responses", `{}`, "", func(w *auth.Wish) { w.Scopes = nil }, 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			wish := authtest.All("team-a", "chat-a", "conv-a", "both-a")
			tc.change(&wish)
			b, key := keyed(t, wish, authtest.NoRates{})
			w := b.send(http.MethodPost, tc.path, tc.body, "Authorization", "Bearer "+key.Key, "X-LLMQ-Lane", tc.lane)
			if w.Code != tc.status || (tc.status == 200) != (len(b.calls.requests()) == 1) {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tc.status)
			}
			if tc.status == 403 && !strings.Contains(w.Body.String(), key.Record.KID) {
				t.Errorf("the key is not named: %s", w.Body)
			}
		})
	}
}

// KT4: a key sees the models that it may call, each with the wires that it may call it on.
func TestModels_AreTheKeys(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		models llmq.ModelSet
		want   []string
	}{
		{nil, nil},
		{llmq.ModelSet{"chat-a@us", "both-a@conv", "gone"}, []string{"chat-a [openai]", "both-a [converse]"}},
	} {
		b, key := keyed(t, auth.Wish{Tenant: "team-a", Models: tc.models}, authtest.NoRates{})
		w := b.send(http.MethodGet, "/v1/models", "", "Authorization", "Bearer "+key.Key)
		var list struct {
			Data []struct {
				ID    string
				Wires []string
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		var got []string
		for _, m := range list.Data {
			got = append(got, m.ID+" ["+strings.Join(m.Wires, " ")+"]")
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q lists %q, want %q", tc.models, got, tc.want)
		}
	}
}

type rateFunc func(kid string, perMinute int, call string) (auth.Rate, error)

func (f rateFunc) Take(_ context.Context, kid string, perMinute int, call string) (auth.Rate, error) {
	return f(kid, perMinute, call)
}

// A15: the key's own rate is told on every answer, a refused one says when the next fits, and a call is counted once,
// whatever it is.
func TestServeHTTP_KeysRateIsTold(t *testing.T) {
	t.Parallel()
	wish := authtest.All("team-a", "chat-a")
	wish.CallsPerMinute = 7
	var seen []string
	left := 1
	b, key := keyed(t, wish, rateFunc(func(kid string, perMinute int, call string) (auth.Rate, error) {
		seen = append(seen, call)
		r := auth.Rate{Limit: perMinute, Left: left, Reset: 60 * time.Second}
		if left < 0 {
			r.Left, r.RetryAfter, r.Reset = 0, 2345*time.Millisecond, 59*time.Second
		}
		left--
		return r, nil
	}))
	headers := func(w *httptest.ResponseRecorder) string {
		h := w.Header()
		return h.Get("X-Ratelimit-Limit-Requests") + " " + h.Get("X-Ratelimit-Remaining-Requests") + " " + h.Get("X-Ratelimit-Reset-Requests")
	}
	good := b.chat("Authorization", "Bearer "+key.Key)
	if got := headers(good); good.Code != 200 || got != "7 1 1m0s" {
		t.Errorf("first: %d %s", good.Code, got)
	}
	bad := b.send(http.MethodPost, "/v1/chat/completions", `{`, "Authorization", "Bearer "+key.Key)
	if got := headers(bad); bad.Code != 400 || got != "7 0 1m0s" {
		t.Errorf("a bad call: %d %s", bad.Code, got)
	}
	w := b.chat("Authorization", "Bearer "+key.Key)
	if code, _ := openAI(t, w); w.Code != 429 || code != "rate_limited" || headers(w) != "7 0 59s" ||
		w.Header().Get("Retry-After") != "3" || w.Header().Get("Retry-After-Ms") != "2345" || w.Header().Get("X-Should-Retry") != "true" {
		t.Errorf("refused: %d %s %v", w.Code, w.Body, w.Header())
	}
	if models := b.send(http.MethodGet, "/v1/models", "", "Authorization", "Bearer "+key.Key); models.Code != 200 || len(seen) != 3 {
		t.Errorf("the list of models: %d; %d calls were counted, want 3", models.Code, len(seen))
	}
	if len(b.calls.requests()) != 1 || seen[0] == seen[1] {
		t.Errorf("%d calls were handed over; ids %q", len(b.calls.requests()), seen)
	}
}

// D11: a lost state store takes no door down.
func TestServeHTTP_RateThatCantBeCountedLetsPass(t *testing.T) {
	t.Parallel()
	wish := authtest.All("team-a", "chat-a")
	wish.CallsPerMinute = 1
	b, key := keyed(t, wish, rateFunc(func(string, int, string) (auth.Rate, error) { return auth.Rate{}, errors.New("lost") }))
	if w := b.chat("Authorization", "Bearer "+key.Key); w.Code != 200 || w.Header().Get("X-Ratelimit-Limit-Requests") != "" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
}

// KT3: who can't be checked is not served, and may come back.
func TestServeHTTP_KeysThatCantBeReadAre503(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	keys := authtest.New()
	key := keys.Issue(authtest.All("team-a", "chat-a"))
	keys.Objects.Fail(errors.New("S3 is down"))
	b.door.keys = keys.Checker
	w := b.chat("Authorization", "Bearer "+key.Key)
	b.refused(t, w, http.StatusServiceUnavailable, llmq.CodeQueueUnavailable)
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// IN3: a key bounds the choices that one call asks for, on OpenAI's route and on our own; one that says nothing of it has 8.
func TestServeHTTP_KeyBoundsChoices(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		most    int // of the key
		asks    string
		refuses string // the member; "" lets it in
	}{
		{0, `"n":8`, ""},
		{0, `"n":9`, "n"},
		{0, `"n":1,"best_of":9`, "best_of"},
		{0, `"x":1`, ""},
		{0, `"n":null`, ""},
		{2, `"n":2`, ""},
		{2, `"n":3`, "n"},
		{128, `"n":128`, ""},
	} {
		wish := authtest.All("team-a", "chat-a")
		wish.MaxChoices = tc.most
		b, key := keyed(t, wish, authtest.NoRates{})
		for path, body := range map[string]string{
			"/v1/chat/completions": `{"model":"chat-a",` + tc.asks + `}`,
			callsPath:              `{"id":"r-1","op":"chat","model":"chat-a","body":{` + tc.asks + `}}`,
		} {
			w := b.send(http.MethodPost, path, body, "Authorization", "Bearer "+key.Key)
			if refused := w.Code == http.StatusBadRequest; refused != (tc.refuses != "") || refused && !strings.Contains(w.Body.String(), tc.refuses) {
				t.Errorf("%d: %s with %s: %d %s", tc.most, path, tc.asks, w.Code, w.Body)
			}
		}
	}
}
