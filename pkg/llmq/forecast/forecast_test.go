package forecast

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
)

var taken = time.UnixMilli(1_800_000_000_000)

func snapshot(waiting map[llmq.Lane]int, rates Rates, paused ...llmq.Lane) Snapshot {
	return Snapshot{TakenMS: taken.UnixMilli(), Waiting: waiting, Rates: rates, Paused: paused}
}

// A16: what is ahead ÷ what starts in a second.
func TestStart_IsWhatIsAheadByTheRate(t *testing.T) {
	t.Parallel()
	const unknown = -1 * time.Second
	depths := func(rt, bg, bulk int) map[llmq.Lane]int {
		return map[llmq.Lane]int{llmq.LaneRT: rt, llmq.LaneBG: bg, llmq.LaneBulk: bulk}
	}
	ten := Rates{RT: 20, Background: 10}
	tests := []struct {
		name  string
		lane  llmq.Lane
		o     Outlook
		after time.Duration // since the snapshot
		want  time.Duration
	}{
		{"nothing waits", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 0, 0), ten)}, 0, 0},
		{"nothing waits and no rate is known", llmq.LaneBG, Outlook{Snapshot: snapshot(nil, Rates{})}, 0, 0},
		{"a backlog", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 100, 0), ten)}, 0, 10 * time.Second},
		{"it drains meanwhile", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 100, 0), ten)}, 4 * time.Second, 6 * time.Second},
		{"and is gone", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 100, 0), ten)}, 11 * time.Second, 0},
		{"rt before the rest", llmq.LaneRT, Outlook{Snapshot: snapshot(depths(40, 100, 100), ten)}, 0, 2 * time.Second},
		{"background after rt", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(40, 100, 0), ten)}, 0, 12 * time.Second},
		{"two lanes share", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 100, 100), ten)}, 0, 20 * time.Second},
		{"the short one of two", llmq.LaneBulk, Outlook{Snapshot: snapshot(depths(0, 1000, 10), ten)}, 0, 2 * time.Second},
		{"the long one of two", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 1000, 10), ten)}, 0, 101 * time.Second},
		{"both drain: 100 and 20 become 70 and 0 in 5 s", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 100, 20), ten)}, 5 * time.Second, 7 * time.Second},
		{"a backlog of an unknown rate", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 1, 0), Rates{RT: 1})}, 0, unknown},
		{"its own lane is paused", llmq.LaneBulk, Outlook{Snapshot: snapshot(depths(0, 0, 5), ten, llmq.LaneBulk)}, 0, unknown},
		{"the other lane is paused", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 100, 500), ten, llmq.LaneBulk)}, 0, 10 * time.Second},
		{"two minutes old", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 5000, 0), ten)}, 2 * time.Minute, 380 * time.Second},
		{"older", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 5000, 0), ten)}, 2*time.Minute + time.Millisecond, unknown},
		{"none", llmq.LaneBG, Outlook{}, 0, unknown},
		{"of a clock that runs ahead", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, 100, 0), ten)}, -3 * time.Second, 10 * time.Second},
		{
			"sent since, into an idle queue", llmq.LaneBG,
			Outlook{Snapshot: snapshot(depths(0, 0, 0), ten), Sent: []Sent{{llmq.LaneBG, taken.Add(50 * time.Second), 300}}},
			60 * time.Second, 20 * time.Second,
		},
		{
			"sent since, out of order and by a clock ahead", llmq.LaneBG,
			Outlook{Snapshot: snapshot(depths(0, 10, 0), ten), Sent: []Sent{{llmq.LaneBG, taken.Add(time.Hour), 30}, {llmq.LaneBG, taken.Add(-time.Second), 10}}},
			time.Second, 4 * time.Second,
		},
		{"in a year", llmq.LaneBG, Outlook{Snapshot: snapshot(depths(0, math.MaxInt32, 0), Rates{Background: 1e-9})}, 0, Longest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := tt.o.Start(tt.lane, taken.Add(tt.after))
			if !ok {
				got = unknown
			}
			if d := got - tt.want; d < -time.Microsecond || d > time.Microsecond {
				t.Errorf("start in %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRefuses_OnlyWhatIsTooLateByFar(t *testing.T) {
	t.Parallel()
	tests := []struct {
		lane        llmq.Lane
		start, left time.Duration
		want        time.Duration // 0: taken
	}{
		{llmq.LaneBG, 20 * time.Second, 10 * time.Second, 0},
		{llmq.LaneBG, 21 * time.Second, 10 * time.Second, time.Second},
		{llmq.LaneBulk, time.Hour, 10 * time.Minute, 40 * time.Minute},
		{llmq.LaneRT, time.Hour, time.Second, 0},
		{llmq.LaneBG, 0, 0, 0},
	}
	for _, tt := range tests {
		after, refused := Refuses(tt.lane, tt.start, tt.left)
		if after != tt.want || refused != (tt.want > 0) {
			t.Errorf("%s in %s of %s: %s %t, want %s", tt.lane, tt.start, tt.left, after, refused, tt.want)
		}
	}
}

func drawOutlook(t *rapid.T) Outlook {
	depth := rapid.IntRange(0, 10_000)
	rate := rapid.Float64Range(0, 1000)
	o := Outlook{Snapshot: snapshot(
		map[llmq.Lane]int{llmq.LaneRT: depth.Draw(t, "rt"), llmq.LaneBG: depth.Draw(t, "bg"), llmq.LaneBulk: depth.Draw(t, "bulk")},
		Rates{RT: rate.Draw(t, "rt rate"), Background: rate.Draw(t, "background rate")},
	)}
	for range rapid.IntRange(0, 8).Draw(t, "sends") {
		at := taken.Add(time.Duration(rapid.Int64Range(-5, 130).Draw(t, "second")) * time.Second)
		o.Sent = append(o.Sent, Sent{rapid.SampledFrom(llmq.Lanes()).Draw(t, "lane"), at, depth.Draw(t, "calls")})
	}
	return o
}

// It is never negative nor beyond its bound, grows with whatever waits or is sent, and shrinks with each rate.
func TestStart_GrowsWithWhatWaits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := drawOutlook(t)
		now := taken.Add(time.Duration(rapid.Int64Range(0, 120_000).Draw(t, "ms")) * time.Millisecond)
		lane := rapid.SampledFrom(llmq.Lanes()).Draw(t, "lane")
		before, known := o.Start(lane, now)
		if before < 0 || before > Longest {
			t.Fatalf("start in %s", before)
		}
		more := o
		more.Sent = append([]Sent{{rapid.SampledFrom(llmq.Lanes()).Draw(t, "more of"), now, rapid.IntRange(1, 1000).Draw(t, "more")}}, o.Sent...)
		after, still := more.Start(lane, now)
		if still && (!known || after < before-time.Microsecond) {
			t.Fatalf("with more calls it starts in %s %t, before in %s %t", after, still, before, known)
		}
		faster := o
		faster.Snapshot.Rates.RT *= 2
		faster.Snapshot.Rates.Background *= 2
		if sooner, ok := faster.Start(lane, now); known && (!ok || sooner > before+time.Microsecond) {
			t.Fatalf("twice as fast it starts in %s %t, before in %s", sooner, ok, before)
		}
	})
}

// A refused call that comes back when it was told to is taken, if nothing else came: what it was told is true.
func TestRefuses_TellsWhenItWouldBeTaken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := drawOutlook(t)
		o.Sent = nil // what others send meanwhile is not known
		now := taken
		lane := rapid.SampledFrom([]llmq.Lane{llmq.LaneBG, llmq.LaneBulk}).Draw(t, "lane")
		left := time.Duration(rapid.Int64Range(1, 600).Draw(t, "left")) * time.Second
		start, ok := o.Start(lane, now)
		after, refused := Refuses(lane, start, left)
		if !ok || !refused || after > MaxAge {
			return
		}
		if refused != (start > 2*left) {
			t.Fatalf("refused with %s of %s", start, left)
		}
		later, ok := o.Start(lane, now.Add(after))
		if _, again := Refuses(lane, later, left+time.Millisecond); !ok || again {
			t.Fatalf("refused again after %s: it starts in %s then, at first in %s, with %s left", after, later, start, left)
		}
	})
}
