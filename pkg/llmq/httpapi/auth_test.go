package httpapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func TestStaticKeys_KnowTheirCallers(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	for value, want := range map[string]Caller{
		"Bearer k-test": {"team-a", "k1"}, "bearer k-test": {"team-a", "k1"}, "BEARER other": {"team-b", "k2"},
	} {
		if got, err := b.door.auth.Check(value); err != nil || got != want {
			t.Errorf("%s: got %v, %v", value, got, err)
		}
	}
}

// SEC02, but for the status of two values, which is the door's.
func TestStaticKeys_RefuseInOneSentence(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	_, missing := b.door.auth.Check("")
	for _, value := range []string{
		"Bearer ' OR 1=1--", "Basic x", "Basic k-test", "Bearer", "Bearer ", "Bearer  k-test", "Bearer k-test ", "Bearer k-tesT", "k-test", "Bearer k-test, Bearer k-test",
		"Bearer " + strings.Repeat("x", 8<<10), "Bearer k-test" + strings.Repeat(" ", 600), "Bearer\tk-test", "\x00",
	} {
		got, err := b.door.auth.Check(value)
		if !errors.Is(err, llmq.CodeInvalidKey) || err.Error() != missing.Error() || got != (Caller{}) {
			t.Errorf("%.40q: got %v, %v", value, got, err)
		}
	}
}

func TestStaticKeys_TellWhoSentAProvidersKey(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	for _, value := range []string{
		"Bearer sk-proj-canary7f3a", "Bearer ABSKcanary7f3a", "bearer bedrock-api-key-canary7f3a", "sk-canary7f3a",
		"AWS4-HMAC-SHA256 Credential=canary7f3a/20260101/eu-central-1/bedrock/aws4_request, SignedHeaders=host, Signature=00",
	} {
		_, err := b.door.auth.Check(value)
		if !errors.Is(err, llmq.CodeInvalidKey) || !strings.Contains(err.Error(), "rotate") || strings.Contains(err.Error(), "canary7f3a") {
			t.Errorf("%.20s: got %v", value, err)
		}
	}
}

// A key of ours may look like a provider's; it is still ours.
func TestStaticKeys_TakeAKeyThatLooksForeign(t *testing.T) {
	t.Parallel()
	keys, err := NewStaticKeys([]StaticKey{{ID: "k", Tenant: "t", Secret: "sk-local"}})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := keys.Check("Bearer sk-local"); err != nil || c.tenant != "t" {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestNewStaticKeys_ListsEveryFaultWithoutASecret(t *testing.T) {
	t.Parallel()
	_, err := NewStaticKeys([]StaticKey{
		{ID: "", Tenant: "a", Secret: "canary-1"},
		{ID: "b", Tenant: "Not A Tenant", Secret: "canary-2"},
		{ID: "c", Tenant: "a", Secret: ""},
		{ID: "d", Tenant: "a", Secret: "canary 3"},
		{ID: "b", Tenant: "a", Secret: "canary-2"},
		{ID: "e", Tenant: "a", Secret: strings.Repeat("x", 506)},
	})
	if err == nil {
		t.Fatal("want an error")
	}
	for _, want := range []string{"key 1", "key 2", "key 3", "key 4", "key 5 (\"b\"): the id is used twice", `the secret is that of key "b" too`, "key 6"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("a secret is shown: %v", err)
	}
	if _, err := NewStaticKeys(nil); err == nil {
		t.Error("no key at all was taken")
	}
}

func TestServeHTTP_BadKeyIsOneBodyForAll(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	missing := b.chat("Authorization", "")
	wrong := b.chat("Authorization", "Bearer canary7f3a")
	b.refused(t, missing, http.StatusUnauthorized, llmq.CodeInvalidKey)
	if missing.Body.String() != wrong.Body.String() || missing.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("the bodies differ: %s %s", missing.Body, wrong.Body)
	}
}

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

// An authenticator that vouches for nobody lets nobody in.
func TestServeHTTP_AuthenticatorWithoutACallerIs403(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	b.door.auth = authFunc(func(string) (Caller, error) { return Caller{}, nil })
	b.refused(t, b.chat(), http.StatusForbidden, llmq.CodeForbidden)
}

func TestNewCaller_NeedsATenant(t *testing.T) {
	t.Parallel()
	for _, tenant := range []string{"", "A", strings.Repeat("a", 49), "a/b"} {
		if c, err := NewCaller(tenant, "k"); err == nil || c.may() == nil {
			t.Errorf("%q: got %v", tenant, c)
		}
	}
}

type authFunc func(string) (Caller, error)

func (f authFunc) Check(a string) (Caller, error) { return f(a) }
