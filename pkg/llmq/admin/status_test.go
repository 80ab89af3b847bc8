package admin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

// A target's row says in words what was learned and how sure it is, and leaves out what is not configured.
func TestTargetStatus_SaysWhatWasLearned(t *testing.T) {
	t.Parallel()
	row := TargetStatus{Target: "m@t", Caps: capsOf(llmq.Target{MaxConcurrency: 50, Limits: llmq.Limits{
		Lanes: map[llmq.Lane]int{llmq.LaneBulk: 5, llmq.LaneBG: 0}, Rates: llmq.Rates{RPM: 70},
	}})}
	row.TargetUse = use(capacity.State{
		InUse: 3, Lanes: map[llmq.Lane]int{llmq.LaneRT: 2, llmq.LaneBulk: 1}, Waiting: 4,
		Learned: capacity.Learned{
			Slots: capacity.Ceiling{Limit: 47.3, Certainty: capacity.Known}, Tokens: capacity.Ceiling{Limit: 190_000, Certainty: capacity.Known},
			Starts: capacity.Ceiling{Limit: 480, Certainty: capacity.Sure, Binding: true}, Noise: 0.02, ProbeIn: 12400 * time.Millisecond,
		},
		CallsLeft: 7, CallsUsed: 0, TokensLeft: capacity.None, TokensUsed: capacity.None, SharedCallsLeft: capacity.None, SharedTokensLeft: capacity.None,
		Breaker: capacity.BreakerOpen, OpenFor: 1500 * time.Millisecond, Quarantine: 9 * time.Second, Ended: map[capacity.Ending]int{capacity.OK: 5}, Lapsed: 1,
	})
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	for _, want := range []string{
		`"learned":"about 480 calls/min (binding), about 190k tokens/min, about 47 slots; 2 % of calls are refused as noise; probing in 12 s"`,
		`"in_use":3,`, `"waiting":4`, `"breaker":"open"`, `"open_for_ms":1500`, `"quarantine_ms":9000`, `"lapsed":1`, `"ended":{"ok":5}`,
		`"budgets":{"started_this_minute":0,"rpm_left":7},`,
		`"caps":{"target":50,"lanes":{"bulk":5},"rpm":70},"limit":47,"limit_is":"learned",`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("lacks %s:\n%s", want, text)
		}
	}
}

func TestTargetStatus_WithoutBudgetsShowsNone(t *testing.T) {
	t.Parallel()
	row := TargetStatus{Target: "m@t", Caps: capsOf(llmq.Target{})}
	none := capacity.None
	row.TargetUse = use(capacity.State{
		Learned:   capacity.Learned{Slots: capacity.Ceiling{Limit: 20}},
		CallsLeft: none, CallsUsed: none, TokensLeft: none, TokensUsed: none, SharedCallsLeft: none, SharedTokensLeft: none,
	})
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	if s := string(text); strings.Contains(s, "budgets") || strings.Contains(s, "caps") || !strings.Contains(s, `"limit_is":"unproven"`) {
		t.Errorf("row = %s", s)
	}
}

// With the state store down a row claims nothing of what it doesn't know.
func TestTargetStatus_UnreadHasNoUse(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(TargetStatus{Target: "m@t", Caps: Caps{Target: 20}, Error: "down"})
	if err != nil || string(text) != `{"target":"m@t","caps":{"target":20},"error":"down"}` {
		t.Errorf("row = %s, %v", text, err)
	}
}
