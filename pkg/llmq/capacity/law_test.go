package capacity

import (
	"testing"
	"time"
)

func TestLawConfig_TextIsWholeNumbersInTheLawsUnits(t *testing.T) {
	t.Parallel()
	c := DefaultLaw()
	c.MaxStarts, c.MaxTokens, c.BackgroundShare, c.Window = 480, 190_000, 0.55, 1500*time.Millisecond
	if got, want := c.Text(), "2000 480 190000 550 200 1500 20 2 50 500 1000"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
}

func TestLearned_String(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		facts []int64
		want  string
	}{
		{"new", []int64{0, 20_000, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "20 slots, not refused yet"},
		{
			"a rate binds",
			[]int64{0, 47_300, 2, 480_000, 3, 190_000, 2, 2, 200, 12_400, 0},
			"about 480 calls/min (binding), about 190k tokens/min, about 47 slots; 2 % of calls are refused as noise; probing in 12 s",
		},
		{"a suspect", []int64{0, 8000, 1, 0, 0, 0, 0, 1, 0, 0, 0}, "perhaps 8 slots (binding)"},
		{"capped", []int64{0, 10_000, 4, 600_000, 4, 0, 0, 1, 0, 0, 0}, "600 calls/min as configured, 10 slots as configured (binding)"},
		{"a cut is judged", []int64{1, 30_000, 1, 0, 0, 0, 0, 0, 150, 500, 0}, "perhaps 30 slots; 1.5 % of calls are refused as noise; checking whether the last cut helped"},
		{"closed", []int64{3, 30_000, 1, 0, 0, 1_200_000, 1, 3, 0, 500, 4800}, "perhaps 1.2M tokens/min (binding), perhaps 30 slots; closed for 5 s"},
		{"half open", []int64{4, 30_000, 1, 0, 0, 0, 0, 0, 0, 0, 0}, "perhaps 30 slots; a few calls try whether it is open"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l, err := ReadLearned(tc.facts)
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			if got := l.String(); got != tc.want {
				t.Errorf("words:\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestReadLearned_RefusesAnotherNumberOfFacts(t *testing.T) {
	t.Parallel()
	for _, facts := range [][]int64{nil, make([]int64, learnedFacts-1), make([]int64, learnedFacts+1)} {
		if l, err := ReadLearned(facts); err == nil {
			t.Errorf("read %d facts = %v, want an error", len(facts), l)
		}
	}
}
