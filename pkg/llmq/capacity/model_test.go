package capacity

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
)

// Under any order of admissions, renewals, settles, undoings and lapses, answers lost among them, each of them once or
// twice or too late: no cap is ever exceeded, an rt call is never refused what is free, what is spent and what is left
// are what was granted, no minute gets back what it never gave, and what comes too late or again changes nothing.
// Time is the scripts' own argument, so that a real server, whose clock no synctest bubble holds, follows it too.
func TestGate_FollowsItsRule(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		rapid.Check(t, func(rt *rapid.T) { newModel(t, rt, c).check() })
	})
}

const (
	modelLease = 10 * time.Second
	minuteMS   = 60_000
)

// model is the gate's rule in Go: two targets of one provider, both with fixed budgets.
type model struct {
	*rapid.T
	door    door
	now     int64
	targets []llmq.Target
	held    map[string]*lease // what the store holds, lapsed ones among it until an admission of their target
	late    map[string]Slot   // what lapsed or was returned
	spent   []spent           // by target, as the store can know it
	truth   []spent           // the same if it knew of every lease when it was admitted
	shared  spent
	ids     int
	looks   int
}

type lease struct {
	of     int // target
	lane   llmq.Lane
	end    int64
	at     int64
	tokens int
	slot   Slot
	lost   bool // nobody heard that it was granted: it can be asked for again, and undone
	again  bool // prolonged: the lease does not tell when it was admitted
}

// spent is what was drawn of a fixed budget in a minute.
type spent struct {
	minute                          int64
	calls, background, tokens, bgTs int
}

func newModel(t *testing.T, rt *rapid.T, c redis.UniversalClient) *model {
	m := &model{T: rt, door: open(t, c), now: luatest.Epoch, held: map[string]*lease{}, late: map[string]Slot{}, spent: make([]spent, 2), truth: make([]spent, 2)}
	law := DefaultLaw()
	m.door.Gate = m.door.Tuned(law, modelLease)
	for i := range 2 {
		m.targets = append(m.targets, llmq.Target{
			Model: "m", Name: fmt.Sprint("t", i), Provider: "p", MaxConcurrency: rapid.IntRange(1, 4).Draw(rt, "cap"),
			Limits: llmq.Limits{
				BackgroundShare: 1, Lanes: map[llmq.Lane]int{llmq.LaneRT: rapid.IntRange(0, 4).Draw(rt, "rt cap"), llmq.LaneBulk: rapid.IntRange(0, 2).Draw(rt, "bulk cap")},
				Rates: llmq.Rates{RPM: rapid.IntRange(0, 12).Draw(rt, "rpm"), TPM: rapid.SampledFrom([]int{0, 60, 200}).Draw(rt, "tpm"), Fixed: true, RTShare: 0.2},
			},
			Shared: llmq.SharedLimits{MaxConcurrency: rapid.IntRange(0, 5).Draw(rt, "shared cap"), Rates: llmq.Rates{RPM: rapid.IntRange(0, 15).Draw(rt, "shared rpm"), Fixed: true}},
		})
	}
	m.targets[1].Shared = m.targets[0].Shared
	return m
}

func (m *model) check() {
	m.Repeat(map[string]func(*rapid.T){
		"wait":   func(rt *rapid.T) { m.now += rapid.SampledFrom([]int64{1, 400, 3_000, 9_000, 25_000}).Draw(rt, "ms") },
		"admit":  m.admit,
		"again":  m.again,
		"renew":  m.renew,
		"settle": m.settle,
		"undo":   m.undo,
		"late":   m.tooLate,
		"":       func(*rapid.T) { m.agree() },
	})
}

// at sets the clock of the next round trips.
func (m *model) at() door {
	g := *m.door.Gate
	g.now = m.now
	return door{TB: m.door.TB, Gate: &g, c: m.door.c}
}

func (m *model) live(of int, lane llmq.Lane) int {
	n := 0
	for _, l := range m.held {
		if l.end > m.now && (of < 0 || l.of == of) && (lane == "" || l.lane == lane) {
			n++
		}
	}
	return n
}

func (m *model) admit(rt *rapid.T) {
	of, lane := rapid.IntRange(0, 1).Draw(rt, "target"), rapid.SampledFrom(llmq.Lanes()).Draw(rt, "lane")
	m.ids++
	id, t, tokens := fmt.Sprint("c", m.ids), m.targets[of], rapid.SampledFrom([]int{0, 10, 40}).Draw(rt, "tokens")
	m.clear(of)
	ask := Ask{Target: t, Lane: lane, CallID: id, Tokens: tokens}
	if m.door.Check(ask) != nil {
		return
	}
	free := m.live(of, "") < t.MaxConcurrency && below(m.live(of, lane), t.Limits.Lanes[lane]) &&
		below(m.live(-1, ""), t.Shared.MaxConcurrency) && m.spent[of].allows(m.now, t.Limits.Rates, lane, tokens) && m.shared.allows(m.now, t.Shared.Rates, lane, tokens)
	got := m.at().admit(ask)
	if got.Granted && !free {
		rt.Fatalf("%s of %s got %+v, and the rule has nothing free", id, lane, got)
	}
	if !got.Granted && free && lane == llmq.LaneRT { // background may have to wait for its turn
		rt.Fatalf("%s of %s got %+v, and the rule has all it needs", id, lane, got)
	}
	if got.Granted != (got.Missing == MissingNothing && got.Retry == 0 && got.Wait == 0) || got.Wait < got.Retry || !got.Granted && got.Retry < 50*time.Millisecond {
		rt.Fatalf("the answer is at odds with itself: %+v", got)
	}
	if !got.Granted {
		return
	}
	m.held[id] = &lease{of: of, lane: lane, end: m.now + modelLease.Milliseconds(), at: m.now, tokens: tokens, slot: got.Slot, lost: rapid.Bool().Draw(rt, "lost")}
	m.truth[of].draw(m.now, t.Limits.Rates, lane, 1, tokens)
	m.spent[of].draw(m.now, t.Limits.Rates, lane, 1, tokens)
	m.shared.draw(m.now, t.Shared.Rates, lane, 1, tokens)
}

// some picks a lease, or nothing.
func (m *model) some(rt *rapid.T) (string, *lease) {
	if m.ids == 0 {
		return "", nil
	}
	id := fmt.Sprint("c", rapid.IntRange(max(1, m.ids-12), m.ids).Draw(rt, "id"))
	return id, m.held[id]
}

// again repeats an admission whose answer was lost: it has its slot, whatever else is free.
func (m *model) again(rt *rapid.T) {
	if id, l := m.some(rt); l != nil && l.end > m.now {
		got := m.at().admit(l.slot.ask)
		if !got.Granted {
			rt.Fatalf("%s holds a slot, and again it got %+v", id, got)
		}
		m.clear(l.of)
		at := l.at
		if l.again {
			at = 0
		}
		if got.Slot.at != at || got.Slot.stamp < l.slot.stamp {
			rt.Fatalf("%s was admitted at %d, and its repeat tells %+v", id, l.at, got.Slot)
		}
		l.end, l.again = m.now+modelLease.Milliseconds(), true
		if l.lost {
			l.slot, l.lost = got.Slot, rapid.Bool().Draw(rt, "lost again")
		}
	}
}

// clear is what an admission does to what has lapsed.
func (m *model) clear(of int) {
	for id, l := range m.held {
		if l.of == of && l.end <= m.now {
			m.late[id] = l.slot
			delete(m.held, id)
		}
	}
}

// tooLate ends what is not held any more: it finds nothing, and changes nothing.
func (m *model) tooLate(rt *rapid.T) {
	id, _ := m.some(rt)
	if s, ok := m.late[id]; ok {
		if got := m.at().settle(s, Outcome{Ending: OK}); got.Returned {
			rt.Fatalf("%s was returned long since, and again it got %+v", id, got)
		}
		if got := m.at().abandon(s.ask); got.Returned {
			rt.Fatalf("%s was returned long since, and again it got %+v", id, got)
		}
	}
}

func (m *model) renew(rt *rapid.T) {
	var slots []Slot
	for range 3 {
		if _, l := m.some(rt); l != nil && !l.lost && l.end > m.now {
			slots = append(slots, l.slot)
			l.end, l.again = m.now+modelLease.Milliseconds(), true
		}
	}
	if got := m.at().renew(slots...); got.Kept != len(slots) || got.Anew != 0 {
		rt.Fatalf("renewed %d: %+v", len(slots), got)
	}
}

func (m *model) settle(rt *rapid.T) {
	id, l := m.some(rt)
	if l == nil || l.lost {
		return
	}
	o := Outcome{
		Ending: rapid.SampledFrom([]Ending{OK, OK, OK, Failed, Abandoned}).Draw(rt, "ending"),
		Tokens: rapid.SampledFrom([]int{Unknown, 0, 10, 55}).Draw(rt, "used"),
	}
	used := o.Tokens
	if used < 0 {
		used = l.tokens
	}
	m.end(rt, id, l, 0, l.tokens-used, func() Settled { return m.at().settle(l.slot, o) })
}

func (m *model) undo(rt *rapid.T) {
	if id, l := m.some(rt); l != nil {
		m.end(rt, id, l, 1, l.tokens, func() Settled { return m.at().abandon(l.slot.ask) })
	}
}

func (m *model) end(rt *rapid.T, id string, l *lease, calls, tokens int, end func() Settled) {
	for i := range rapid.IntRange(1, 2).Draw(rt, "times") {
		if got := end(); got.Returned != (i == 0) {
			rt.Fatalf("end %d of %s: %+v", i+1, id, got)
		}
	}
	m.late[id] = l.slot
	delete(m.held, id)
	at := l.slot.at
	if calls == 1 && !l.again {
		at = l.at
	}
	if calls > 0 && l.again {
		at = 0 // an undoing knows the time of its admission by the lease alone: nothing is given to a minute that may not have given it
	}
	t := m.targets[l.of]
	m.spent[l.of].give(m.now, at, t.Limits.Rates, l.lane, calls, tokens)
	m.truth[l.of].give(m.now, l.at, t.Limits.Rates, l.lane, calls, tokens)
	m.shared.give(m.now, at, t.Shared.Rates, l.lane, calls, tokens)
}

// agree holds the store against the rule: one target after each step, by turns, for a look costs as much as a step.
func (m *model) agree() {
	m.looks++
	for i, t := range m.targets {
		if i != m.looks%len(m.targets) {
			continue
		}
		st := m.at().peek(t)
		if st.InUse != m.live(i, "") || st.InUse > t.MaxConcurrency {
			m.Fatalf("%s: %d in use, the rule says %d of %d", t, st.InUse, m.live(i, ""), t.MaxConcurrency)
		}
		for lane, n := range st.Lanes {
			if n != m.live(i, lane) || !below(n-1, t.Limits.Lanes[lane]) && n > 0 {
				m.Fatalf("%s: %d of %s in use, the rule says %d of %d", t, n, lane, m.live(i, lane), t.Limits.Lanes[lane])
			}
		}
		if most := t.Shared.MaxConcurrency; most > 0 && (st.SharedInUse != m.live(-1, "") || st.SharedInUse > most) {
			m.Fatalf("%d in use of the provider, the rule says %d of %d", st.SharedInUse, m.live(-1, ""), most)
		}
		r := t.Limits.Rates
		if now := m.spent[i].in(m.now); r.RPM > 0 || r.TPM > 0 {
			if r.RPM > 0 && st.CallsUsed != now.calls || r.TPM > 0 && st.TokensUsed != now.tokens {
				m.Fatalf("%s: %d calls and %d tokens are spent, the rule says %+v", t, st.CallsUsed, st.TokensUsed, now)
			}
			if truth := m.truth[i].in(m.now); r.RPM > 0 && st.CallsUsed < truth.calls || r.TPM > 0 && st.TokensUsed < truth.tokens {
				m.Fatalf("%s: %d calls and %d tokens are spent, in truth %+v", t, st.CallsUsed, st.TokensUsed, truth)
			}
			if r.RPM > 0 && st.CallsLeft != max(0, r.RPM-now.calls) || r.TPM > 0 && st.TokensLeft != max(0, r.TPM-now.tokens) {
				m.Fatalf("%s: %d calls and %d tokens are left, the rule has spent %+v of %+v", t, st.CallsLeft, st.TokensLeft, now, r)
			}
		}
	}
}

// below reports whether one more fits under a cap; 0 is none.
func below(n, most int) bool { return most <= 0 || n < most }

func (s spent) in(now int64) spent {
	if s.minute != now/minuteMS {
		return spent{minute: now / minuteMS}
	}
	return s
}

func (s spent) allows(now int64, r llmq.Rates, lane llmq.Lane, tokens int) bool {
	s = s.in(now)
	part := func(n int) int { return max(1, n*(1000-perMille(r.RTShare))/1000) }
	background := lane != llmq.LaneRT
	calls := r.RPM == 0 || s.calls+1 <= r.RPM && (!background || s.background+1 <= part(r.RPM))
	return calls && (r.TPM == 0 || tokens == 0 || s.tokens+tokens <= r.TPM && (!background || s.bgTs+tokens <= part(r.TPM)))
}

func (s *spent) draw(now int64, r llmq.Rates, lane llmq.Lane, calls, tokens int) {
	if r.RPM == 0 && r.TPM == 0 {
		return
	}
	*s = s.in(now)
	s.calls, s.tokens = max(0, s.calls+calls), max(0, s.tokens+tokens)
	if lane != llmq.LaneRT {
		s.background, s.bgTs = max(0, s.background+calls), max(0, s.bgTs+tokens)
	}
}

func (s *spent) give(now, at int64, r llmq.Rates, lane llmq.Lane, calls, tokens int) {
	if at/minuteMS != now/minuteMS { // an earlier minute's is not this one's, but what it owes is
		calls, tokens = min(0, calls), min(0, tokens)
	}
	s.draw(now, r, lane, -calls, -tokens)
}
