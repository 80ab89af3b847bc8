package rig_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
)

// SEC06, SEC07, KT6: two tenants under one Idempotency-Key with the same body get calls and answers of their own, and neither finds the
// other's call by its id. What is planted under a tenant's name in the state store, though it is another's, is never handed out.
func TestTenants_NeverSeeEachOthersAnswers(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{})
	ctx := within(t, time.Minute)
	key := func(tenant string) string {
		return issue(t, r, map[string]any{
			"tenant": tenant, "scopes": []string{"call", "submit", "read", "cancel"}, "models": []string{rig.ModelChat}, "lanes": []string{"rt", "bg"},
		}).Key
	}
	a, b := key("acme"), key("globex")
	as := func(key, id string, c call) (*http.Response, string) {
		c.noKey, c.header = true, map[string]string{"Authorization": "Bearer " + key, "Idempotency-Key": id}
		resp, body := send(t, r, c)
		return resp, string(body)
	}
	respA, bodyA := as(a, "same", call{body: fine})
	respB, bodyB := as(b, "same", call{body: fine})
	if respA.StatusCode != 200 || respB.StatusCode != 200 || bodyA == bodyB || len(r.Fake.Calls()) != 2 {
		t.Errorf("two tenants, one key: %d %s and %d %s, %d provider calls", respA.StatusCode, bodyA, respB.StatusCode, bodyB, len(r.Fake.Calls()))
	}
	if _, again := as(b, "same", call{body: fine}); again != bodyB {
		t.Errorf("the repeat got %s, want %s", again, bodyB)
	}

	if resp, body := as(a, "", call{path: "/llmq/v1/calls", body: `{"id":"mine","op":"chat","model":"chat-a","lane":"bg","body":{"messages":[{"role":"user","content":"x"}]}}`}); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("submit: %d %s", resp.StatusCode, body)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if resp, body := as(b, "", call{method: method, path: "/llmq/v1/calls/mine"}); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s of another's id: %d %s", method, resp.StatusCode, body)
		}
	}

	store := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{r.Valkey.Addr()}, Password: r.Valkey.Password(), IsClusterMode: r.Valkey.Cluster()})
	defer store.Close() // it was only looked at
	at := func(tenant, id string) string {
		return "llmq:local:res:" + llmq.TenantHash(tenant) + ":{" + string(llmq.Request{ID: id, Tenant: tenant}.RID()) + "}"
	}
	secret, err := store.Get(ctx, at("acme", "same")).Result()
	if err != nil || !strings.Contains(secret, "chatcmpl") {
		t.Fatalf("acme's result: %.100s (%v)", secret, err)
	}
	if err := store.Set(ctx, at("globex", "same"), secret, redis.KeepTTL).Err(); err != nil {
		t.Fatal(err)
	}
	idA := bodyA[strings.Index(bodyA, "chatcmpl"):][:20]
	if resp, body := as(b, "same", call{body: fine}); resp.StatusCode == 200 || strings.Contains(body, idA) {
		t.Errorf("what was planted is answered: %d %s", resp.StatusCode, body)
	}
}
