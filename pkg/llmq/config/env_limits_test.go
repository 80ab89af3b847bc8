package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// C4 to C7: limits can be tried where no file can be given.
func TestSettingsVariable_SetsTargets(t *testing.T) {
	t.Parallel()
	got := limitsOf(t, limited,
		`LLMQ_SETTINGS={"models": {"a@y": {"rpm": 70, "bg_share": 1}, "a": {"rpm": 60, "rate_burst": 5, "max_concurrency": 7, "lane_max_concurrency": {"bulk": 2}, "rate_window": "smooth", "breaker_cooldown_secs": 1.5}},
			"providers": {"p": {"shared_max_concurrency": 4, "shared_tpm": 50000}}}`)
	for name, want := range map[string]struct {
		rpm, most int
		share     float64
	}{"x": {60, 7, 1}, "y": {70, 7, 1}} {
		g := got[name]
		if g.Limits.Rates.RPM != want.rpm || g.MaxConcurrency != want.most || g.Limits.Lanes[llmq.LaneBulk] != 2 || g.Limits.Lanes[llmq.LaneBG] != 4 ||
			g.Limits.BackgroundShare != want.share || g.Limits.Rates.Burst != 5 || g.Limits.Rates.Fixed || g.Limits.Breaker.Cooldown.Seconds() != 1.5 {
			t.Errorf("%s: %+v", name, g)
		}
		if g.Shared.MaxConcurrency != 4 || g.Shared.Rates.TPM != 50000 || g.Shared.Rates.RPM != 800 {
			t.Errorf("%s shares %+v", name, g.Shared)
		}
	}
}

// What is wrong in them is told as it is for the file, by the variable's name.
func TestSettingsVariable_FaultsAreTold(t *testing.T) {
	t.Parallel()
	const model, provider = `{"models": %s}`, `{"providers": %s}`
	for _, tc := range []struct{ part, value, want string }{
		{model, `{"a": {"rpn": 60}}`, "LLMQ_SETTINGS: a.rpn: no such key; did you mean rpm?"},
		{model, `{"a": {"lane_max_concurrency": {"bulkk": 1}}}`, "did you mean lane_max_concurrency.bulk?"},
		{model, `{"a": {"rpm": 0}}`, "models.a.targets[0].rpm: must be 1 to 10000000, not 0: leave it out for no budget; pause the queue to stop calls"},
		{model, `{"a": {"rpm": "60"}}`, "a.rpm: must be a number, without quotes"},
		{model, `{"a": {"rate_window": 1}}`, "a.rate_window: must be text, in quotes"},
		{model, `{"a": {"rate_window": "daily"}}`, "rate_window: must be one of smooth, fixed"},
		{model, `{"a": {"rpm": 1e3}}`, "in plain digits"},
		{model, `{"a": {"shared_rpm": 1}}`, "a.shared_rpm: no such key"},
		{model, `{"a": {"rpm": true}}`, "must be a whole number"},
		{model, `{"a": {"rpm": null}}`, `"rpm" is null`},
		{model, `{"a": {"rpm": {}}}`, `"rpm" is empty`},
		{model, `{"a": {"rpm": [1]}}`, `"rpm" is no setting`},
		{model, `{"a": {"rpm": 1, "rpm": 2}}`, `"rpm" is given twice`},
		{model, `{"a": {"lane_max_concurrency.bulk": 1}}`, "holds a dot"},
		{model, `{"a": 3}`, `the value of "a" is no object of settings`},
		{`%s`, `[]`, "it is no object"},
		{`{"model": %s}`, `{"a": {"rpm": 1}}`, "model: no such key; did you mean models?"},
		{model, `{"a@x": {"timeout_secs": {"rt": 9}}}`, "a@x.timeout_secs.rt: no such key"},
		{`%s`, `{"models": {"a": {"rpm": 1}}`, "it ends early"},
		{`%s {}`, `{"models": {"a": {"rpm": 1}}}`, "something follows the object"},
		{model, `{"b": {"rpm": 1}}`, `no model is named "b"`},
		{model, `{"a@z": {"rpm": 1}}`, `no model is named "a@z"`},
		{provider, `{"q": {"shared_rpm": 1}}`, `no provider is named "q"`},
		{provider, `{"p": {"shared_rpmm": 1}}`, "p.shared_rpmm: no such key; did you mean shared_rpm?"},
		{provider, `{"p": {"shared_max_concurrency": 2001}}`, "providers.p.shared_max_concurrency: must be 1 to 2000, not 2001: more than 2000 calls"},
	} {
		_, err := Parse("x", []byte(limited), []string{"LLMQ_DEV_PEPPER=x", "LLMQ_SETTINGS=" + fmt.Sprintf(tc.part, tc.value)})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.value, err, tc.want)
		}
	}
}

// Two variables that say the same are one too many.
func TestSettingsVariable_OneVariableALimit(t *testing.T) {
	t.Parallel()
	_, err := Parse("x", []byte(limited), []string{"LLMQ_DEV_PEPPER=x", `LLMQ_AC_MAX_BY_MODEL={"a": 4}`, `LLMQ_SETTINGS={"models": {"a@x": {"max_concurrency": 3}}}`})
	if err == nil || !strings.Contains(err.Error(), "a@x.max_concurrency: is given by LLMQ_AC_MAX_BY_MODEL too; set one of them") {
		t.Errorf("got %v", err)
	}
}

// A budget of tokens alone has a burst that can't be set.
func TestBurst_NeedsRPM(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("    rpm: 300\n", "", "rpm: 500, ", "").Replace(limited)
	_, err := Parse("x", []byte(text), []string{"LLMQ_DEV_PEPPER=x"})
	if err == nil || !strings.Contains(err.Error(), "models.a.targets[0].rate_burst: needs rpm; with tpm alone a tenth of it can be spent at once") {
		t.Errorf("got %v", err)
	}
}

func TestWarnings_TellWhatIsHidden(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, limits, want string }{
		{"nothing", `{"rpm": 60, "tpm": 60000}`, ""},
		{"a lane's cap", `{"max_concurrency": 2, "lane_max_concurrency": {"bulk": 3}}`, "models.chat.targets[0].lane_max_concurrency.bulk: 3 is above max_concurrency, 2, and so caps nothing"},
		{"a burst of a fixed window", `{"rpm": 60, "rate_burst": 5, "rate_window": "fixed"}`, "models.chat.targets[0].rate_burst: 5 does nothing with rate_window: fixed, which hands a minute's budget out whole"},
		{"tokens for no call", `{"tpm": 6000}`, "models.chat.targets[0].tpm: 6000 has at most 600 tokens at once, and calls that name no maximum of output reserve 1000 and their input: they are refused; raise tpm, or set rate_window: fixed, or have them ask for less"},
		{"tokens for rt alone", `{"rpm": 60, "rate_burst": 6, "tpm": 12000}`, "models.chat.targets[0].tpm: 12000 has at most 960 tokens at once, and calls in bg and bulk that name no maximum of output reserve 1000 and their input: they are refused; raise tpm or rate_burst, or set rate_window: fixed, or have them ask for less"},
		{"a whole minute's tokens", `{"tpm": 6000, "rate_window": "fixed"}`, ""},
		{"a whole minute's tokens that are too few", `{"tpm": 1000, "rate_window": "fixed"}`, "models.chat.targets[0].tpm: 1000 has at most 1000 tokens at once, and calls that name no maximum of output reserve 1000 and their input: they are refused; raise tpm, or have them ask for less"},
	} {
		c, err := Parse("x", []byte(example), []string{"LLMQ_DEV_PEPPER=x", `LLMQ_SETTINGS={"models": {"chat": ` + tc.limits + `}}`})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, strings.Join(c.Warnings(), "\n")); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

func TestWarnings_OfWhatProvidersShare(t *testing.T) {
	t.Parallel()
	c, err := Parse("x", []byte(example), []string{"LLMQ_DEV_PEPPER=x", `LLMQ_SETTINGS={"providers": {"openai": {"shared_tpm": 9000}}}`})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Warnings(), "\n"); !strings.HasPrefix(got, "providers.openai.shared_tpm: 9000 has at most 900 tokens at once") {
		t.Errorf("got %q", got)
	}
}

// Each end of a range has a reason that fits it.
func TestBounds_EachEndHasItsReason(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ limits, want string }{
		{`{"max_concurrency": 0}`, "must be 1 to 2000, not 0: leave it out for no cap; pause the queue to stop calls"},
		{`{"max_concurrency": 2001}`, "must be 1 to 2000, not 2001: more than 2000 calls at once is no target but an accident"},
		{`{"max_concurrency": -5}`, "not -5: leave it out for no cap"},
		{`{"breaker_threshold": 0}`, "must be 1 to 1000, not 0: there must be a failure to open it; leave it out for the default"},
		{`{"breaker_threshold": 1001}`, "not 1001: beyond it nothing ever opens"},
	} {
		_, err := Parse("x", []byte(example), []string{"LLMQ_DEV_PEPPER=x", `LLMQ_SETTINGS={"models": {"chat": ` + tc.limits + `}}`})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.limits, err, tc.want)
		}
	}
}
