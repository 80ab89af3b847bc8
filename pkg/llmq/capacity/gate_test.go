package capacity

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// door is a gate and a client, with each verb as one round trip.
type door struct {
	testing.TB
	*Gate
	c redis.UniversalClient
}

// open is a door to a store that is known to be new.
func open(t testing.TB, c redis.UniversalClient) door {
	d := door{TB: t, Gate: New(luatest.Space()), c: c}
	run(t, c, d.Preset)
	return d
}

func (d door) admit(a Ask) Admission {
	d.Helper()
	return run(d, d.c, func(b *luascript.Batch) luascript.Pending[Admission] { return d.Admit(b, a) })
}

func (d door) settle(s Slot, o Outcome) Settled {
	d.Helper()
	return run(d, d.c, func(b *luascript.Batch) luascript.Pending[Settled] { return d.Settle(b, s, o) })
}

func (d door) abandon(a Ask) Settled {
	d.Helper()
	return run(d, d.c, func(b *luascript.Batch) luascript.Pending[Settled] { return d.Abandon(b, a) })
}

func (d door) renew(s ...Slot) Renewal {
	d.Helper()
	return run(d, d.c, func(b *luascript.Batch) luascript.Pending[Renewal] { return d.Renew(b, s...) })
}

func (d door) peek(t llmq.Target) State {
	d.Helper()
	return run(d, d.c, func(b *luascript.Batch) luascript.Pending[State] { return d.Peek(b, t) })
}

func rtCall(t llmq.Target, id string) Ask { return Ask{Target: t, Lane: llmq.LaneRT, CallID: id} }

func TestGate_ALifeOfASlot(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		d, at := open(t, c), target(1)
		a := d.admit(rtCall(at, "a"))
		if !a.Granted || a.InUse != 1 || a.Limit != 1 || a.Retry != 0 || a.Missing != MissingNothing {
			t.Fatalf("first = %+v, want it granted", a)
		}
		if b := d.admit(rtCall(at, "b")); b.Granted || b.InUse != 1 || b.Missing != MissingSlots || b.Retry < 50*time.Millisecond {
			t.Errorf("second = %+v, want it refused with a time to retry", b)
		}
		if got := d.renew(a.Slot); got != (Renewal{Kept: 1}) {
			t.Errorf("renewed %+v", got)
		}
		if got := d.settle(a.Slot, Outcome{Ending: Throttled}); !got.Returned {
			t.Errorf("settled %+v", got)
		}
		if got := d.settle(a.Slot, Outcome{Ending: OK}); got.Returned {
			t.Errorf("settled again: %+v", got)
		}
		if diff := cmp.Diff(map[Ending]int{Throttled: 1}, d.peek(at).Ended); diff != "" {
			t.Errorf("ended (-want +got):\n%s", diff)
		}
		other := at
		other.Name = "u"
		if got := d.admit(rtCall(other, "x")); !got.Granted {
			t.Errorf("another target's slot = %+v, want it granted", got)
		}
		if b := d.admit(rtCall(at, "b")); !b.Granted {
			t.Errorf("after the settle = %+v, want it granted", b)
		}
	})
}

// A killed worker's slot is back when its lease ends, by the server's own clock (C3).
func TestGate_SlotLapsesWithoutRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, at := open(t, luatest.Pipe(t, llmqtest.NewMiniredis(t))), target(1)
		a := d.admit(rtCall(at, "a"))
		time.Sleep(Lease - time.Second)
		d.renew(a.Slot)
		time.Sleep(Lease - time.Second)
		if got := d.admit(rtCall(at, "b")); got.Granted {
			t.Errorf("a renewed slot was given away: %+v", got)
		}
		time.Sleep(time.Second + time.Millisecond) // one that was renewed ends half a ms later
		if got := d.admit(rtCall(at, "b")); !got.Granted || got.InUse != 1 {
			t.Errorf("a lapsed slot was not given away: %+v", got)
		}
		if st := d.peek(at); st.Lapsed != 1 {
			t.Errorf("state %+v, want one lapsed", st)
		}
	})
}

// C12: the cap holds through a wipe, for those in flight register before anybody is admitted.
func TestGate_CapHoldsThroughAWipe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := llmqtest.NewMiniredis(t)
		d, at := open(t, luatest.Pipe(t, m)), target(2)
		a, b := d.admit(rtCall(at, "a")), d.admit(rtCall(at, "b"))
		m.FlushAll()
		if got := d.admit(rtCall(at, "c")); got.Granted || got.Missing != MissingRegistration || got.Retry != Quarantine {
			t.Fatalf("after the wipe: %+v", got)
		}
		if st := d.peek(at); st.Quarantine != Quarantine {
			t.Errorf("state %+v", st)
		}
		time.Sleep(10 * time.Second) // within which every live worker renews
		if got := d.renew(a.Slot, b.Slot); got != (Renewal{Kept: 2, Anew: 2}) {
			t.Errorf("renewed %+v", got)
		}
		time.Sleep(Quarantine - 10*time.Second)
		if got := d.admit(rtCall(at, "c")); got.Granted || got.InUse != 2 || got.Missing != MissingSlots {
			t.Errorf("with two in flight: %+v", got)
		}
		d.settle(a.Slot, Outcome{Ending: OK})
		if got := d.admit(rtCall(at, "c")); !got.Granted {
			t.Errorf("with one in flight: %+v", got)
		}
	})
}

func TestGate_PresetIsForNewStoresOnly(t *testing.T) {
	t.Parallel()
	d := door{TB: t, Gate: New(luatest.Space()), c: luatest.Pipe(t, llmqtest.NewMiniredis(t))}
	if got := d.admit(rtCall(target(1), "a")); got.Granted {
		t.Fatalf("an unknown store admits: %+v", got)
	}
	run(t, d.c, d.Preset)
	if got := d.admit(rtCall(target(1), "a")); got.Granted {
		t.Errorf("a preset ended a quarantine: %+v", got)
	}
}

// What can never be granted is told before any round trip, with an error of its own.
func TestGate_RefusesWhatCanNeverBeGranted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		rates  llmq.Rates
		lane   llmq.Lane
		tokens int
		cause  error
		code   llmq.Code
	}{
		{"within the burst", llmq.Rates{TPM: 1000}, llmq.LaneRT, 100, nil, ""},
		{"above the burst", llmq.Rates{TPM: 1000}, llmq.LaneRT, 101, ErrAboveBurst, llmq.CodeInvalidRequest},
		{"within the minute", llmq.Rates{TPM: 1000, Fixed: true}, llmq.LaneRT, 1000, nil, ""},
		{"above the minute", llmq.Rates{TPM: 1000, Fixed: true}, llmq.LaneRT, 1001, ErrAboveBurst, llmq.CodeInvalidRequest},
		{"above the background's part", llmq.Rates{TPM: 1000, Fixed: true, RTShare: 0.2}, llmq.LaneBulk, 801, ErrAboveBurst, llmq.CodeInvalidRequest},
		{"a set burst holds for tokens too", llmq.Rates{RPM: 10, TPM: 1000, Burst: 5}, llmq.LaneRT, 500, nil, ""},
		{"nothing left to background", llmq.Rates{RPM: 10, RTShare: 1}, llmq.LaneBG, 0, ErrZeroRate, llmq.CodeConfiguration},
		{"nothing left to background, rt", llmq.Rates{RPM: 10, RTShare: 1}, llmq.LaneRT, 0, nil, ""},
		{"a rate below nothing", llmq.Rates{RPM: -1}, llmq.LaneRT, 0, ErrZeroRate, llmq.CodeConfiguration},
		{"tokens below nothing", llmq.Rates{}, llmq.LaneRT, -1, ErrAboveBurst, llmq.CodeInvalidRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			own, shared := target(1), target(1)
			own.Limits.Rates, shared.Shared.Rates = tc.rates, tc.rates
			g := New(luatest.Space())
			for _, at := range []llmq.Target{own, shared} {
				a := Ask{Target: at, Lane: tc.lane, CallID: "a", Tokens: tc.tokens}
				if err := g.Check(a); !errors.Is(err, tc.cause) || (err != nil) != (tc.cause != nil) || (err != nil && llmq.AsError(err).Code != tc.code) {
					t.Errorf("checked: %v", err)
				}
				if tc.cause == nil {
					continue
				}
				var b luascript.Batch
				if _, err := g.Admit(&b, a)(); !errors.Is(err, tc.cause) { // the batch never ran
					t.Errorf("asked: %v", err)
				}
			}
		})
	}
}

// C14: what is told to a waiting rt call is its place over the learned rate.
func TestGate_WaitingCallsAreToldTheirTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, at := open(t, luatest.Pipe(t, llmqtest.NewMiniredis(t))), target(10)
		d.Gate = d.Tuned(DefaultLaw(), time.Hour)
		for i := range 10 {
			d.admit(rtCall(at, strconv.Itoa(i)))
		}
		for i := 1; i <= 30; i++ {
			a := rtCall(at, "w"+strconv.Itoa(i))
			a.Until = time.Now().Add(time.Duration(i) * time.Minute)
			got, want := d.admit(a), time.Duration(i)*100*time.Millisecond
			if got.Place != i || got.Retry != min(time.Second, want) || got.Wait != want {
				t.Errorf("place %d, retry %v, wait %v; want %d, and both %v but the first no longer than 1s: ten started within the last second", got.Place, got.Retry, got.Wait, i, want)
			}
		}
		first := rtCall(at, "w1")
		first.Until = time.Now().Add(time.Minute)
		if got := d.admit(first); got.Place != 1 || got.Retry != 100*time.Millisecond || got.Wait != 3*time.Second {
			t.Errorf("the first, again: %+v; want it to look in soon, and if it gave up to stand behind 30", got)
		}
		if st := d.peek(at); st.Waiting != 30 {
			t.Errorf("%d wait, want 30", st.Waiting)
		}
		d.abandon(Ask{Target: at, Lane: llmq.LaneRT, CallID: "w1"})
		time.Sleep(2 * time.Minute)
		if st := d.peek(at); st.Waiting != 28 {
			t.Errorf("%d wait, want 28: one gave up and one's deadline has passed", st.Waiting)
		}
	})
}

func TestGate_MissingHasNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for m := MissingNothing; m <= MissingRegistration; m++ {
		if name := m.String(); seen[name] || name == "" {
			t.Errorf("%d is %q, which another is too", m, name)
		} else {
			seen[name] = true
		}
		if want := m == MissingRPM || m == MissingTPM || m == MissingSharedRPM || m == MissingSharedTPM; m.IsRate() != want {
			t.Errorf("%v.IsRate() = %v", m, !want)
		}
	}
	if got := Missing(99).String(); got != "missing(99)" {
		t.Error(got)
	}
}

// C13: providers reserve input and the most output, and charge output with a burndown.
func TestTokens_AreCountedAsTheProviderDoes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		chars, most int
		noOutput    bool
		want        int
	}{{40, 390, false, 400}, {41, 390, false, 401}, {40, 0, false, 1010}, {40, 0, true, 10}, {0, 5, false, 5}, {-1, 0, true, 0}} {
		if got := Reserve(tc.chars, tc.most, tc.noOutput); got != tc.want {
			t.Errorf("%+v reserves %d", tc, got)
		}
	}
	for _, tc := range []struct {
		burndown float64
		u        Usage
		want     int
	}{{0, Usage{Input: 12, Output: 38}, 50}, {5, Usage{Input: 12, CacheWrite: 8, Output: 38}, 210}, {1.5, Usage{Output: 3}, 5}, {1, Usage{Input: -4, Output: -4}, 0}, {5, Usage{Output: 1 << 40}, 1e9}} {
		if got := Cost(llmq.TokenRule{Burndown: tc.burndown}, tc.u); got != tc.want {
			t.Errorf("%+v costs %d", tc, got)
		}
	}
}
