package governor

import (
	"testing"

	"pgregory.net/rapid"
)

// C11: the rule, and what each of its parts is for.
func TestDecide_Rule(t *testing.T) {
	t.Parallel()
	one := func(limit float64) []Target { return []Target{{Limit: limit, Share: 0.8}} }
	for _, tt := range []struct {
		name string
		f    Facts
		want Decision
	}{
		{"share of the limit by the batch, rounded up", Facts{Chain: one(100), Batch: 10, Ceiling: 30, Now: 30, Steady: true}, Decision{8, true, Lowered}},
		{"rounded up, not to the nearest", Facts{Chain: one(101), Batch: 10, Ceiling: 30, Now: 2, Steady: true}, Decision{9, true, Raised}},
		{"a whole number stays one", Facts{Chain: []Target{{Limit: 30, Share: 0.7}}, Batch: 1, Ceiling: 30, Now: 2, Steady: true}, Decision{21, true, Raised}},
		{"never below what a source takes", Facts{Chain: one(1), Batch: 10, Ceiling: 30, Now: 10, Steady: true}, Decision{2, true, Lowered}},
		{"never above the template", Facts{Chain: one(2000), Batch: 10, Ceiling: 30, Now: 10, Steady: true}, Decision{30, true, Raised}},
		{"a lane's cap", Facts{Chain: []Target{{Limit: 100, Share: 0.8, Lane: 40}}, Batch: 10, Ceiling: 30, Now: 30, Steady: true}, Decision{4, true, Lowered}},
		{"batches of one", Facts{Chain: one(10), Batch: 1, Ceiling: 30, Now: 30, Steady: true}, Decision{8, true, Lowered}},
		{"no batch size told", Facts{Chain: one(10), Ceiling: 30, Now: 30, Steady: true}, Decision{8, true, Lowered}},
		{"one of seven is neither a fifth nor two", Facts{Chain: one(100), Batch: 10, Ceiling: 30, Now: 7, Steady: true}, Decision{8, false, Close}},
		{"one of five is a fifth", Facts{Chain: one(50), Batch: 10, Ceiling: 30, Now: 5, Steady: true}, Decision{4, true, Lowered}},
		{"two of fifty", Facts{Chain: one(600), Batch: 10, Ceiling: 100, Now: 50, Steady: true}, Decision{48, true, Lowered}},
		{"as it is", Facts{Chain: one(100), Batch: 10, Ceiling: 30, Now: 8, Steady: true}, Decision{8, false, Close}},
		{"a deploy has put the template's value back", Facts{Chain: one(100), Batch: 10, Ceiling: 10, Now: 10, Steady: true}, Decision{8, true, Lowered}},
		{"wider than the template, by little", Facts{Chain: one(2000), Batch: 10, Ceiling: 10, Now: 11, Steady: true}, Decision{10, true, Over}},
		{"without a bound", Facts{Chain: one(100), Batch: 10, Ceiling: 10, Steady: true}, Decision{8, true, Over}},
		{"the first target is closed", Facts{Chain: []Target{{Limit: 100, Share: 0.8, Closed: true}, {Limit: 50, Share: 1}}, Batch: 10, Ceiling: 30, Now: 8, Steady: true}, Decision{5, true, Lowered}},
		{"targets are not added up", Facts{Chain: append(one(100), one(900)...), Batch: 10, Ceiling: 30, Now: 8, Steady: true}, Decision{8, false, Close}},
		{"all are closed", Facts{Chain: []Target{{Limit: 100, Share: 0.8, Closed: true}}, Batch: 10, Ceiling: 30, Now: 8, Steady: true}, Decision{2, true, Lowered}},
		{"a change is under way", Facts{Chain: one(100), Batch: 10, Ceiling: 30, Now: 30}, Decision{8, false, Changing}},
		{"paused", Facts{Chain: one(100), Batch: 10, Ceiling: 30, Now: 30, Steady: true, Paused: true}, Decision{8, false, Held}},
		{"limits unknown", Facts{Chain: one(100), Batch: 10, Ceiling: 30, Now: 30, Steady: true, Blind: true}, Decision{0, false, Unknown}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Decide(tt.f); got != tt.want {
				t.Errorf("decision = %+v, want %+v", got, tt.want)
			}
		})
	}
}

// Whatever the facts: within what a source takes and what was deployed, and at rest once obeyed.
func TestDecide_IsBoundedAndSettles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := Facts{
			Batch: rapid.IntRange(1, 10).Draw(t, "batch"), Ceiling: rapid.IntRange(2, 1000).Draw(t, "ceiling"),
			Now: rapid.IntRange(0, 1000).Draw(t, "now"), Steady: true,
		}
		for range rapid.IntRange(0, 3).Draw(t, "targets") {
			f.Chain = append(f.Chain, Target{
				Limit: rapid.Float64Range(0, 1e5).Draw(t, "limit"), Share: rapid.Float64Range(0.001, 1).Draw(t, "share"),
				Lane: rapid.IntRange(0, 100).Draw(t, "lane"), Closed: rapid.Bool().Draw(t, "closed"),
			})
		}
		d := Decide(f)
		if d.Want < Least || d.Want > f.Ceiling {
			t.Fatalf("want %d is not within %d and %d", d.Want, Least, f.Ceiling)
		}
		if !d.Move {
			return
		}
		f.Now = d.Want
		if again := Decide(f); again.Move {
			t.Fatalf("obeyed, it moves again: %+v", again)
		}
	})
}
