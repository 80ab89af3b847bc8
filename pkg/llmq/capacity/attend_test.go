package capacity

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

func (d door) attend(process string, says Attending) Attendance {
	d.Helper()
	return run(d, d.c, func(b *luascript.Batch) luascript.Pending[Attendance] { return d.Attend(b, process, says) })
}

// C9: callers hear how many they are; who leaves is none of them at once, who falls silent in a while.
func TestAttend_CountsWhoLives(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, c redis.UniversalClient) {
		d := open(t, c)
		for i, want := range []Attendance{{1, true}, {2, true}, {2, false}, {1, false}, {2, true}} {
			process, says := []string{"a", "b", "a", "b", "b"}[i], []Attending{Joins, Joins, May, Leaves, Joins}[i]
			if got := d.attend(process, says); got != want {
				t.Errorf("%s %s: %+v, want %+v", process, says, got, want)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := open(t, luatest.Pipe(t, llmqtest.NewMiniredis(t)))
		d.attend("a", Joins)
		d.attend("b", Joins)
		time.Sleep(Away - time.Second)
		if got := d.attend("b", May); got != (Attendance{2, false}) {
			t.Errorf("before a is missed: %+v", got)
		}
		time.Sleep(2 * time.Second)
		if got := d.attend("b", May); got != (Attendance{1, false}) {
			t.Errorf("after: %+v", got)
		}
		if got := d.attend("a", May); got != (Attendance{2, true}) {
			t.Errorf("a, back: %+v", got)
		}
	})
}

// C9, DS56: a store that was lost to all callers admits nobody to a target with a cap until they have told what they run.
func TestAdmit_AfterAnOutageNothingCappedBeforeCallersTold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*llmq.Target)
		says   Attending // of b, while a attends until the outage
		also   string    // attends all along
		leaves bool      // a says so
		waits  bool
	}{
		"cap":                    {change: func(t *llmq.Target) { t.MaxConcurrency = 5 }, says: May, waits: true},
		"lane's cap":             {change: func(t *llmq.Target) { t.Limits.Lanes = map[llmq.Lane]int{llmq.LaneRT: 5} }, says: May, waits: true},
		"provider's cap":         {change: func(t *llmq.Target) { t.Shared.MaxConcurrency = 5 }, says: May, waits: true},
		"budget":                 {change: func(t *llmq.Target) { t.Shared.Rates.RPM = 6000 }, says: May, waits: true},
		"nothing promised":       {says: May},
		"nobody who may":         {change: func(t *llmq.Target) { t.MaxConcurrency = 5 }, says: Joins},
		"one of two fell silent": {change: func(t *llmq.Target) { t.MaxConcurrency = 5 }, says: May, also: "b"},
		"who left":               {change: func(t *llmq.Target) { t.MaxConcurrency = 5 }, says: May, leaves: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, at := open(t, luatest.Pipe(t, llmqtest.NewMiniredis(t))), target(0)
				if tc.change != nil {
					tc.change(&at)
				}
				time.Sleep(time.Minute) // budgets fill
				d.attend("a", tc.says)
				if got := d.admit(rtCall(at, "before")); !got.Granted {
					t.Fatalf("before: %+v", got)
				}
				if tc.leaves {
					d.attend("a", Leaves)
				}
				for range 4 { // the outage, for a
					time.Sleep(10 * time.Second)
					if tc.also != "" {
						d.attend(tc.also, May)
					}
				}
				got := d.admit(rtCall(at, "after"))
				if got.Granted == tc.waits || tc.waits && (got.Missing != MissingRegistration || got.Retry != Quarantine) {
					t.Fatalf("after: %+v", got)
				}
				if !tc.waits {
					return
				}
				d.attend("a", Joins)
				flying := make([]Slot, 4)
				for i := range flying {
					flying[i] = Uncounted(rtCall(at, []string{"w", "x", "y", "z"}[i]))
				}
				d.renew(flying...)
				if got := d.admit(rtCall(at, "after")); got.Granted || got.Missing != MissingRegistration {
					t.Errorf("with its callers heard: %+v", got)
				}
				time.Sleep(Quarantine + time.Second)
				d.renew(flying...)
				got = d.admit(rtCall(at, "after"))
				if want := 5; name != "budget" && (got.Granted && got.InUse > want || !got.Granted && got.Missing == MissingRegistration) {
					t.Errorf("after the quarantine: %+v", got)
				}
				for _, s := range flying {
					if got := d.settle(s, Outcome{Ending: Abandoned, Tokens: Unknown}); !got.Returned {
						t.Errorf("not returned: %+v", got)
					}
				}
			})
		})
	}
}

// C9: what was drawn while the store was lost nobody wrote down, so its budgets begin empty.
func TestAdmit_AfterAnOutageBudgetsAreEmpty(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rates llmq.Rates
		wait  time.Duration // after admissions begin
	}{
		"smooth": {llmq.Rates{RPM: 60}, time.Second},
		"fixed":  {llmq.Rates{RPM: 60, Fixed: true}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, at := open(t, luatest.Pipe(t, llmqtest.NewMiniredis(t))), target(0)
				at.Limits.Rates = tc.rates
				d.admit(rtCall(at, "begins"))
				time.Sleep(2 * time.Minute)
				d.attend("a", May)
				if got := d.admit(rtCall(at, "before")); !got.Granted {
					t.Fatalf("before: %+v", got)
				}
				time.Sleep(time.Minute)
				d.attend("a", Joins) // sees the outage
				if st := d.peek(at); st.CallsLeft > 0 {
					t.Errorf("%d calls are left at its end", st.CallsLeft)
				}
				time.Sleep(Quarantine)
				if got := d.admit(rtCall(at, "after")); got.Granted || got.Missing != MissingRPM || got.Retry > tc.wait {
					t.Errorf("when admissions begin: %+v", got)
				}
				for range 6 {
					time.Sleep(tc.wait/6 + time.Millisecond)
					d.attend("a", May)
				}
				if got := d.admit(rtCall(at, "after")); !got.Granted {
					t.Errorf("later: %+v", got)
				}
			})
		})
	}
}

// C9: callers that all died are waited for once.
func TestAdmit_DeadCallersAreWaitedForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, at := open(t, luatest.Pipe(t, llmqtest.NewMiniredis(t))), target(1)
		d.attend("a", May)
		time.Sleep(Away + time.Second)
		if got := d.admit(rtCall(at, "c")); got.Granted || got.Retry != Quarantine {
			t.Errorf("they may come back: %+v", got)
		}
		time.Sleep(Quarantine)
		for range 3 {
			if got := d.admit(rtCall(at, "c")); !got.Granted {
				t.Errorf("nobody came back: %+v", got)
			}
			time.Sleep(Away)
		}
	})
}
