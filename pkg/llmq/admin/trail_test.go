package admin

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// written are the records that lie in the bucket, in their order, each as "by verb (code): before -> after".
func written(t *testing.T, o *authtest.Objects) []record {
	t.Helper()
	names, _, err := o.List(t.Context(), "audit/", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	var out []record
	for _, name := range names {
		body, _, err := o.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		var r record
		if err := json.Unmarshal(body, &r); err != nil || r.V != 1 {
			t.Fatalf("%s: %s (%v)", name, body, err)
		}
		if age := time.Since(r.At); age < 0 || age > time.Minute || !strings.HasPrefix(name, "audit/"+r.At.Format("2006/01/02/150405.000")+"-"+strings.ReplaceAll(r.Verb, " ", "-")+"-") {
			t.Errorf("%s is of %s", name, r.At)
		}
		out = append(out, r)
	}
	return out
}

// KT7: every verb that changes something leaves who, when, what, before and after.
func TestTrail_EveryChangeLeavesARecord(t *testing.T) {
	t.Parallel()
	type line struct{ by, verb, details, before, after string }
	seen := func(t *testing.T, o *authtest.Objects, want line) {
		t.Helper()
		all := written(t, o)
		if len(all) == 0 {
			t.Fatalf("%s left no record", want.verb)
		}
		i := slices.IndexFunc(all, func(r record) bool { return r.Verb == want.verb })
		if i < 0 {
			t.Fatalf("%s left no record among %d", want.verb, len(all))
		}
		r := all[i]
		for _, part := range []struct{ name, got, want string }{{"details", string(r.Details), want.details}, {"before", string(r.Before), want.before}, {"after", string(r.After), want.after}} {
			if part.want == "" && part.got != "" || !strings.Contains(part.got, part.want) {
				t.Errorf("%s: %s is %s, want %s", r.Verb, part.name, part.got, part.want)
			}
		}
		if r.By != want.by || r.Code != "" {
			t.Errorf("%s: by %q, code %q", r.Verb, r.By, r.Code)
		}
	}
	t.Run("settings, routing, fallback, limiter, breaker", func(t *testing.T) {
		t.Parallel()
		r := newLiveRig(t)
		o := r.operator(t)
		on, chain := true, []config.FallbackModel{{Model: "b"}}
		failing(t, o, "a", "x", 50)
		for _, do := range []func() error{
			func() error {
				_, err := r.Set(t.Context(), "ops", SetRequest{Model: "a", Set: map[string]Text{"max_concurrency": "5"}})
				return err
			},
			func() error {
				_, err := r.Unset(t.Context(), "ops", UnsetRequest{Model: "a", Unset: []string{"max_concurrency"}})
				return err
			},
			func() error { _, err := r.Reset(t.Context(), "ops", ResetRequest{}); return err },
			func() error {
				_, err := r.Route(t.Context(), "ops", RouteRequest{Model: "a", Mode: "queue"})
				return err
			},
			func() error { _, err := r.Kill(t.Context(), "ops", KillRequest{On: &on}); return err },
			func() error { _, err := r.ResetRouting(t.Context(), "ops", ResetRequest{}); return err },
			func() error {
				_, err := r.SetFallback(t.Context(), "ops", FallbackRequest{Model: "a", Chain: &chain})
				return err
			},
			func() error { _, err := r.ResetFallback(t.Context(), "ops", ResetFallbackRequest{}); return err },
			func() error { _, err := o.ResetBreaker(t.Context(), "ops", TargetRequest{Model: "a"}); return err },
			func() error { _, err := o.ResetLimiter(t.Context(), "ops", TargetRequest{Model: "a"}); return err },
		} {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []line{
			{"ops", "settings set", `{"name":"models.a.max_concurrency","before":null,"after":"5"}`, "", ""},
			{"ops", "settings unset", `{"name":"models.a.max_concurrency","before":"5","after":null}`, "", ""},
			{"ops", "settings reset", `"revision":2`, "", ""},
			{"ops", "routing set", `"after":"queue"`, "", ""},
			{"ops", "routing kill", `"after":"true"`, "", ""},
			{"ops", "routing reset", `"before":"true"`, "", ""},
			{"ops", "fallback set", `"name":"models.a.fallback"`, "", ""},
			{"ops", "fallback reset", `"name":"models.a.fallback"`, "", ""},
			{"ops", "breaker reset", `"changed":["a@x"]`, `"breaker":"open"`, ""},
			{"ops", "limiter reset", `"changed":["a@x"]`, `"target":"a@x"`, ""},
		} {
			seen(t, &r.records, want)
		}
	})
	t.Run("queues", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			defer r.server.Close()
			r.sources.list = map[string][]queue.Source{"worker-bg": {{ID: "s", Queue: source, State: queue.SourceEnabled}}}
			r.bury(t, "provider_failed", 1, 3)
			for _, do := range []func() error{
				func() error { _, err := r.Pause(t.Context(), "ops", SwitchRequest{Queue: source}); return err },
				func() error { _, err := r.Resume(t.Context(), "ops", SwitchRequest{Queue: source}); return err },
				func() error {
					_, err := r.Redrive(t.Context(), "ops", RedriveRequest{Queue: source, DryRun: true})
					return err
				},
				func() error { _, err := r.Redrive(t.Context(), "ops", RedriveRequest{Queue: source}); return err },
				func() error {
					_, err := r.Purge(t.Context(), "ops", PurgeRequest{Queue: source, Confirm: source})
					return err
				},
			} {
				if err := do(); err != nil {
					t.Fatal(err)
				}
			}
			for _, want := range []line{
				{"ops", "pause", `"queue":"llm-chat-a"`, `"Enabled"`, `"Disabling"`},
				{"ops", "resume", `"queue":"llm-chat-a"`, `"Disabling"`, `"Enabling"`},
				{"ops", "redrive", `"moved":3`, "", ""},
				{"ops", "purge", `"messages":3`, "", ""},
			} {
				seen(t, &r.records, want)
			}
			if all := written(t, &r.records); len(all) != 4 {
				t.Errorf("%d records: a dry run changes nothing", len(all))
			}
		})
	})
	t.Run("keys", func(t *testing.T) {
		t.Parallel()
		v, k, _ := newKeys()
		made, err := v.CreateKey(t.Context(), "ops", CreateKeyRequest{Tenant: "acme", Scopes: []auth.Scope{"call"}, Models: llmq.ModelSet{"chat-a"}, Lanes: []llmq.Lane{"bg"}})
		if err != nil {
			t.Fatal(err)
		}
		rotated, err := v.RotateKey(t.Context(), "ops", RotateKeyRequest{KID: made.View.KID})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.RevokeKey(t.Context(), "ops", KeyRequest{KID: made.View.KID}); err != nil {
			t.Fatal(err)
		}
		kid := `"kid":"` + made.View.KID + `"`
		for _, want := range []line{
			{"ops", "keys create", kid, "", `"tenant":"acme"`},
			{"ops", "keys rotate", kid, `"state":"active"`, `"state":"active"`},
			{"ops", "keys revoke", kid, `"state":"active"`, `"state":"revoked"`},
		} {
			seen(t, k.Objects, want)
		}
		text, err := json.Marshal(written(t, k.Objects))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{made.Key, rotated.Key} {
			for _, part := range strings.Split(key, "_")[3:] {
				if strings.Contains(string(text), part) {
					t.Errorf("a piece of a key is recorded: %s", text)
				}
			}
		}
	})
}

// KT7: where the bucket takes no record, what was asked for is done and its operator is told; what was refused leaves a line of the log
// alone, and a failure whose effect nobody knows a record.
func TestTrail_AMissingRecordIsTold(t *testing.T) {
	t.Parallel()
	v, _, log := newKeys()
	made, err := v.CreateKey(t.Context(), "ops", CreateKeyRequest{Tenant: "acme", Scopes: []auth.Scope{"call"}, Models: llmq.ModelSet{"chat-a"}, Lanes: []llmq.Lane{"bg"}})
	if err != nil {
		t.Fatal(err)
	}
	trail := Trail{Log: v.trail.Log, Objects: &authtest.Objects{}}
	v.trail.Objects = nil
	revoked, err := v.RevokeKey(t.Context(), "ops", KeyRequest{KID: made.View.KID})
	if !errors.Is(err, ErrUnrecorded) || revoked.State != KeyRevoked {
		t.Errorf("revoked as %q: %v", revoked.State, err)
	}
	if shown, err := v.ShowKey(t.Context(), made.View.KID); err != nil || shown.State != KeyRevoked {
		t.Errorf("the key is %q, %v", shown.State, err)
	}
	if !strings.Contains(log.String(), "operator_verb_unrecorded") {
		t.Errorf("the log does not tell of it: %s", log)
	}

	objects := trail.Objects.(*authtest.Objects)
	refused := llmq.Errorf(llmq.CodeInvalidRequest, "no")
	if got := trail.record(t.Context(), deed{by: "ops", verb: "purge"}, refused); !errors.Is(got, refused) || len(written(t, objects)) != 0 {
		t.Errorf("a refusal: %v, %d records", got, len(written(t, objects)))
	}
	lost := llmq.Errorf(llmq.CodeQueueUnavailable, "no answer")
	if got := trail.record(t.Context(), deed{by: "ops", verb: "purge"}, lost); !errors.Is(got, lost) || written(t, objects)[0].Code != llmq.CodeQueueUnavailable {
		t.Errorf("a lost answer: %v, %+v", got, written(t, objects))
	}
	objects.Fail(errors.New("away"))
	if got := trail.record(t.Context(), deed{by: "ops", verb: "purge"}, lost); !errors.Is(got, lost) || errors.Is(got, ErrUnrecorded) {
		t.Errorf("both fail: %v", got)
	}
}

// KT7: a record is bounded, holds no key, and is none twice.
func TestTrail_RecordsAreBounded(t *testing.T) {
	t.Parallel()
	objects := &authtest.Objects{}
	trail := Trail{slog.New(slog.DiscardHandler), objects}
	key := authtest.New().Issue(authtest.All("acme", "chat-a")).Key
	for range 2 {
		d := deed{by: "ops", verb: "fallback set", args: []any{"model", key}, before: strings.Repeat("ä", 10_000), after: []string{strings.Repeat("\x00", 10_000)}}
		if err := trail.record(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
	}
	all := written(t, objects)
	if len(all) != 2 {
		t.Fatalf("%d records", len(all))
	}
	for _, part := range []json.RawMessage{all[0].Details, all[0].Before, all[0].After} {
		if len(part) > 3*maxPart || !json.Valid(part) {
			t.Errorf("a part has %d bytes", len(part))
		}
	}
	_, secret, _ := strings.Cut(key, authtest.Env+"_")
	if diff := cmp.Diff(false, strings.Contains(string(all[0].Details), secret[11:20])); diff != "" {
		t.Errorf("a key is recorded: %s", all[0].Details)
	}
}
