package quota_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

// start is ten seconds into a minute.
func start() time.Time { return time.Date(2026, 11, 29, 12, 0, 10, 0, time.UTC) }

// starts makes calls at the same time until one is refused.
func starts(m *quota.Meter, now time.Time, l quota.Limits, n quota.Need) (let int, refused *quota.Refusal) {
	for range 100_000 {
		if _, refused = m.Start(now, l, n); refused != nil {
			return let, refused
		}
		let++
	}
	return let, nil
}

func TestMeter_NoLimits(t *testing.T) {
	t.Parallel()
	var m quota.Meter
	if let, refused := starts(&m, start(), quota.Limits{}, quota.Need{Input: 1000}); refused != nil || let != m.InFlight() {
		t.Errorf("let in %d, then %+v", let, refused)
	}
}

func TestMeter_ConcurrencyFreesOnEnd(t *testing.T) {
	t.Parallel()
	var m quota.Meter
	l := quota.Limits{Concurrency: 3}
	let, refused := starts(&m, start(), l, quota.Need{})
	want := &quota.Refusal{Cause: quota.Concurrency, After: time.Second, Limit: 3, Used: 3, Requested: 1}
	if diff := cmp.Diff(want, refused); diff != "" || let != 3 {
		t.Fatalf("let in %d, refusal (-want +got):\n%s", let, diff)
	}
	m.End(start(), l, quota.Grant{}, quota.Used{})
	if let, _ := starts(&m, start(), l, quota.Need{}); let != 1 {
		t.Errorf("let in %d after one end, want 1", let)
	}
}

func TestMeter_Requests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		rate quota.Rate
		// calls let in at once at 12:00:10, then at later times
		first int
		after time.Duration // of the refusal
		later map[time.Duration]int
	}{
		{"bucket of a minute", quota.Rate{PerMinute: 60}, 60, time.Second, map[time.Duration]int{time.Second: 1}},
		{"bucket with a burst", quota.Rate{PerMinute: 600, Burst: 10}, 10, 100 * time.Millisecond, map[time.Duration]int{time.Minute: 10}},
		{"minute", quota.Rate{PerMinute: 60, Window: quota.Minute}, 60, 50 * time.Second, map[time.Duration]int{49 * time.Second: 0, 50 * time.Second: 60}},
		{"minute of a clock ahead", quota.Rate{PerMinute: 60, Window: quota.Minute, Skew: 700 * time.Millisecond}, 60, 49300 * time.Millisecond, map[time.Duration]int{49300 * time.Millisecond: 60}},
		{"sliding", quota.Rate{PerMinute: 60, Window: quota.Sliding}, 60, time.Minute, map[time.Duration]int{59 * time.Second: 0, time.Minute: 60}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for at, want := range tc.later {
				var m quota.Meter
				l := quota.Limits{Requests: tc.rate}
				let, refused := starts(&m, start(), l, quota.Need{})
				if let != tc.first || refused.Cause != quota.Requests || refused.After != tc.after {
					t.Fatalf("let in %d, then %+v", let, refused)
				}
				if let, _ := starts(&m, start().Add(at), l, quota.Need{}); let != want {
					t.Errorf("let in %d after %v, want %d", let, at, want)
				}
			}
		})
	}
}

func TestMeter_CountRefusedKeepsOut(t *testing.T) {
	t.Parallel()
	var m quota.Meter
	l := quota.Limits{Requests: quota.Rate{PerMinute: 2, Window: quota.Sliding, CountRefused: true}}
	starts(&m, start(), l, quota.Need{})
	for s := range 300 { // who asks each second never gets in
		if _, refused := m.Start(start().Add(time.Duration(s)*time.Second), l, quota.Need{}); refused == nil {
			t.Fatalf("let in after %d s of asking", s)
		}
	}
	if let, _ := starts(&m, start().Add(361*time.Second), l, quota.Need{}); let != 2 {
		t.Errorf("let in %d after a minute's rest, want 2", let)
	}
}

func TestMeter_CountRefusedEmptiesABucket(t *testing.T) {
	t.Parallel()
	var m quota.Meter
	l := quota.Limits{Requests: quota.Rate{PerMinute: 60, Burst: 2, CountRefused: true}}
	starts(&m, start(), l, quota.Need{})
	for s := range 100 { // twice a second is too often
		at := start().Add(time.Duration(s) * 500 * time.Millisecond)
		if _, refused := m.Start(at, l, quota.Need{}); refused == nil || refused.After > time.Second {
			t.Fatalf("after %d calls: %+v", s, refused)
		}
	}
	if let, _ := starts(&m, start().Add(51*time.Second), l, quota.Need{}); let != 1 {
		t.Errorf("let in %d a second and a half after the last call, want 1", let)
	}
}

// Bedrock: input and max_tokens are reserved, and a token of output costs five.
func TestMeter_ReserveSettlesWithBurndown(t *testing.T) {
	t.Parallel()
	var m quota.Meter
	l := quota.Limits{Tokens: quota.Rate{PerMinute: 10_000}, Burndown: 5}
	g, refused := m.Start(start(), l, quota.Need{Input: 1000, MaxTokens: 8000})
	if refused != nil || g.Reserved != 9000 {
		t.Fatalf("reserved %v, %+v", g.Reserved, refused)
	}
	_, refused = m.Start(start(), l, quota.Need{Input: 1000, MaxTokens: 1000})
	want := &quota.Refusal{Cause: quota.Tokens, After: 6 * time.Second, Limit: 10_000, Used: 9000, Requested: 2000}
	if diff := cmp.Diff(want, refused); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	if charged := m.End(start(), l, g, quota.Used{Input: 1000, Output: 300}); charged != 2500 {
		t.Errorf("charged %v, want 1,000 + 5 x 300", charged)
	}
	if _, left := m.Left(start(), l); left.Remaining != 7500 || left.Full != 15*time.Second {
		t.Errorf("left %+v, want 7,500", left)
	}
}

// Output that costs more than was reserved leaves a debt.
func TestMeter_BurndownMayOweMoreThanReserved(t *testing.T) {
	t.Parallel()
	var m quota.Meter
	l := quota.Limits{Tokens: quota.Rate{PerMinute: 6000}, Burndown: 5}
	g, _ := m.Start(start(), l, quota.Need{Input: 1000, MaxTokens: 5000})
	m.End(start(), l, g, quota.Used{Input: 1000, Output: 5000}) // 26,000
	_, refused := m.Start(start(), l, quota.Need{Input: 1000})
	if refused == nil || refused.After != 210*time.Second { // 20,000 of debt and 1,000, at 100 a second
		t.Errorf("refusal %+v, want 210 s", refused)
	}
}

func TestMeter_DefaultMaxTokensIsReserved(t *testing.T) {
	t.Parallel()
	var m quota.Meter
	l := quota.Limits{Tokens: quota.Rate{PerMinute: 100_000}, DefaultMaxTokens: 64_000}
	if g, _ := m.Start(start(), l, quota.Need{Input: 10}); g.Reserved != 64_010 {
		t.Errorf("reserved %v, want the model's maximum", g.Reserved)
	}
}

// OpenAI: the larger of max_tokens and the input, and nothing comes back.
func TestMeter_EstimateSettlesNothing(t *testing.T) {
	t.Parallel()
	var m quota.Meter
	l := quota.Limits{Tokens: quota.Rate{PerMinute: 10_000}, Charge: quota.Estimate, Burndown: 5}
	for _, tc := range []struct {
		need quota.Need
		want float64
	}{{quota.Need{Input: 100, MaxTokens: 3000}, 3000}, {quota.Need{Input: 2000, MaxTokens: 16}, 2000}} {
		g, _ := m.Start(start(), l, tc.need)
		if got := m.End(start(), l, g, quota.Used{Input: tc.need.Input, Output: 1}); g.Reserved != tc.want || got != tc.want {
			t.Errorf("%+v: reserved %v, charged %v, want %v", tc.need, g.Reserved, got, tc.want)
		}
	}
	if _, left := m.Left(start(), l); left.Remaining != 5000 {
		t.Errorf("left %+v, want 5,000", left)
	}
}

func TestMeter_SettleInWindows(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		window   quota.Window
		end      time.Duration
		want     float64 // left right after the end
		wantLeft string
	}{
		{quota.Minute, 10 * time.Second, 900, "what was not used comes back"},
		{quota.Minute, 55 * time.Second, 1000, "another minute, which is untouched"},
		{quota.Sliding, 59 * time.Second, 900, "what was not used comes back"},
		{quota.Sliding, 61 * time.Second, 1000, "it has left the window"},
	} {
		var m quota.Meter
		l := quota.Limits{Tokens: quota.Rate{PerMinute: 1000, Window: tc.window}}
		g, refused := m.Start(start(), l, quota.Need{Input: 50, MaxTokens: 550})
		if refused != nil {
			t.Fatal(refused)
		}
		m.End(start().Add(tc.end), l, g, quota.Used{Input: 50, Output: 50})
		if _, left := m.Left(start().Add(tc.end), l); left.Remaining != tc.want {
			t.Errorf("%s after %v: left %v, want %v: %s", tc.window, tc.end, left.Remaining, tc.want, tc.wantLeft)
		}
	}
}

func TestMeter_NeverIsSaid(t *testing.T) {
	t.Parallel()
	var m quota.Meter
	l := quota.Limits{Tokens: quota.Rate{PerMinute: 1000, Burst: 100}}
	if _, refused := m.Start(start(), l, quota.Need{Input: 101}); refused == nil || !refused.Never {
		t.Errorf("refusal %+v, want never", refused)
	}
}

func TestLimits_Scale(t *testing.T) {
	t.Parallel()
	l := quota.Limits{Concurrency: 50, Requests: quota.Rate{PerMinute: 600, Burst: 6}, Tokens: quota.Rate{PerMinute: 1e6}}
	want := quota.Limits{Concurrency: 5, Requests: quota.Rate{PerMinute: 60, Burst: 1}, Tokens: quota.Rate{PerMinute: 1e5}}
	if diff := cmp.Diff(want, l.Scale(0.1)); diff != "" {
		t.Errorf("scaled (-want +got):\n%s", diff)
	}
	if got := l.Scale(0); got.Concurrency != 1 || got.Requests.PerMinute <= 0 || got.Tokens.PerMinute <= 0 {
		t.Errorf("scaled to none: %+v", got)
	}
	if diff := cmp.Diff(quota.Limits{}, (quota.Limits{}).Scale(0.5)); diff != "" {
		t.Errorf("no limits (-want +got):\n%s", diff)
	}
}

func TestLimits_ValidateNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]quota.Limits{
		"concurrency":   {Concurrency: -1},
		"burndown":      {Burndown: -1},
		"default_max":   {DefaultMaxTokens: -1},
		"charge":        {Charge: "odd"},
		"rpm: quota":    {Requests: quota.Rate{PerMinute: -1}},
		"tpm: burst":    {Tokens: quota.Rate{Burst: -1}},
		"tpm: window":   {Tokens: quota.Rate{Window: "hour"}},
		"rpm: skew":     {Requests: quota.Rate{Skew: time.Hour}},
		"by minute has": {Requests: quota.Rate{PerMinute: 1, Burst: 1, Window: quota.Minute}},
	} {
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", l, err, want)
		}
	}
	if err := (quota.Limits{Concurrency: 1, Requests: quota.Rate{PerMinute: 1, Burst: 1}}).Validate(); err != nil {
		t.Errorf("good limits: %v", err)
	}
}

func TestMeter_RenewedIsUnused(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	for _, window := range []quota.Window{quota.Bucket, quota.Minute, quota.Sliding} {
		for output, charged := range map[int]float64{0: 10, 50: 60} { // less and more than was reserved
			l := quota.Limits{Concurrency: 1, Requests: quota.Rate{PerMinute: 1, Window: window}, Tokens: quota.Rate{PerMinute: 40, Window: window}}
			var m quota.Meter
			g, refusal := m.Start(now, l, quota.Need{Input: 10, MaxTokens: 20})
			if refusal != nil {
				t.Fatal(refusal)
			}
			m.Renew()
			if _, refusal := m.Start(now, l, quota.Need{}); refusal == nil || refusal.Cause != quota.Concurrency {
				t.Errorf("%s: %+v, want the call in flight to count", window, refusal)
			}
			if got := m.End(now, l, g, quota.Used{Input: 10, Output: output}); got != charged || m.InFlight() != 0 {
				t.Errorf("%s: charged %v, want %v; %d in flight", window, got, charged, m.InFlight())
			}
			if requests, tokens := m.Left(now, l); requests.Remaining != 1 || tokens.Remaining != 40 {
				t.Errorf("%s: left %v calls and %v tokens, want all", window, requests.Remaining, tokens.Remaining)
			}
		}
	}
}
