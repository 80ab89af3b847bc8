package capacity

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// aTime is the begin of a minute.
var aTime = time.Unix(1_800_000_000, 0).Truncate(time.Minute)

func learned(slots float64) Learned { return Learned{Slots: Ceiling{Limit: slots}} }

// C9, DS56: a caller's part is what was last heard ÷ the callers, and less than one is none.
func TestPart_IsTheWholeDividedByTheCallers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		callers int
		learned Learned
		target  llmq.Target
		cost    int
		after   time.Duration // the outage's begin
		want    int           // calls at once
	}{
		"learned limit":                 {callers: 3, learned: learned(20), want: 6},
		"learned limit of one":          {callers: 1, learned: learned(7.9), want: 7},
		"more callers than slots":       {callers: 8, learned: learned(7), want: 0},
		"cap":                           {callers: 3, learned: learned(20), target: llmq.Target{MaxConcurrency: 10}, want: 3},
		"cap above what was learned":    {callers: 2, learned: learned(5), target: llmq.Target{MaxConcurrency: 10}, want: 2},
		"lane's cap":                    {callers: 2, learned: learned(20), target: llmq.Target{Limits: llmq.Limits{Lanes: map[llmq.Lane]int{llmq.LaneRT: 3}}}, want: 1},
		"another lane's":                {callers: 2, learned: learned(20), target: llmq.Target{Limits: llmq.Limits{Lanes: map[llmq.Lane]int{llmq.LaneBG: 2}}}, want: 10},
		"provider's cap":                {callers: 2, learned: learned(20), target: llmq.Target{Shared: llmq.SharedLimits{MaxConcurrency: 9}}, want: 4},
		"nobody is known":               {learned: learned(20), want: 0},
		"budget at the begin":           {callers: 1, learned: learned(20), target: budgeted(llmq.Rates{RPM: 60}), want: 0},
		"budget after 2 s":              {callers: 1, learned: learned(20), target: budgeted(llmq.Rates{RPM: 60}), after: 2 * time.Second, want: 2},
		"budget of two":                 {callers: 2, learned: learned(20), target: budgeted(llmq.Rates{RPM: 60}), after: 2 * time.Second, want: 1},
		"budget, its burst":             {callers: 2, learned: learned(20), target: budgeted(llmq.Rates{RPM: 60}), after: time.Hour, want: 3},
		"more callers than burst":       {callers: 7, learned: learned(20), target: budgeted(llmq.Rates{RPM: 60}), after: time.Hour, want: 0},
		"tokens":                        {callers: 2, learned: learned(20), target: budgeted(llmq.Rates{TPM: 6000}), cost: 100, after: time.Hour, want: 3},
		"more tokens than a part has":   {callers: 2, learned: learned(20), target: budgeted(llmq.Rates{TPM: 6000}), cost: 301, after: time.Hour, want: 0},
		"minute that had begun":         {callers: 1, learned: learned(20), target: budgeted(llmq.Rates{RPM: 8, Fixed: true}), after: 30 * time.Second, want: 0},
		"minute of the calendar":        {callers: 3, learned: learned(20), target: budgeted(llmq.Rates{RPM: 8, Fixed: true}), after: 50 * time.Second, want: 2},
		"provider's budget":             {callers: 2, learned: learned(20), target: llmq.Target{Shared: llmq.SharedLimits{Rates: llmq.Rates{RPM: 40}}}, after: time.Hour, want: 2},
		"learned rate":                  {callers: 2, learned: Learned{Slots: Ceiling{Limit: 20}, Starts: Ceiling{Limit: 60}}, after: time.Hour, want: 3},
		"before anybody was left alone": {callers: 1, learned: learned(20), after: -time.Second, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p Part
			tc.target.Model, tc.target.Name, tc.target.Provider = "m", "t", "p"
			since := aTime.Add(15 * time.Second)
			p.Share(tc.callers, since)
			got := 0
			for ; got < 100; got++ {
				if p.Take(Ask{Target: tc.target, Lane: llmq.LaneRT, Tokens: tc.cost}, tc.learned, since.Add(tc.after)) == nil {
					break
				}
			}
			if got != tc.want {
				t.Errorf("%d calls at once, want %d", got, tc.want)
			}
		})
	}
}

func budgeted(r llmq.Rates) llmq.Target { return llmq.Target{Limits: llmq.Limits{Rates: r}} }

// What ended makes room; tokens that it did not use are there again, and more than it reserved are charged.
func TestPart_GivesBack(t *testing.T) {
	t.Parallel()
	var p Part
	p.Share(1, aTime)
	now, at := aTime.Add(time.Hour), budgeted(llmq.Rates{TPM: 6000})
	at.MaxConcurrency = 1
	ask := Ask{Target: at, Lane: llmq.LaneRT, Tokens: 400}
	for i, used := range []int{300, Unknown} {
		taken := p.Take(ask, learned(20), now)
		if taken == nil {
			t.Fatalf("call %d is refused", i)
		}
		if i == 0 {
			if p.Take(ask, learned(20), now) != nil {
				t.Error("two at once")
			}
			p.Give(taken, used) // 600 - 300 are left
			ask.Tokens = 250
			continue
		}
		p.Give(taken, used)
	}
	ask.Tokens = 51 // 50 are left
	if p.Take(ask, learned(20), now) != nil {
		t.Error("more tokens than there are")
	}
	ask.Tokens = 50
	if p.Take(ask, learned(20), now) == nil {
		t.Error("what is there is refused")
	}
	p.Share(1, now) // another outage, with that call in flight
	if p.Take(ask, learned(20), now.Add(time.Hour)) != nil {
		t.Error("the call in flight was forgotten")
	}
}

// DS56: what a call of one outage did not use is no part of the next one's budget, on which it never drew.
func TestPart_GivesNothingBackToALaterOutage(t *testing.T) {
	t.Parallel()
	var p Part
	p.Share(1, aTime)
	ask := Ask{Target: budgeted(llmq.Rates{TPM: 6000}), Lane: llmq.LaneRT, Tokens: 500}
	early := p.Take(ask, learned(20), aTime.Add(time.Hour))
	if early == nil {
		t.Fatal("the first is refused")
	}
	again := aTime.Add(2 * time.Hour)
	p.Share(1, again)
	ask.Tokens = 100 // of the 100 that came in a second
	if p.Take(ask, learned(20), again.Add(time.Second)) == nil {
		t.Fatal("what there is is refused")
	}
	p.Give(early, 0)
	if p.Take(ask, learned(20), again.Add(time.Second)) != nil {
		t.Error("tokens of the outage before are spent")
	}
}

// A minute of the calendar has what it is given and no tokens of the one before, as in the store's own count; more than was reserved it is charged.
func TestPart_GivesNothingBackToALaterMinute(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		later      time.Duration // the end, after the begin
		used, left int           // of 1000 a minute, 600 of which were drawn at the begin and 700 are at the end where that is in another minute
	}{
		{later: 10 * time.Second, used: 100, left: 900},
		{later: time.Minute, used: 100, left: 300},
		{later: time.Minute, used: 800, left: 100},
	} {
		var p Part
		p.Share(1, aTime)
		begin := aTime.Add(5 * time.Minute)
		ask := Ask{Target: budgeted(llmq.Rates{TPM: 1000, Fixed: true}), Lane: llmq.LaneRT, Tokens: 600}
		early := p.Take(ask, learned(20), begin)
		if early == nil {
			t.Fatal("the first is refused")
		}
		if tc.later >= time.Minute {
			ask.Tokens = 700
			if p.Take(ask, learned(20), begin.Add(tc.later)) == nil {
				t.Fatal("the next minute's is refused")
			}
		}
		p.Give(early, tc.used)
		if ask.Tokens = tc.left + 1; p.Take(ask, learned(20), begin.Add(tc.later)) != nil {
			t.Errorf("%+v: more is left", tc)
		}
		if ask.Tokens = tc.left; p.Take(ask, learned(20), begin.Add(tc.later)) == nil {
			t.Errorf("%+v: less is left", tc)
		}
	}
}

// C9, DS56: whatever callers do, all of them together stay under each cap and each budget; and who is one of no more than there is to
// share gets something.
func TestPart_TogetherNeverMoreThanTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "callers")
		rates := llmq.Rates{RPM: rapid.IntRange(0, 600).Draw(t, "rpm"), Fixed: rapid.Bool().Draw(t, "fixed")}
		if rates.RPM > 0 {
			rates.Burst = rapid.IntRange(1, rates.RPM).Draw(t, "burst")
		}
		at := budgeted(rates)
		at.Model, at.Name, at.Provider = "m", "t", "p"
		at.MaxConcurrency, at.Shared.MaxConcurrency = rapid.IntRange(1, 30).Draw(t, "cap"), rapid.IntRange(0, 30).Draw(t, "shared cap")
		limit := learned(float64(rapid.IntRange(1, 40).Draw(t, "learned")))
		most := min(at.MaxConcurrency, int(limit.Slots.Limit))
		if at.Shared.MaxConcurrency > 0 {
			most = min(most, at.Shared.MaxConcurrency)
		}
		parts, held, now := make([]Part, n), make([][]*Taken, n), aTime.Add(17*time.Second)
		for i := range parts {
			parts[i].Share(n, now)
		}
		var starts []time.Time
		running := 0
		ask := Ask{Target: at, Lane: llmq.LaneRT}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "caller")
			if k := len(held[i]); k > 0 && rapid.Bool().Draw(t, "ends") {
				parts[i].Give(held[i][k-1], 0)
				held[i] = held[i][:k-1]
				running--
			} else if taken := parts[i].Take(ask, limit, now); taken != nil {
				held[i] = append(held[i], taken)
				running++
				starts = append(starts, now)
			}
			if running > most {
				t.Fatalf("%d calls at once, %d callers share %d", running, n, most)
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
		}
		if err := within(rates, starts); err != nil {
			t.Fatal(err)
		}
		if rates.RPM > 0 || most < n {
			return
		}
		var fresh Part
		if fresh.Share(n, now); fresh.Take(ask, limit, now) == nil {
			t.Fatalf("one of %d gets nothing of %d", n, most)
		}
	})
}

// within holds starts against a budget.
func within(r llmq.Rates, starts []time.Time) error {
	if r.RPM == 0 {
		return nil
	}
	calls, _ := budgetsOf(r)
	minutes := map[time.Time]int{}
	for i, from := range starts {
		minutes[from.Truncate(time.Minute)]++
		if r.Fixed {
			if got := minutes[from.Truncate(time.Minute)]; got > r.RPM || from.Before(aTime.Add(time.Minute)) {
				return fmt.Errorf("%d starts in a minute of %d", got, r.RPM)
			}
			continue
		}
		for k, to := range starts[i:] {
			if most := float64(calls.burst) + float64(r.RPM)*to.Sub(from).Minutes(); float64(k+1) > most+1e-6 {
				return fmt.Errorf("%d starts in %v, %v may be", k+1, to.Sub(from), most)
			}
		}
	}
	return nil
}
