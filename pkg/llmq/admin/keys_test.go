package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
)

func newKeys() (*Keys, *authtest.Keys, *bytes.Buffer) {
	k, log := authtest.New(), &bytes.Buffer{}
	c := llmq.NewCatalogue([]llmq.Model{{Alias: "chat-a", Targets: []llmq.Target{{Model: "chat-a", Name: "main"}}}})
	return NewKeys(k.Registry, c, Trail{slog.New(slog.NewTextHandler(log, nil)), k.Objects}), k, log
}

// A15, KT2, KT7: a key is shown once; nothing else that a verb returns or logs holds a piece of it, and each change is logged
// with who asked for it.
func TestKeys_AreShownOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v, k, log := newKeys()
		ctx := t.Context()
		made, err := v.CreateKey(ctx, "arn:ops", CreateKeyRequest{
			Tenant: "acme", Name: "reports", Scopes: []auth.Scope{"call"}, Models: llmq.ModelSet{"chat-a@main"}, Lanes: []llmq.Lane{"bg"}, CallsPerMinute: 60, ExpiresInDays: 30,
		})
		if err != nil || made.View.State != KeyActive || made.View.CreatedBy != "arn:ops" || !made.View.ExpiresAt.Equal(time.Now().Add(30*24*time.Hour)) {
			t.Fatalf("create: %+v, %v", made.View, err)
		}
		kid := made.View.KID
		hours := 1
		rotated, err := v.RotateKey(ctx, "arn:ops", RotateKeyRequest{KID: kid, OverlapHours: &hours})
		if err != nil || rotated.Key == made.Key || len(rotated.View.Secrets) != 2 || !rotated.View.Secrets[1].ExpiresAt.Equal(time.Now().Add(time.Hour)) {
			t.Fatalf("rotate: %+v, %v", rotated.View, err)
		}
		shown, err := v.ShowKey(ctx, kid)
		if err != nil {
			t.Fatal(err)
		}
		list, err := v.ListKeys(ctx, "")
		if err != nil || len(list.Keys) != 1 || list.Next != "" {
			t.Fatalf("list: %+v, %v", list, err)
		}
		revoked, err := v.RevokeKey(ctx, "arn:other", KeyRequest{KID: kid})
		if err != nil || revoked.State != KeyRevoked || revoked.RevokedBy != "arn:other" {
			t.Fatalf("revoke: %+v, %v", revoked, err)
		}
		body, _, err := k.Objects.Get(ctx, "keys/"+kid+".json")
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal([]any{made.View, rotated.View, shown, list, revoked, string(body)})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{made.Key, rotated.Key} {
			for _, part := range strings.Split(key, "_")[3:] {
				if strings.Contains(string(text), part) || strings.Contains(log.String(), part) {
					t.Errorf("a piece of a key is shown: %s\n%s", text, log)
				}
			}
		}
		if strings.Contains(string(text[:len(text)-len(body)]), "digest") {
			t.Errorf("a digest is shown: %s", text)
		}
		for _, want := range []string{`verb="keys create"`, `verb="keys rotate"`, `verb="keys revoke"`, "by=arn:ops", "by=arn:other", "kid=" + kid, "tenant=acme"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %s: %s", want, log)
			}
		}
		time.Sleep(91 * 24 * time.Hour)
		if late, err := v.ShowKey(ctx, kid); err != nil || late.State != KeyRevoked {
			t.Errorf("revoked and expired is %q, %v", late.State, err)
		}
	})
}

// A key for a model that is not there would open nothing, and whoever misspelt it is told.
func TestKeys_RefuseWhatOpensNothing(t *testing.T) {
	t.Parallel()
	v, k, log := newKeys()
	day := 169
	for name, tt := range map[string]struct {
		do    func() error
		field string
		says  string
	}{
		"model": {func() error {
			_, err := v.CreateKey(t.Context(), "x", CreateKeyRequest{Tenant: "a", Models: llmq.ModelSet{"chat-b"}})
			return err
		}, "models", "did you mean chat-a"},
		"target": {func() error {
			_, err := v.CreateKey(t.Context(), "x", CreateKeyRequest{Tenant: "a", Models: llmq.ModelSet{"chat-a@mian"}})
			return err
		}, "models", "did you mean chat-a@main"},
		"no owner": {func() error { _, err := v.CreateKey(t.Context(), "x", CreateKeyRequest{}); return err }, "tenant", "tenant"},
		"too long": {func() error {
			_, err := v.CreateKey(t.Context(), "x", CreateKeyRequest{Tenant: "a", ExpiresInDays: 366})
			return err
		}, "expires_in_days", "1 to 365"},
		"overlap": {func() error {
			_, err := v.RotateKey(t.Context(), "x", RotateKeyRequest{KID: "0123456789", OverlapHours: &day})
			return err
		}, "overlap_hours", "0 to 168"},
		"nobody's": {func() error { _, err := v.RevokeKey(t.Context(), "x", KeyRequest{KID: "0123456789"}); return err }, "kid", "no key"},
	} {
		err := tt.do()
		if e := llmq.AsError(err); !errors.Is(err, llmq.CodeInvalidRequest) || e.Field != tt.field || !strings.Contains(e.Message, tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, _, err := k.Objects.List(t.Context(), "keys/", "", 9); len(list) != 0 || err != nil {
		t.Errorf("keys were made: %q, %v", list, err)
	}
	if n := strings.Count(log.String(), "operator_verb_failed"); n != 6 {
		t.Errorf("%d of 6 refusals are in the log", n)
	}
}

// KT2, SEC22, SEC23: whoever pastes a key where something else belongs finds no piece of its secret in an answer or a log, whichever
// verb and field it was, cut short or not; in place of an id, the answer names the id.
func TestVerbs_NeitherLogNorEchoAKey(t *testing.T) {
	t.Parallel()
	v, _, log := newKeys()
	ctx := t.Context()
	made, err := v.CreateKey(ctx, "arn:ops", CreateKeyRequest{Tenant: "acme", Scopes: []auth.Scope{"call"}, Models: llmq.ModelSet{"chat-a"}, Lanes: []llmq.Lane{"bg"}})
	if err != nil {
		t.Fatal(err)
	}
	secret := made.Key[strings.Index(made.Key, made.View.KID)+len(made.View.KID)+1:]
	for _, key := range []string{made.Key, made.Key[:len(made.Key)-12], " " + made.Key + "\n", "Bearer " + made.Key, secret} {
		create := func(r CreateKeyRequest) error { _, err := v.CreateKey(ctx, "arn:ops", r); return err }
		for name, do := range map[string]func() error{
			"revoke": func() error { _, err := v.RevokeKey(ctx, "arn:ops", KeyRequest{KID: key}); return err },
			"rotate": func() error { _, err := v.RotateKey(ctx, "arn:ops", RotateKeyRequest{KID: key}); return err },
			"show":   func() error { _, err := v.ShowKey(ctx, key); return err },
			"list":   func() error { _, err := v.ListKeys(ctx, key); return err },
		} {
			err := do()
			if err == nil || strings.Contains(err.Error(), secret[:6]) {
				t.Errorf("%s: %v", name, err)
			}
			if key != secret && err != nil && !strings.Contains(err.Error(), "its id is "+made.View.KID) {
				t.Errorf("%s does not name the id: %v", name, err)
			}
		}
		if key == secret {
			continue // which field could tell it from a name?
		}
		for name, err := range map[string]error{
			"tenant": create(CreateKeyRequest{Tenant: key}),
			"name":   create(CreateKeyRequest{Tenant: "a", Name: key}),
			"models": create(CreateKeyRequest{Tenant: "a", Models: llmq.ModelSet{key}}),
			"scopes": create(CreateKeyRequest{Tenant: "a", Scopes: []auth.Scope{auth.Scope(key)}}),
			"lanes":  create(CreateKeyRequest{Tenant: "a", Lanes: []llmq.Lane{llmq.Lane(key)}}),
		} {
			if e := llmq.AsError(err); err == nil || e.Field != name || strings.Contains(err.Error(), secret[:6]) {
				t.Errorf("create, %s: %v", name, err)
			}
		}
		pause := deed{by: "arn:ops", verb: "pause", args: []any{"queue", llmq.Clip(key, 40)}}
		pause.log(ctx, v.trail.Log, llmq.Errorf(llmq.CodeInvalidRequest, "no queue %q", llmq.Clip(key, 40)).Because(errors.New(key)))
	}
	if strings.Contains(log.String(), secret[:6]) {
		t.Errorf("a piece of the key is logged:\n%s", log)
	}
	if err := noKeyIn(CreateKeyRequest{Tenant: "management_team", Name: "llmq_reports", Models: llmq.ModelSet{"chat_a@main_2"}}); err != nil {
		t.Errorf("what is no key is refused: %v", err)
	}
}
