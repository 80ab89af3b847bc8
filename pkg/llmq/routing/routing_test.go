package routing

import (
	"fmt"
	"math"
	"testing"
)

// E4 and E12: what may not be run where its caller waits is queued, whatever the rule; the kill switch leaves no queue.
func TestDecide_Ways(t *testing.T) {
	t.Parallel()
	rules := Rules{Models: map[string]Rule{"q": {}, "a": {Way: Auto}, "d": {Way: Direct}, "c": {Way: Direct, QueuePercent: 100}}}
	killed := rules
	killed.Killed = true
	for _, tc := range []struct {
		rules Rules
		call  Call
		want  Way
	}{
		{Rules{}, Call{Model: "a", May: true, ID: "1"}, Queue},
		{rules, Call{Model: "q", May: true, ID: "1"}, Queue},
		{rules, Call{Model: "a", May: true, ID: "1"}, Auto},
		{rules, Call{Model: "d", May: true, ID: "1"}, Direct},
		{rules, Call{Model: "c", May: true, ID: "1"}, Queue},
		{rules, Call{Model: "d", May: false, ID: "1"}, Queue},
		{rules, Call{Model: "new", May: true, ID: "1"}, Queue},
		{killed, Call{Model: "q", May: true, ID: "1"}, DirectOnly},
		{killed, Call{Model: "c", May: false, ID: "1"}, DirectOnly},
	} {
		if got := tc.rules.Decide(tc.call); got != tc.want {
			t.Errorf("%+v under %+v: %d, want %d", tc.call, tc.rules, got, tc.want)
		}
	}
}

// E4: a canary takes its part of the sessions, keeps each on its side, and only grows when it is raised.
func TestDecide_CanaryIsSticky(t *testing.T) {
	t.Parallel()
	const sessions = 20_000
	queued := map[string]int{}
	for i := range sessions {
		session := fmt.Sprint("session-", i)
		before := false
		for _, percent := range []float64{0, 0.5, 10, 50, 100} {
			rules := Rules{Models: map[string]Rule{"m": {Way: Auto, QueuePercent: percent}}}
			now := rules.Decide(Call{Model: "m", May: true, Session: session, ID: "1"}) == Queue
			if again := rules.Decide(Call{Model: "m", May: true, Session: session, ID: "2"}) == Queue; again != now {
				t.Fatalf("%s goes two ways at %v %%", session, percent)
			}
			if before && !now {
				t.Fatalf("%s was moved back at %v %%", session, percent)
			}
			if before = now; now {
				queued[fmt.Sprint(percent)]++
			}
		}
	}
	for percent, want := range map[string]float64{"0": 0, "0.5": 0.5, "10": 10, "50": 50, "100": 100} {
		if got := 100 * float64(queued[percent]) / sessions; math.Abs(got-want) > 1.5 {
			t.Errorf("at %s %% there are %.2f %% queued", percent, got)
		}
	}
	ids := 0
	for i := range 1000 {
		if (Rules{Models: map[string]Rule{"m": {Way: Auto, QueuePercent: 50}}}).Decide(Call{Model: "m", May: true, ID: fmt.Sprint("id-", i)}) == Queue {
			ids++
		}
	}
	if ids < 400 || ids > 600 {
		t.Errorf("%d of 1000 calls without a session are queued at 50 %%", ids)
	}
}
