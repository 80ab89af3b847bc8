package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Ask is what a call needs to start.
type Ask struct {
	Target llmq.Target
	Lane   llmq.Lane
	CallID string // unique to this admission, without spaces; a repeat with it, after a lost answer, gets what the first got
	Tokens int    // see [Reserve]
	Most   string // what the caller's wire calls the most output, for errors; empty where it has no one name for it
	Direct bool   // run where its caller waits: admitted only beyond the rt calls that wait (FEATURES C14)

	// Until is, for an rt call, when it gives up: refused, it counts as waiting until then,
	// or until it is admitted or abandoned. Zero: it does not wait.
	Until time.Time
}

// Causes of errors for asks that can never be granted, as [Gate.Check] returns them.
var (
	ErrAboveBurst = errors.New("the call costs more than its budget ever holds")
	ErrZeroRate   = errors.New("the lane's part of the budget is nothing")
)

// mostTokens bounds what a single call may reserve or report: the scripts' integers stay
// exact below it.
const mostTokens = 1e9

// Check refuses what could wait for ever, before any round trip: an [llmq.Error] with
// [llmq.CodeInvalidRequest] and [ErrAboveBurst] for a cost that no budget ever holds, with
// [llmq.CodeConfiguration] and [ErrZeroRate] for a lane that no rate is left to.
func (g *Gate) Check(a Ask) error {
	if a.Tokens < 0 || a.Tokens > mostTokens {
		return llmq.Errorf(llmq.CodeInvalidRequest, "the call asks for %d tokens", a.Tokens).At(a.Most).Because(ErrAboveBurst)
	}
	background := a.Lane != llmq.LaneRT
	for _, of := range []struct {
		name  string
		rates llmq.Rates
	}{{a.Target.String(), a.Target.Limits.Rates}, {"provider " + a.Target.Provider, a.Target.Shared.Rates}} {
		r := of.rates
		if r.RPM < 0 || r.TPM < 0 || (r.RPM > 0 || r.TPM > 0) && background && r.RTShare >= 1 {
			return llmq.Errorf(llmq.CodeConfiguration, "%s has no rate for %s: mend rpm, tpm or rt_rate_share", of.name, a.Lane).Because(ErrZeroRate)
		}
		_, tokens := budgetsOf(r)
		if most := tokens.most(background); r.TPM > 0 && a.Tokens > most {
			return llmq.Errorf(llmq.CodeInvalidRequest, "the call may need %d tokens (its input, and the most output it asks for or, where it names none, %d) and %s never has more than %d at once for %s: "+
				"send a smaller %s, or raise tpm or, with rpm, rate_burst, or set rate_window: fixed", a.Tokens, unknownOutput, of.name, most, a.Lane, cmp.Or(a.Most, "input or bound of the output")).At(a.Most).Because(ErrAboveBurst)
		}
	}
	return nil
}

// budget is a configured rate as the scripts take it: whole numbers.
type budget struct {
	limit, burst         int // per minute, and at once
	partLimit, partBurst int // the same of the part that background calls draw on besides
	fixed                bool
}

// budgetsOf are the budgets of calls and of tokens; one that is not set has no limit.
func budgetsOf(r llmq.Rates) (calls, tokens budget) {
	callsBurst, tokensBurst := (r.RPM+9)/10, (r.TPM+9)/10
	if r.Burst > 0 {
		callsBurst = r.Burst
		if r.RPM > 0 {
			tokensBurst = int(math.Ceil(float64(r.TPM) * float64(r.Burst) / float64(r.RPM)))
		}
	}
	left := 1000 - perMille(r.RTShare)
	of := func(limit, burst int) budget {
		burst = min(max(1, burst), max(1, limit))
		return budget{limit: limit, burst: burst, partLimit: max(1, limit*left/1000), partBurst: max(1, burst*left/1000), fixed: r.Fixed}
	}
	return of(r.RPM, callsBurst), of(r.TPM, tokensBurst)
}

// most is how much a call can draw at once at best.
func (b budget) most(background bool) int {
	switch {
	case b.fixed && background:
		return b.partLimit
	case b.fixed:
		return b.limit
	case background:
		return b.partBurst
	}
	return b.burst
}

// text is the budget for the scripts, "" where there is none.
func (b budget) text() string {
	if b.limit == 0 {
		return ""
	}
	return fmt.Sprintf("%d %d %d %d %d", b.limit, b.burst, flag(b.fixed), b.partLimit, b.partBurst)
}

// budgetTexts are the budgets of a target and of its provider, of calls and of tokens each.
func budgetTexts(t llmq.Target) [4]string {
	calls, tokens := budgetsOf(t.Limits.Rates)
	sharedCalls, sharedTokens := budgetsOf(t.Shared.Rates)
	return [...]string{calls.text(), tokens.text(), sharedCalls.text(), sharedTokens.text()}
}

func perMille(share float64) int { return int(share*1000 + 0.5) }

// lawText is the law for a target: its own settings over the gate's. Configured rates are no
// quotas of the law's, which would pace them evenly: budgets hold them exactly, window and
// burst, and what is learned stays on underneath.
func (g *Gate) lawText(t llmq.Target) string {
	c := g.law
	if t.Limits.Initial > 0 {
		c.Initial = t.Limits.Initial
	}
	if t.Limits.BackgroundShare > 0 {
		c.BackgroundShare = t.Limits.BackgroundShare
	}
	if t.MaxConcurrency > 0 {
		c.MaxSlots = t.MaxConcurrency
	}
	return c.Text()
}

// breakerConfig is the breaker's threshold, window and cooldown for the scripts.
func breakerConfig(b llmq.Breaker) string {
	threshold, window, cooldown := 5, 60*time.Second, 30*time.Second
	if b.Threshold > 0 {
		threshold = b.Threshold
	}
	if b.Window > 0 {
		window = b.Window
	}
	if b.Cooldown > 0 {
		cooldown = b.Cooldown
	}
	return fmt.Sprintf("%d %d %d", threshold, window.Milliseconds(), cooldown.Milliseconds())
}
