package settings

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

func some() config.Overrides {
	return config.Overrides{
		Models:      map[string]config.Values{"a": {"rpm": "5", "timeout_secs.rt": "60"}},
		Providers:   map[string]config.Values{"p": {"shared_rpm": "9"}},
		Chains:      map[string][]config.FallbackModel{"a": {{Model: "b", RequireHeadroom: true}}, "b": {}},
		SkipTargets: map[string][]string{"a": {"x"}},
		Killed:      true,
	}
}

func TestDocument_IsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	text, err := Encode(some())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"schema":1,"models":{"a":{"rpm":"5","timeout_secs.rt":"60"}},"providers":{"p":{"shared_rpm":"9"}},` +
		`"chains":{"a":[{"model":"b","require_headroom":true}],"b":[]},"skip_targets":{"a":["x"]},"killed":true}`
	if string(text) != want {
		t.Errorf("stored as %s", text)
	}
	got, err := Parse(text)
	if diff := cmp.Diff(some(), got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

// E2: what can't be read is told apart from what a newer release has written.
func TestParse_RefusesWhatItWouldMisread(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		``: ErrUnreadable, `{`: ErrUnreadable, `[]`: ErrUnreadable, `{}`: ErrUnreadable, `{"schema":0}`: ErrUnreadable, `{"schema":"1"}`: ErrUnreadable,
		`{"schema":1,"weather":true}`: ErrUnreadable, `{"schema":1} {}`: ErrUnreadable, `{"schema":1,"models":{"a":{"rpm":5}}}`: ErrUnreadable,
		`{"schema":2,"weather":true}`: ErrNewer, `{"schema":1,"killed":false,"models":{"a":{"rpm":"` + strings.Repeat("5", MaxBytes) + `"}}}`: ErrUnreadable,
		`{"schema":1}`: nil,
	} {
		if _, err := Parse([]byte(text)); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("%.40s: got %v, want %v", text, err, want)
		}
	}
	if _, err := Encode(config.Overrides{Models: map[string]config.Values{"a": {"rpm": strings.Repeat("5", MaxBytes)}}}); err == nil {
		t.Error("a document that no reader takes is written")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"schema":1}`, `{"schema":1,"models":{"a":{"rpm":"5"}},"chains":{"a":[{"model":"b"}]},"killed":true}`, `{"schema":9}`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Encode(o)
		if err != nil {
			return
		}
		back, err := Parse(again)
		if diff := Differences(o, back); err != nil || len(diff) != 0 {
			t.Errorf("%v %v", err, diff)
		}
	})
}

// E3: several pairs at once, and what is left of nothing is nothing.
func TestSetAndUnset_LeaveTheOldAsItWas(t *testing.T) {
	t.Parallel()
	old := some()
	set := Set(old, Of{Model: "a"}, config.Values{"rpm": "6", "tpm": "7"})
	set = Set(set, Of{Provider: "q"}, config.Values{"rpm": "8"})
	if diff := cmp.Diff(some(), old); diff != "" {
		t.Errorf("the old one has changed: %s", diff)
	}
	none := Unset(Unset(set, Of{Model: "a"}, []string{"rpm", "tpm", "timeout_secs.rt", "never"}), Of{Provider: "q"}, []string{"rpm"})
	if _, there := none.Models["a"]; there || len(none.Providers) != 1 || set.Models["a"]["rpm"] != "6" {
		t.Errorf("after unset: %+v; before: %+v", none, set)
	}
}

func TestDifferences_TellBeforeAndAfter(t *testing.T) {
	t.Parallel()
	var got []string
	for _, d := range Differences(some(), config.Overrides{Models: map[string]config.Values{"a": {"rpm": "6", "timeout_secs.rt": "60", "tpm": "1"}}}) {
		text := func(s *string) string {
			if s == nil {
				return "-"
			}
			return *s
		}
		got = append(got, d.Name+" "+text(d.Before)+" "+text(d.After))
	}
	want := []string{
		`models.a.fallback [{"model":"b","require_headroom":true}] -`, "models.a.rpm 5 6", `models.a.skip_targets ["x"] -`, "models.a.tpm - 1",
		"models.b.fallback [] -", "providers.p.shared_rpm 9 -", "routing.killed true -",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
