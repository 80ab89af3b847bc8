package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// layered is a file in which every layer of the file says something.
const layered = `kind: local
env: local
valkey: {cluster: false, tls: false}
storage: {state_bucket: llmq-state}
key_pepper: {env: LLMQ_DEV_PEPPER}
timing: {attempt_timeout_secs: 100}
providers:
  p: {type: openai, base_url: "https://p.example.com/v1", api_key: {env: K}, max_concurrency: 30, attempt_timeout_secs: 90, rpm: 600, timeout_secs: {bg: 200}}
  q: {type: openai, base_url: "https://q.example.com/v1", api_key: {env: K}}
models:
  a:
    timeout_secs: {rt: 60}
    targets:
      - {name: x, provider: p, model_id: m, max_concurrency: 20, rate_burst: 20}
      - {name: y, provider: q, model_id: n}
  b:
    targets: [{name: z, provider: q, model_id: o}]
`

func parsed(t *testing.T, env ...string) *Config {
	t.Helper()
	c, err := Parse("x", []byte(layered), append(env, "LLMQ_DEV_PEPPER=x", "K=k"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func target(t *testing.T, c *Config, alias, name string) llmq.Target {
	t.Helper()
	_, targets, err := c.Catalogue().Resolve(llmq.ModelRef{Alias: alias, Target: name}, llmq.WireOpenAI)
	if err != nil {
		t.Fatal(err)
	}
	return targets[0]
}

// E2: live model, live provider, env model, env provider, env, default: the first that has a value wins, and what
// is overridden stays as it was.
func TestOverride_TheHighestLayerWins(t *testing.T) {
	t.Parallel()
	c := parsed(t)
	over, err := c.Override(Overrides{
		Providers: map[string]Values{"p": {"max_concurrency": "10", "rpm": "300", "timeout_secs.rt": "50", "shared_max_concurrency": "40"}, "q": {"attempt_timeout_secs": "70", "routing.rt": "auto"}},
		Models:    map[string]Values{"a": {"max_concurrency": "5", "retry_base_secs": "0.5", "rt_capacity_wait_secs": "0"}, "b": {"timeout_secs.rt": "30", "routing.rt_queue_percent": "10"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	type facts struct {
		Cap, RPM, Shared     int
		Attempt, Base, Waits time.Duration
		RT, BG               time.Duration
		Mode                 RoutingMode
		Percent              float64
	}
	of := func(c *Config, alias, name string) facts {
		at := target(t, c, alias, name)
		m, _, err := c.Catalogue().Resolve(llmq.ModelRef{Alias: alias}, llmq.WireOpenAI)
		if err != nil {
			t.Fatal(err)
		}
		f := facts{
			Cap: at.MaxConcurrency, RPM: at.Limits.Rates.RPM, Shared: at.Shared.MaxConcurrency, Attempt: at.Pace.AttemptTimeout, Base: at.Pace.RetryBase, Waits: at.Pace.CapacityWait,
			RT: m.Timeouts[llmq.LaneRT], BG: m.Timeouts[llmq.LaneBG],
		}
		for _, model := range c.Models {
			if model.Alias == alias {
				f.Mode, f.Percent = c.Route(model)
			}
		}
		return f
	}
	s := time.Second
	for name, want := range map[string]facts{
		"a@x": {5, 300, 40, 90 * s, 500 * time.Millisecond, 0, 50 * s, 200 * s, RoutingQueue, 0},
		"a@y": {5, 0, 0, 70 * s, 500 * time.Millisecond, 0, 50 * s, 200 * s, RoutingQueue, 0},
		"b@z": {0, 0, 0, 70 * s, s, 30 * s, 30 * s, 300 * s, RoutingAuto, 10},
	} {
		alias, pinned, _ := strings.Cut(name, "@")
		if diff := cmp.Diff(want, of(over, alias, pinned)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(facts{20, 600, 0, 90 * s, s, 30 * s, 60 * s, 200 * s, RoutingQueue, 0}, of(c, "a", "x")); diff != "" {
		t.Errorf("the configuration itself has changed (-want +got):\n%s", diff)
	}
}

// E3: nothing bad is taken, and the nearest right name is told.
func TestOverride_FaultsAreTold(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		over Overrides
		want string
	}{
		{Overrides{Models: map[string]Values{"aa": {"rpm": "1"}}}, `models.aa: no model is named "aa"; did you mean a?`},
		{Overrides{Providers: map[string]Values{"pp": {"rpm": "1"}}}, `providers.pp: no provider is named "pp"; did you mean p?`},
		{Overrides{Models: map[string]Values{"a": {"rpn": "1"}}}, "models.a.rpn: no such setting; did you mean rpm?"},
		{Overrides{Models: map[string]Values{"a": {"timeout_secs": "1"}}}, "models.a.timeout_secs: "},
		{Overrides{Models: map[string]Values{"a": {"rpm": "0"}}}, "models.a.rpm: must be 1 to 10000000, not 0: leave it out for no budget"},
		{Overrides{Models: map[string]Values{"a": {"rpm": "many"}}}, `models.a.rpm: must be a whole number, in plain digits, not "many"`},
		{Overrides{Models: map[string]Values{"a": {"shared_rpm": "5"}}}, "models.a.shared_rpm: holds for a provider, over all its models; set it for one"},
		{Overrides{Models: map[string]Values{"a": {"retry_attempts": "5"}}}, "models.a.retry_attempts: is read when a process starts, and not live"},
		{Overrides{Providers: map[string]Values{"p": {"api_key": "sk"}}}, "providers.p.api_key: is read when a process starts, and not live"},
		{Overrides{Providers: map[string]Values{"p": {"read_timeout_secs": "5"}}}, "not live"},
		{Overrides{Models: map[string]Values{"a": {"targets": "x"}}}, "not live"},
		{Overrides{Providers: map[string]Values{"p": {"rpm": "10"}}}, "models.a.targets[0].rate_burst: must be at most rpm, 10"},
		{Overrides{Models: map[string]Values{"a": {"retry_base_secs": "40"}}}, "retry_max_secs: must be at least retry_base_secs, 40"},
		{Overrides{Models: map[string]Values{"a": {"timeout_secs.rt": "301"}}}, "models.a.timeout_secs.rt: must be at most lanes.rt.max_timeout_secs, 300"},
		{Overrides{Models: map[string]Values{"a": {"rt_capacity_wait_secs": "120"}}}, "models.a.rt_capacity_wait_secs: must be less than lanes.rt.function_timeout_secs, 120"},
		{Overrides{Models: map[string]Values{"a": {"routing.rt": "qeue"}}}, "must be one of auto, direct, queue"},
		{Overrides{Chains: map[string][]FallbackModel{"a": {{Model: "a"}}}}, "models.a.fallback[0].model: is the model itself"},
		{Overrides{Chains: map[string][]FallbackModel{"a": {{Model: "bb"}}}}, `no model is named "bb"; did you mean b?`},
		{Overrides{Chains: map[string][]FallbackModel{"c": {}}}, `models.c: no model is named "c"`},
		{Overrides{SkipTargets: map[string][]string{"a": {"xx"}}}, `no target of a is named "xx"; did you mean x?`},
		{Overrides{SkipTargets: map[string][]string{"b": {"z"}}}, "leaves no target to serve b"},
	} {
		_, err := parsed(t).Override(tc.over)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %s", tc.over, err, tc.want)
		}
	}
}

// D7: a live chain stands in place of the file's, and an empty one is none.
func TestOverride_ChainsAndKillSwitch(t *testing.T) {
	t.Parallel()
	over, err := parsed(t).Override(Overrides{
		Chains: map[string][]FallbackModel{"a": {{Model: "b", RequireHeadroom: true}}}, SkipTargets: map[string][]string{"a": {"y"}}, Killed: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]FallbackModel{{Model: "b", RequireHeadroom: true}}, over.Models[0].Fallback); diff != "" || over.Models[0].SkipTargets[0] != "y" || !over.Routing.Killed {
		t.Errorf("%s %v %v", diff, over.Models[0].SkipTargets, over.Routing.Killed)
	}
	again, err := over.Override(Overrides{Chains: map[string][]FallbackModel{"a": {}}, SkipTargets: map[string][]string{"a": {}}})
	if err != nil || len(again.Models[0].Fallback) != 0 || again.Routing.Killed {
		t.Errorf("%+v %v", again, err)
	}
}

// What is stored may name a model that a later deployment has dropped.
func TestKnown_LeavesOutWhatIsGone(t *testing.T) {
	t.Parallel()
	o := Overrides{Models: map[string]Values{"a": {"rpm": "70"}, "gone": {"rpm": "1"}}, Providers: map[string]Values{"old": {"rpm": "1"}}, SkipTargets: map[string][]string{"gone": {"x"}}, Killed: true}
	known, unknown := parsed(t).Known(o)
	if diff := cmp.Diff([]string{"gone", "old"}, unknown); diff != "" {
		t.Error(diff)
	}
	if len(known.Models) != 1 || len(known.Providers) != 0 || len(known.SkipTargets) != 0 || !known.Killed || len(o.Models) != 2 {
		t.Errorf("%+v of %+v", known, o)
	}
}

// E3: each value says where it comes from.
func TestSettings_TellTheirLayer(t *testing.T) {
	t.Parallel()
	c := parsed(t, "LLMQ_RETRY_BASE_SECS=1", "LLMQ_TIMEOUT_EMBED_BULK_SECS=700", `LLMQ_SETTINGS={"models": {"a": {"bg_share": 0.5}}}`)
	o := Overrides{
		Models:    map[string]Values{"a": {"rpm": "50"}},
		Providers: map[string]Values{"p": {"rpm": "70", "max_concurrency": "9", "shared_rpm": "80"}},
	}
	of := func(list []Setting, err error) map[string]string {
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for _, s := range list {
			name := s.Name
			if s.Target != "" {
				name += "@" + s.Target
			}
			m[name] = s.Value + " " + string(s.Source)
		}
		return m
	}
	model := of(c.ModelSettings(o, "a"))
	for name, want := range map[string]string{
		"rpm":                      "50 live:model",
		"max_concurrency@x":        "9 live:provider",
		"max_concurrency@y":        " default",
		"bg_share":                 "0.5 env:model",
		"rate_burst@x":             "20 env:model",
		"timeout_secs.rt":          "60 env:model",
		"timeout_secs.bg":          "200 env:provider",
		"timeout_secs.bulk":        "900 default",
		"embed_timeout_secs.rt":    "60 default",
		"embed_timeout_secs.bulk":  "700 env",
		"attempt_timeout_secs@x":   "90 env:provider",
		"attempt_timeout_secs@y":   "100 env",
		"retry_base_secs":          "1 env",
		"retry_max_secs":           "30 default",
		"routing.rt":               "queue default",
		"routing.rt_queue_percent": "0 default",
		"rt_rate_share":            "0.2 default",
	} {
		if model[name] != want {
			t.Errorf("%s of model a is %q, want %q", name, model[name], want)
		}
	}
	if _, shared := model["shared_rpm"]; shared {
		t.Error("a model has what its provider shares")
	}
	provider := of(c.ProviderSettings(o, "p"))
	for name, want := range map[string]string{"shared_rpm": "80 live:provider", "rpm": "70 live:provider", "attempt_timeout_secs": "90 env:provider", "shared_tpm": " default"} {
		if provider[name] != want {
			t.Errorf("%s of provider p is %q, want %q", name, provider[name], want)
		}
	}
	if _, err := c.ModelSettings(o, "aa"); err == nil || !strings.Contains(err.Error(), "did you mean a?") {
		t.Errorf("got %v", err)
	}
	if _, err := c.ProviderSettings(o, "pp"); err == nil || !strings.Contains(err.Error(), "did you mean p?") {
		t.Errorf("got %v", err)
	}
}
