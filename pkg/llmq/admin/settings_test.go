package admin

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/live"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

const liveFile = `kind: local
env: local
valkey: {cluster: false, tls: false}
storage: {state_bucket: llmq-state}
key_pepper: {env: LLMQ_DEV_PEPPER}
providers:
  p: {type: openai, base_url: "https://p.example.com/v1", api_key: {env: K}}
models:
  a: {max_concurrency: 20, targets: [{name: x, provider: p, model_id: m}, {name: y, provider: p, model_id: n}]}
  b: {targets: [{name: z, provider: p, model_id: o}]}
`

// liveRig is the verbs of live settings on a store of their own.
type liveRig struct {
	*Settings
	store  *live.Store
	valkey redis.UniversalClient
	space  keys.Space
	log    *bytes.Buffer

	records authtest.Objects // the state bucket
}

func newLiveRig(t *testing.T, env ...string) *liveRig {
	t.Helper()
	cfg, err := config.Parse("x", []byte(liveFile), append(env, "LLMQ_DEV_PEPPER=x", "K=k"))
	if err != nil {
		t.Fatal(err)
	}
	r := &liveRig{valkey: luatest.Pipe(t, llmqtest.NewMiniredis(t)), space: luatest.Space(), log: &bytes.Buffer{}}
	r.store = live.New(r.valkey, r.space)
	r.Settings = NewSettings(SettingsDeps{Config: cfg, Store: r.store, Valkey: r.valkey, Space: r.space, Trail: Trail{slog.New(slog.NewJSONHandler(r.log, nil)), &r.records}})
	return r
}

func (r *liveRig) value(t *testing.T, model, name string) string {
	t.Helper()
	v, err := r.Settings.Settings(t.Context(), model, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range v.Settings {
		if s.Name == name {
			return s.Value + " " + string(s.Source)
		}
	}
	return ""
}

// E2, E3: several pairs are set at once, shown with their sources, taken back one by one and all together; who changed what is kept.
func TestSettings_SetShowUnsetReset(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t)
	done, err := r.Set(t.Context(), "ops", SetRequest{Model: "a", Set: map[string]Text{"max_concurrency": "5", "timeout_secs.rt": "45"}})
	if err != nil || done.Revision != 1 || len(done.Changed) != 2 {
		t.Fatalf("set: %+v %v", done, err)
	}
	if _, err := r.Set(t.Context(), "eve", SetRequest{Provider: "p", Set: map[string]Text{"max_concurrency": "9", "shared_rpm": "60"}}); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[[2]string]string{
		{"a", "max_concurrency"}: "5 live:model", {"a", "timeout_secs.rt"}: "45 live:model", {"b", "max_concurrency"}: "9 live:provider", {"b", "timeout_secs.rt"}: "90 default",
	} {
		if got := r.value(t, at[0], at[1]); got != want {
			t.Errorf("%v is %q, want %q", at, got, want)
		}
	}
	if done, err = r.Set(t.Context(), "ops", SetRequest{Model: "a", Set: map[string]Text{"max_concurrency": "5"}}); err != nil || done.Revision != 2 || len(done.Changed) != 0 {
		t.Errorf("set as it was: %+v %v", done, err)
	}
	if _, err := r.Unset(t.Context(), "ops", UnsetRequest{Model: "a", Unset: []string{"max_concurrency"}}); err != nil {
		t.Fatal(err)
	}
	if got := r.value(t, "a", "max_concurrency"); got != "9 live:provider" {
		t.Errorf("unset leaves %q", got)
	}
	if _, err := r.Unset(t.Context(), "ops", UnsetRequest{Model: "a", Unset: []string{"timeout_sec.rt"}}); err == nil || !strings.Contains(llmq.AsError(err).Message, "did you mean timeout_secs.rt?") {
		t.Errorf("a misspelt unset: %v", err)
	}
	if _, err := r.Reset(t.Context(), "ops", ResetRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := r.value(t, "a", "max_concurrency"); got != "20 env:model" {
		t.Errorf("reset leaves %q", got)
	}
	changes, err := r.Audit(t.Context())
	var got []string
	for _, c := range changes {
		line := c.By + " " + c.Verb
		for _, d := range c.Changed {
			line += " " + d.Name
		}
		got = append(got, line)
	}
	want := []string{
		"ops settings reset models.a.timeout_secs.rt providers.p.max_concurrency providers.p.shared_rpm",
		"ops settings unset models.a.max_concurrency",
		"eve settings set providers.p.max_concurrency providers.p.shared_rpm",
		"ops settings set models.a.max_concurrency models.a.timeout_secs.rt",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if first := changes[3].Changed[0]; first.Before != nil || *first.After != "5" || time.Since(changes[3].At) > time.Minute || !strings.Contains(r.log.String(), `"verb":"settings set"`) {
		t.Errorf("audit %+v; log %s", changes[3], r.log)
	}
}

// E3: a bad name, value, alias or provider is refused with the nearest right one, and nothing is written.
func TestSettings_BadOnesAreRefusedAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t)
	old := 7
	for _, tc := range []struct {
		r    SetRequest
		want string
	}{
		{SetRequest{Model: "a", Set: map[string]Text{"rpm": "5", "max_concurency": "5"}}, "models.a.max_concurency: no such setting; did you mean max_concurrency?"},
		{SetRequest{Model: "aa", Set: map[string]Text{"rpm": "5"}}, "did you mean a?"},
		{SetRequest{Provider: "q", Set: map[string]Text{"rpm": "5"}}, `no provider is named "q"`},
		{SetRequest{Model: "a", Set: map[string]Text{"rpm": "5", "tpm": "-1"}}, "models.a.tpm: must be 1 to"},
		{SetRequest{Model: "a", Set: map[string]Text{"retry_attempts": "5"}}, "not live"},
		{SetRequest{Model: "a", Provider: "p", Set: map[string]Text{"rpm": "5"}}, "name a model or a provider, and not both"},
		{SetRequest{Set: map[string]Text{"rpm": "5"}}, "name a model or a provider"},
		{SetRequest{Model: "a"}, "set is missing"},
		{SetRequest{Model: "a", Set: map[string]Text{"rpm": "5"}, Revision: &old}, "changed meanwhile, to revision 0"},
	} {
		_, err := r.Set(t.Context(), "ops", tc.r)
		if err == nil || !strings.Contains(llmq.AsError(err).Message, tc.want) {
			t.Errorf("%+v: got %v, want %s", tc.r, err, tc.want)
		}
	}
	if st, err := r.store.Load(t.Context()); err != nil || st.Revision != 0 {
		t.Errorf("stored: %+v %v", st, err)
	}
	if !strings.Contains(r.log.String(), "operator_verb_failed") {
		t.Error("the log tells of no refusal")
	}
}

// E2: what can't be read is told, and only a reset writes over it; what a newer release has stored stays.
func TestSettings_UnreadableStateIsNotOverwrittenBySet(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t)
	set := func() error {
		_, err := r.Set(t.Context(), "ops", SetRequest{Model: "a", Set: map[string]Text{"rpm": "5"}})
		return err
	}
	r.valkey.HSet(t.Context(), r.space.Live().Settings, "revision", 3, "document", "nonsense")
	if err := set(); err == nil || !strings.Contains(llmq.AsError(err).Message, "reset drops them") {
		t.Errorf("set over what is unreadable: %v", err)
	}
	if v, err := r.Settings.Settings(t.Context(), "", ""); err != nil || !strings.Contains(v.Fault, "unreadable") || v.Revision != 3 {
		t.Errorf("shown as %+v %v", v, err)
	}
	if done, err := r.Reset(t.Context(), "ops", ResetRequest{}); err != nil || done.Revision != 4 {
		t.Errorf("reset: %+v %v", done, err)
	}
	if err := set(); err != nil {
		t.Errorf("after the reset: %v", err)
	}
	r.valkey.HSet(t.Context(), r.space.Live().Settings, "document", `{"schema":99}`)
	if _, err := r.Reset(t.Context(), "ops", ResetRequest{}); err == nil || !strings.Contains(llmq.AsError(err).Message, "newer release") {
		t.Errorf("reset of a newer release's: %v", err)
	}
}

// E4: routes are settings with verbs of their own, and the kill switch is one more.
func TestRouting_SetKillReset(t *testing.T) {
	t.Parallel()
	r := newLiveRig(t)
	ten, hundred := 10.0, 100.0
	yes := true
	if _, err := r.Route(t.Context(), "ops", RouteRequest{Model: "a", Lane: "rt", QueuePercent: &ten}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Route(t.Context(), "ops", RouteRequest{Model: "b", Mode: "direct", QueuePercent: &hundred}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Kill(t.Context(), "ops", KillRequest{On: &yes}); err != nil {
		t.Fatal(err)
	}
	r.valkey.Set(t.Context(), r.space.Failover("b").Direct, 1, 300*time.Second)
	v, err := r.Routing(t.Context())
	want := RoutingView{Revision: 3, Killed: true, Models: []ModelRouting{{Model: "a", Mode: "auto", QueuePercent: 10}, {Model: "b", Mode: "direct", QueuePercent: 100}}}
	if left := v.Models[1].FailoverMS; left <= 290_000 || left > 300_000 {
		t.Errorf("the failover of b lasts for %d ms, want about 300000", left)
	}
	v.Models[1].FailoverMS = 0
	if diff := cmp.Diff(want, v); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if got := r.value(t, "a", "routing.rt"); got != "auto live:model" {
		t.Errorf("routing.rt of a is %q", got)
	}
	if _, err := r.ResetRouting(t.Context(), "ops", ResetRequest{}); err != nil {
		t.Fatal(err)
	}
	if v, err = r.Routing(t.Context()); err != nil || v.Killed || v.Models[0].Mode != "queue" || v.Models[1].QueuePercent != 0 {
		t.Errorf("after the reset: %+v %v", v, err)
	}
	for _, tc := range []struct {
		r    RouteRequest
		want string
	}{
		{RouteRequest{Model: "a", Lane: "bulk", Mode: "direct"}, "bg and bulk always queue"},
		{RouteRequest{Model: "a"}, "both missing"},
		{RouteRequest{Mode: "auto"}, "model is missing"},
		{RouteRequest{Model: "aa", Mode: "auto"}, "did you mean a?"},
		{RouteRequest{Model: "a", Mode: "que"}, "must be one of auto, direct, queue"},
	} {
		if _, err := r.Route(t.Context(), "ops", tc.r); err == nil || !strings.Contains(llmq.AsError(err).Message, tc.want) {
			t.Errorf("%+v: got %v, want %s", tc.r, err, tc.want)
		}
	}
	if _, err := r.Kill(t.Context(), "ops", KillRequest{}); err == nil {
		t.Error("a kill that says neither on nor off is taken")
	}
	off := newLiveRig(t, "LLMQ_ROUTING_DIRECT=off")
	if _, err := off.Route(t.Context(), "ops", RouteRequest{Model: "a", Mode: "auto"}); err == nil || !strings.Contains(llmq.AsError(err).Message, "routing.direct is off") {
		t.Errorf("a door that may call no provider: %v", err)
	}
}
