package forecast

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.01*math.Max(1, math.Abs(want)) {
		t.Errorf("%s = %.3f, want %.3f", what, got, want)
	}
}

// run is n minutes in which a lane ended so many calls a minute, each of so many ms.
func (m Memory) run(n int, calls map[llmq.Lane]int, tookMS int64) Memory {
	for range n {
		tallies := map[llmq.Lane]Tally{}
		for _, l := range llmq.Lanes() {
			t := m.Tallies[l]
			tallies[l] = Tally{t.Calls + calls[l], t.BusyMS + int64(calls[l])*tookMS}
		}
		m = m.Learn(time.UnixMilli(m.AtMS).Add(time.Minute), tallies)
	}
	return m
}

func begun() Memory {
	return Memory{}.Learn(taken, map[llmq.Lane]Tally{llmq.LaneBG: {Calls: 5_000, BusyMS: 1}})
}

func TestMemory_ColdStartKnowsNoRate(t *testing.T) {
	t.Parallel()
	room := Room{Slots: 10, Share: 0.8}
	if got := begun().Rates(room); got != (Rates{}) {
		t.Errorf("after one reading: %+v", got)
	}
	if got := begun().run(3, nil, 0).Rates(room); got != (Rates{}) {
		t.Errorf("after minutes without a call: %+v", got)
	}
}

func TestMemory_RatesAreWhatEndedOrWhatFits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		calls  map[llmq.Lane]int // a minute
		tookMS int64
		room   Room
		want   Rates
	}{
		{"as many as ended, past the room", map[llmq.Lane]int{llmq.LaneBG: 600}, 2000, Room{Slots: 10, Share: 0.8}, Rates{RT: 5, Background: 10}},
		{"as many as fit, in quiet minutes", map[llmq.Lane]int{llmq.LaneBG: 6}, 2000, Room{Slots: 10, Share: 0.8}, Rates{RT: 5, Background: 4}},
		{"bg and bulk together", map[llmq.Lane]int{llmq.LaneBG: 300, llmq.LaneBulk: 300}, 100, Room{Slots: 1, Share: 0.5}, Rates{RT: 10, Background: 10}},
		{"beside rt", map[llmq.Lane]int{llmq.LaneRT: 240, llmq.LaneBG: 6}, 2000, Room{Slots: 10, Share: 0.8}, Rates{RT: 5, Background: 1}},
		{"a bound on starts", map[llmq.Lane]int{llmq.LaneRT: 60, llmq.LaneBG: 6}, 100, Room{Slots: 100, Share: 1, PerSecond: 3}, Rates{RT: 3, Background: 2}},
		{"nothing is open", map[llmq.Lane]int{llmq.LaneBG: 60}, 100, Room{}, Rates{RT: 0, Background: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := begun().run(5, tt.calls, tt.tookMS).Rates(tt.room)
			near(t, "rt", got.RT, tt.want.RT)
			near(t, "background", got.Background, tt.want.Background)
		})
	}
}

func TestMemory_WhatIsOldFades(t *testing.T) {
	t.Parallel()
	room := Room{Slots: 1, Share: 1}
	m := begun().run(10, map[llmq.Lane]int{llmq.LaneBulk: 600}, 3000)
	near(t, "rate", m.Rates(room).Background, 10)
	m = m.run(8, map[llmq.Lane]int{llmq.LaneBulk: 60}, 3000)
	near(t, "rate after slower minutes", m.Rates(room).Background, 1)
}

// A wiped store's counters begin again: what was learned from the old ones is dropped with them.
func TestMemory_WipedCountersBeginAnew(t *testing.T) {
	t.Parallel()
	m := begun().run(3, map[llmq.Lane]int{llmq.LaneBG: 600}, 100)
	m = m.Learn(taken.Add(time.Hour), map[llmq.Lane]Tally{llmq.LaneBG: {Calls: 3, BusyMS: 300}})
	if got := m.Rates(Room{Slots: 10, Share: 1}); got != (Rates{}) {
		t.Errorf("rates %+v", got)
	}
	near(t, "rate", m.run(1, map[llmq.Lane]int{llmq.LaneBG: 60}, 1000).Rates(Room{Share: 1}).Background, 1)
}

func TestMemory_RatesAreNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := begun()
		for range rapid.IntRange(0, 10).Draw(t, "readings") {
			tallies := map[llmq.Lane]Tally{}
			for _, l := range llmq.Lanes() {
				tallies[l] = Tally{rapid.IntRange(0, 1_000_000).Draw(t, "calls"), rapid.Int64Range(0, 1e12).Draw(t, "ms")}
			}
			m = m.Learn(time.UnixMilli(m.AtMS+rapid.Int64Range(-1000, 600_000).Draw(t, "passed")), tallies)
		}
		r := m.Rates(Room{Slots: rapid.Float64Range(0, 1000).Draw(t, "slots"), Share: 0.8, PerSecond: rapid.Float64Range(0, 10).Draw(t, "starts")})
		for _, v := range []float64{r.RT, r.Background} {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				t.Fatalf("rates %+v of %+v", r, m)
			}
		}
	})
}
