package llmq_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func TestParseModelRef_ReadsBothForms(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]llmq.ModelRef{
		"chat-a":      {Alias: "chat-a"},
		"chat-a@apac": {Alias: "chat-a", Target: "apac"},
		"arn:aws:bedrock:eu-west-1:111122223333:inference-profile/eu.anthropic.claude-v1:0": {Alias: "arn:aws:bedrock:eu-west-1:111122223333:inference-profile/eu.anthropic.claude-v1:0"},
		"qwen/qwen3_8b+lora.1":                {Alias: "qwen/qwen3_8b+lora.1"},
		strings.Repeat("a", 2046) + "@" + "b": {Alias: strings.Repeat("a", 2046), Target: "b"},
	} {
		got, err := llmq.ParseModelRef(in)
		if err != nil || got != want || got.String() != in {
			t.Errorf("%.60q = %+v, %v; want %+v and back", in, got, err, want)
		}
	}
}

func TestParseModelRef_RefusesOtherForms(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "@", "@t", "m@", "m@t@u", "m m", "m\n", "m\x00", "modèle", "m?x", "m{rid}", "m*", strings.Repeat("a", 2049)} {
		ref, err := llmq.ParseModelRef(in)
		if e := llmq.AsError(err); e == nil || e.Code != llmq.CodeInvalidRequest || e.Field != "model" || ref != (llmq.ModelRef{}) || len(e.Message) > 300 {
			t.Errorf("%.60q = %+v, %v; want invalid_request at model", in, ref, err)
		}
	}
}

func FuzzParseModelRef(f *testing.F) {
	for _, seed := range []string{"a", "a@b", "@", "a@@b", "arn:aws:x/y", "\xff", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := llmq.ParseModelRef(s)
		if err != nil {
			if !errors.Is(err, llmq.CodeInvalidRequest) {
				t.Fatalf("%q: %v has another code", s, err)
			}
			return
		}
		if ref.String() != s || ref.Alias == "" || strings.ContainsAny(s, " {}*\n") {
			t.Errorf("%q passed as %+v", s, ref)
		}
	})
}

func catalogue(any bool) llmq.Catalogue {
	oa, cv := []llmq.Wire{llmq.WireOpenAI}, []llmq.Wire{llmq.WireConverse}
	return llmq.NewCatalogue([]llmq.Model{
		{Alias: "chat-a", Lanes: []llmq.Lane{llmq.LaneRT, llmq.LaneBG}, Targets: []llmq.Target{
			{Model: "chat-a", Name: "main", Provider: "p1", ModelID: "gpt-x", Wires: oa, MaxConcurrency: 1},
			{Model: "chat-a", Name: "apac", Provider: "p2", ModelID: "apac.gpt", Wires: []llmq.Wire{llmq.WireConverse, llmq.WireOpenAI}, MaxConcurrency: 2},
		}},
		{Alias: "claude", Lanes: llmq.Lanes(), Targets: []llmq.Target{{Model: "claude", Name: "eu", Provider: "p2", ModelID: "anthropic.c", Wires: cv, MaxConcurrency: 3}}},
		{Alias: "local", Lanes: []llmq.Lane{llmq.LaneRT, llmq.LaneBG}, Any: any, Targets: []llmq.Target{{Model: "local", Name: "l", Provider: "p3", Wires: oa, MaxConcurrency: 1}}},
	})
}

// A3: an unknown model or target is refused before anything is sent.
func TestCatalogue_Resolve(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		ref     llmq.ModelRef
		wire    llmq.Wire
		any     bool
		alias   string
		targets []string
		code    llmq.Code
	}{
		{"alias, all targets in order", llmq.ModelRef{Alias: "chat-a"}, llmq.WireOpenAI, false, "chat-a", []string{"main", "apac"}, ""},
		{"alias, only those that speak the wire", llmq.ModelRef{Alias: "chat-a"}, llmq.WireConverse, false, "chat-a", []string{"apac"}, ""},
		{"pinned", llmq.ModelRef{Alias: "chat-a", Target: "apac"}, llmq.WireOpenAI, false, "chat-a", []string{"apac"}, ""},
		{"pinned, wrong wire", llmq.ModelRef{Alias: "chat-a", Target: "main"}, llmq.WireConverse, false, "chat-a", nil, llmq.CodeWrongWire},
		{"by a target's model id", llmq.ModelRef{Alias: "anthropic.c"}, llmq.WireConverse, false, "claude", []string{"eu"}, ""},
		{"model id with a target is no alias", llmq.ModelRef{Alias: "anthropic.c", Target: "eu"}, llmq.WireConverse, true, "", nil, llmq.CodeModelNotFound},
		{"wrong wire", llmq.ModelRef{Alias: "claude"}, llmq.WireOpenAI, false, "claude", nil, llmq.CodeWrongWire},
		{"unknown", llmq.ModelRef{Alias: "chat-b"}, llmq.WireOpenAI, false, "", nil, llmq.CodeModelNotFound},
		{"unknown, with a catch-all", llmq.ModelRef{Alias: "whatever"}, llmq.WireOpenAI, true, "local", []string{"l"}, ""},
		{"unknown target", llmq.ModelRef{Alias: "chat-a", Target: "apak"}, llmq.WireOpenAI, true, "", nil, llmq.CodeModelNotFound},
		{"case counts", llmq.ModelRef{Alias: "Chat-A"}, llmq.WireOpenAI, false, "", nil, llmq.CodeModelNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m, targets, err := catalogue(tc.any).Resolve(tc.ref, tc.wire)
			var names []string
			for _, target := range targets {
				names = append(names, target.Name)
			}
			var code llmq.Code
			if err != nil {
				code = llmq.AsError(err).Code
			}
			if diff := cmp.Diff([]any{tc.alias, tc.targets, tc.code}, []any{m.Alias, names, code}); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestCatalogue_HintsAtWhatIsNear(t *testing.T) {
	t.Parallel()
	for ref, want := range map[llmq.ModelRef]string{
		{Alias: "chat-b"}:                 "did you mean chat-a?",
		{Alias: "chat-a", Target: "apak"}: "did you mean apac?",
		{Alias: "chat-a", Target: "main"}: "it speaks openai, converse",
	} {
		_, _, err := catalogue(false).Resolve(ref, llmq.WireConverse)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q in it", ref, err, want)
		}
	}
}

func TestModel_QueueFallsBackToTheDefaultLane(t *testing.T) {
	t.Parallel()
	m := llmq.Model{Lanes: []llmq.Lane{llmq.LaneRT, llmq.LaneBG}}
	for lane, want := range map[llmq.Lane]llmq.Lane{llmq.LaneRT: llmq.LaneRT, llmq.LaneBG: llmq.LaneBG, llmq.LaneBulk: llmq.LaneBG} {
		if got := m.Queue(lane); got != want {
			t.Errorf("lane %s goes to %s, want %s", lane, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"model", "lane", "fallback", "rt"}
	for got, want := range map[string]string{
		"modle": "model", "MODEL": "model", "lnae": "lane", "fallbakc": "fallback", "rtt": "rt",
		"": "", "entirely else": "", "xx": "", "m": "", strings.Repeat("model", 20): "",
	} {
		if n := llmq.Nearest(got, names); n != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", got, n, want)
		}
	}
	if n := llmq.Nearest("a", nil); n != "" {
		t.Errorf("nothing is near to nothing: %q", n)
	}
}

func TestClip_CutsAtARuneAndSaysSo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aé", 2, "a…"}, {"é", 1, "…"}, {"日本", 4, "日…"}, {"", 0, ""}} {
		if got := llmq.Clip(tc.in, tc.n); got != tc.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", tc.in, tc.n, got, tc.want)
		}
	}
}

func TestLane_TimesAndNames(t *testing.T) {
	t.Parallel()
	for lane, want := range map[llmq.Lane][2]time.Duration{
		llmq.LaneRT: {90 * time.Second, 300 * time.Second}, llmq.LaneBG: {300 * time.Second, time.Hour}, llmq.LaneBulk: {900 * time.Second, 12 * time.Hour},
	} {
		if got := [2]time.Duration{lane.DefaultTimeout(), lane.MaxTimeout()}; got != want {
			t.Errorf("%s: %v, want %v (FEATURES A2)", lane, got, want)
		}
		if got, err := llmq.ParseLane(string(lane)); err != nil || got != lane {
			t.Errorf("ParseLane(%s) = %s, %v", lane, got, err)
		}
	}
	if got, err := llmq.ParseLane(""); err != nil || got != llmq.LaneRT {
		t.Errorf("no lane = %s, %v; want rt", got, err)
	}
}

func TestParse_RefusesUnknownNames(t *testing.T) {
	t.Parallel()
	for name, parse := range map[string]func(string) error{
		"lane":     func(s string) error { _, err := llmq.ParseLane(s); return err },
		"wire":     func(s string) error { _, err := llmq.ParseWire(s); return err },
		"op":       func(s string) error { _, err := llmq.ParseOp(s); return err },
		"fallback": func(s string) error { _, err := llmq.ParseFallback(s); return err },
	} {
		for _, s := range []string{"x", "RT", " rt", strings.Repeat("y", 5000)} {
			if err := parse(s); err == nil || len(err.Error()) > 200 {
				t.Errorf("%s %.20q: %v, want a short error", name, s, err)
			}
		}
	}
}

func TestOp_HasAWire(t *testing.T) {
	t.Parallel()
	for _, o := range llmq.Ops() {
		if _, err := llmq.ParseWire(string(o.Wire())); err != nil && o != llmq.OpJob { // whose wire nobody configures
			t.Errorf("op %s: %v", o, err)
		}
	}
	if w := llmq.Op("x").Wire(); w != "" {
		t.Errorf("an unknown op has the wire %q", w)
	}
}

func TestOps_EachHasAWireAndAName(t *testing.T) {
	t.Parallel()
	always := 0
	for _, o := range llmq.Ops() {
		if parsed, err := llmq.ParseOp(string(o)); err != nil || parsed != o || !slices.Contains(append(llmq.Wires(), llmq.WireJob), o.Wire()) {
			t.Errorf("%s: %v of wire %q", o, err, o.Wire())
		}
		if o.Streaming() == llmq.StreamAlways {
			always++
		}
	}
	if always != 2 {
		t.Errorf("%d ops come in events always", always)
	}
}

// D12: each lane has a tier of its own, and asks for it where the target has it.
func TestTarget_TierOfALane(t *testing.T) {
	t.Parallel()
	all := llmq.Target{Tiers: []llmq.Tier{llmq.TierFlex, llmq.TierDefault, llmq.TierPriority}}
	some := llmq.Target{Tiers: []llmq.Tier{llmq.TierFlex}}
	for lane, want := range map[llmq.Lane]llmq.Tier{llmq.LaneRT: llmq.TierPriority, llmq.LaneBG: llmq.TierDefault, llmq.LaneBulk: llmq.TierFlex} {
		if got := all.Tier(lane); got != want {
			t.Errorf("%s asks for %q, want %q", lane, got, want)
		}
		if got := some.Tier(lane); got != "" && lane != llmq.LaneBulk {
			t.Errorf("%s asks for %q, which is not there", lane, got)
		}
	}
}

// jobs is a catalogue with a queue of jobs.
func jobs() llmq.Catalogue {
	return llmq.NewCatalogue([]llmq.Model{
		{Alias: "any", Any: true, Lanes: llmq.Lanes(), Targets: []llmq.Target{{Model: "any", Name: "main", Provider: "p", Wires: llmq.Wires()}}},
		{Alias: "files", Lanes: []llmq.Lane{llmq.LaneBulk}, Targets: []llmq.Target{{Model: "files", Name: llmq.JobTarget, Provider: llmq.JobProvider, Wires: []llmq.Wire{llmq.WireJob}, MaxConcurrency: 3}}},
	})
}

// A6: a queue of jobs takes every function's name, in one target whose slots are all of theirs; it takes nothing else, and a model
// takes no job.
func TestCatalogue_JobsAreNamedByQueueAndFunction(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"resize", "no-such"} {
		m, targets, err := jobs().Resolve(llmq.ModelRef{Alias: "files", Target: name}, llmq.WireJob)
		if err != nil || len(targets) != 1 || targets[0].String() != "files@jobs" || targets[0].ModelID != name || targets[0].MaxConcurrency != 3 || !m.Jobs() {
			t.Errorf("%s: %+v, %v", name, targets, err)
		}
		if q := m.Queue(llmq.LaneBG); q != llmq.LaneBulk {
			t.Errorf("its queue is that of %s", q)
		}
	}
	for ref, want := range map[llmq.ModelRef]llmq.Code{
		{Alias: "files"}:              llmq.CodeInvalidRequest,
		{Alias: "any"}:                llmq.CodeWrongWire,
		{Alias: "any", Target: "x"}:   llmq.CodeModelNotFound,
		{Alias: "other", Target: "x"}: llmq.CodeModelNotFound,
	} {
		if _, _, err := jobs().Resolve(ref, llmq.WireJob); !errors.Is(err, want) {
			t.Errorf("a job of %s: %v, want %s", ref, err, want)
		}
	}
	if _, _, err := jobs().Resolve(llmq.ModelRef{Alias: "files", Target: "resize"}, llmq.WireOpenAI); !errors.Is(err, llmq.CodeWrongWire) {
		t.Errorf("a chat of a queue of jobs: %v", err)
	}
}

// A job has one lane, and needs to name none.
func TestOp_ParseLaneOfAJob(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]llmq.Lane{"": llmq.LaneBulk, "bulk": llmq.LaneBulk, "rt": "", "x": ""} {
		if got, err := llmq.OpJob.ParseLane(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	if got, err := llmq.OpChat.ParseLane(""); got != llmq.LaneRT || err != nil {
		t.Errorf("a chat's is %q, %v", got, err)
	}
}
