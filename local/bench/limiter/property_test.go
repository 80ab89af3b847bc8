package main

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	lua "github.com/yuin/gopher-lua"
	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

// stored is the law as scripts run it: the state goes through the fields of a hash with
// every decision.
type stored struct {
	*learned
	hash map[string]string
}

var fields = []string{"flow", "evidence", "slots", "starts", "tokens", "check", "wall", "starts_ring", "tokens_ring"} //nolint:gochecknoglobals // a constant

// fetch reads the hash as HMGET does.
func (s *stored) fetch(now int64) {
	if len(s.hash) == 0 {
		s.restore(now, nil)
		return
	}
	var values []string
	for _, f := range fields {
		values = append(values, s.hash[f])
	}
	s.restore(now, values)
}

// save writes what changed and returns its names.
func (s *stored) save() []string {
	changed := s.text()
	maps.Copy(s.hash, changed)
	return slices.Sorted(maps.Keys(changed))
}

// text is what changed of a state since it was loaded: all of it, when that was never.
func (l *learned) text() map[string]string {
	l.call(l.dump, 1, l.state)
	list := l.vm.ToTable(-1)
	l.vm.Pop(1)
	changed := map[string]string{}
	for i := 1; i < list.Len(); i += 2 {
		changed[lua.LVAsString(list.RawGetInt(i))] = lua.LVAsString(list.RawGetInt(i + 1))
	}
	return changed
}

func newStored(p program, c capacity.LawConfig) *stored {
	return &stored{p.law(c), map[string]string{}}
}

func TestLaw_FieldsAreThoseOfTheScripts(t *testing.T) {
	t.Parallel()
	s := newStored(law(t), capacity.DefaultLaw())
	s.fetch(runStart)
	s.save()
	if want, got := slices.Sorted(slices.Values(fields)), slices.Sorted(maps.Keys(s.hash)); !slices.Equal(want, got) {
		t.Errorf("fields = %v, want %v", got, want)
	}
	s.fetch(runStart)
	if why, _ := s.ask(runStart, 1, laneRT, 10); why != 0 {
		t.Fatalf("first call is held back: %d", why)
	}
	if got := s.save(); !slices.Equal(got, []string{"flow"}) {
		t.Errorf("an ordinary start writes %v, want the flow alone", got)
	}
}

var integer = regexp.MustCompile(`^-?(0|[1-9]\d*)$`)

// bounded checks that a state is integers that a double holds, and not many.
func bounded(t *rapid.T, hash map[string]string) {
	total := 0
	for name, text := range hash {
		total += len(text)
		for number := range strings.FieldsSeq(text) {
			v, err := strconv.ParseInt(number, 10, 64)
			if err != nil || !integer.MatchString(number) || v > 1e14 || v < -1e14 {
				t.Fatalf("%s holds %q: %s", name, number, text)
			}
		}
	}
	if total > 2500 {
		t.Fatalf("the state is %d bytes", total)
	}
}

type flight struct {
	id      int64
	lane    lane
	tokens  int64
	settled bool
}

// Feedback that is lost, repeated, late or out of order, and a clock that steps, change
// nothing but speed: no cap is exceeded, one call always may start in the end, the state
// stays small, and a law whose state went through its text decides as one that kept it.
func TestLaw_HoldsUnderAnyFeedback(t *testing.T) {
	t.Parallel()
	p := law(t)
	rapid.Check(t, func(t *rapid.T) {
		config := capacity.DefaultLaw()
		config.Initial = rapid.IntRange(1, 40).Draw(t, "initial")
		config.MaxSlots = rapid.IntRange(1, 40).Draw(t, "max slots")
		config.MaxStarts = rapid.SampledFrom([]int{0, 60, 6000}).Draw(t, "max starts")
		config.MaxTokens = rapid.SampledFrom([]int{0, 100_000, 1e9}).Draw(t, "max tokens")
		text, kept := newStored(p, config), p.law(config)
		now, ids, starts := rapid.Int64Range(0, 2e12).Draw(t, "epoch"), int64(0), []int64{}
		var flights []*flight
		lanes := rapid.SampledFrom([]lane{laneRT, laneBG, laneBulk})
		endings := rapid.SampledFrom([]capacity.Ending{
			capacity.OK, capacity.OK, capacity.OK, capacity.Throttled, capacity.Throttled, capacity.Failed, capacity.Abandoned,
		})
		ask := func(l lane, tokens int64) int64 {
			ids++
			text.fetch(now)
			why, wait := text.ask(now, ids, l, tokens)
			text.save()
			keptWhy, keptWait := kept.ask(now, ids, l, tokens)
			if why != keptWhy || wait != keptWait {
				t.Fatalf("the stored state answers %d, %d; the kept one %d, %d", why, wait, keptWhy, keptWait)
			}
			if len(text.held) > config.MaxSlots {
				t.Fatalf("%d slots in use, the cap is %d", len(text.held), config.MaxSlots)
			}
			if wait < 0 {
				t.Fatalf("ask again in %d ms", wait)
			}
			if why == 0 {
				flights = append(flights, &flight{id: ids, lane: l, tokens: tokens})
				starts = append(starts, now)
			}
			return why
		}
		settle := func(f *flight, e capacity.Ending, tokens, retryAfter int64) {
			f.settled = true
			text.fetch(now)
			text.settle(now, f.id, e, tokens, retryAfter)
			text.save()
			kept.settle(now, f.id, e, tokens, retryAfter)
		}
		stepped := false // by the clock
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 1, 30, 400, 1100, 6000}).Draw(t, "passes")
			switch rapid.SampledFrom([]string{"ask", "ask", "ask", "end", "end", "end", "storm", "again", "clock"}).Draw(t, "what") {
			case "ask":
				for range rapid.IntRange(1, 20).Draw(t, "callers") {
					ask(lanes.Draw(t, "lane"), rapid.SampledFrom([]int64{0, 900, 5000}).Draw(t, "tokens"))
				}
			case "end": // of any call, in any order; those that never come up are lost
				if len(flights) > 0 {
					f := rapid.SampledFrom(flights).Draw(t, "of")
					settle(f, endings.Draw(t, "ending"), rapid.Int64Range(0, 10_000).Draw(t, "used"),
						rapid.SampledFrom([]int64{0, 1, 2000, 1e9}).Draw(t, "retry after"))
				}
			case "storm":
				e := endings.Draw(t, "ending")
				for _, f := range flights {
					if !f.settled {
						settle(f, e, f.tokens, 0)
					}
				}
			case "again": // the same news once more
				for _, f := range flights {
					if f.settled {
						settle(f, capacity.Throttled, 0, 0)
						break
					}
				}
			case "clock":
				now = max(0, now+rapid.SampledFrom([]int64{-3.6e6, -61_000, -1500, -200, 61_000, 3.6e6}).Draw(t, "step"))
				stepped = true
			}
			bounded(t, text.hash)
			if kept.state == nil {
				continue // nobody has asked yet
			}
			if diff := cmp.Diff(text.hash, kept.text()); diff != "" {
				t.Fatalf("the state that went through its text is another one (-text +kept):\n%s", diff)
			}
			if len(flights) > 60 {
				flights = flights[20:]
			}
		}
		if config.MaxStarts > 0 && !stepped {
			rateHolds(t, starts, config.MaxStarts)
		}
		// Whatever happened: once nothing is in flight, a call may start, at the latest when the debt
		// of tokens that were used is paid: 40 calls of 10,000 at 100,000 a minute.
		for _, f := range flights {
			settle(f, capacity.Abandoned, 0, 0)
		}
		for waited := 0; ; waited += 250 {
			now += 250
			text.expire(now)
			if ask(laneRT, 0) == 0 {
				break
			}
			if waited > 300_000 {
				t.Fatalf("nothing may start for five minutes, with %d in flight: %v", len(text.held), text.hash)
			}
		}
	})
}

// rateHolds checks that no span of time saw more starts than the quota and its burst.
func rateHolds(t *rapid.T, starts []int64, perMinute int) {
	burst := max(float64(perMinute)*0.015, 2)
	for i := range starts {
		for j := i; j < len(starts); j++ {
			if n, most := float64(j-i+1), burst+1+float64((starts[j]-starts[i])*int64(perMinute))/minute; n > most {
				t.Fatalf("%.0f starts in %d ms; a quota of %d a minute allows %.1f", n, starts[j]-starts[i], perMinute, most)
			}
		}
	}
}

// A start that is taken back leaves no trace but in the windows' clock.
func TestLaw_UndoneStartIsNotCounted(t *testing.T) {
	t.Parallel()
	config := capacity.DefaultLaw()
	config.MaxStarts = 60
	l := law(t).law(config)
	granted := 0
	const later = runStart + 5*second // the pacer of a new state has nothing saved up
	l.ask(runStart, 1000, laneRT, 100)
	for i := range int64(50) {
		if why, _ := l.ask(later, i, laneRT, 100); why != 0 {
			break
		}
		granted++
		held, _ := l.remove(i)
		l.call(l.undone, 0, l.state, number(later), number(held.started), number(held.tokens))
	}
	if granted != 50 {
		t.Errorf("%d starts at once were let pass and taken back, want all 50: none was made", granted)
	}
}

// Counters of what was taken begin anew before they are too large to be exact.
func TestLaw_CountersWrap(t *testing.T) {
	t.Parallel()
	s := newStored(law(t), capacity.DefaultLaw())
	const each = 1e9
	now := int64(runStart)
	for id := range int64(1100) {
		now += 10_000 / 1100
		s.fetch(now)
		if why, _ := s.ask(now, id, laneRT, each); why != 0 {
			t.Fatalf("call %d is held back: %d", id, why)
		}
		s.settle(now, id, capacity.OK, each, 0)
		s.save()
	}
	now += 6000
	s.fetch(now)
	s.ask(now, 5000, laneRT, 1)
	s.save()
	const tokensTaken = 10
	if got := strings.Fields(s.hash["flow"])[tokensTaken]; got != "100000000001" {
		t.Errorf("tokens taken = %s, want the 1.1e12 and one more to begin anew at 1e12", got)
	}
}
