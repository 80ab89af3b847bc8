package capacity

import (
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
		return llmq.Errorf(llmq.CodeInvalidRequest, "the call asks for %d tokens", a.Tokens).At("max_tokens").Because(ErrAboveBurst)
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
		if most := budgetOf(r).most(background); r.TPM > 0 && a.Tokens > most {
			return llmq.Errorf(llmq.CodeInvalidRequest, "the call needs up to %d tokens at once and %s never has more than %d: ask for less output, or raise tpm or rate_burst",
				a.Tokens, of.name, most).At("max_tokens").Because(ErrAboveBurst)
		}
	}
	return nil
}

// budget is rates as the scripts take them: whole numbers.
type budget struct {
	rpm, callsBurst, tpm, tokensBurst, share int
	fixed                                    bool
}

func budgetOf(r llmq.Rates) budget {
	b := budget{rpm: r.RPM, tpm: r.TPM, share: perMille(r.RTShare), fixed: r.Fixed}
	b.callsBurst, b.tokensBurst = max(1, (r.RPM+9)/10), max(1, (r.TPM+9)/10)
	if r.Burst > 0 {
		b.callsBurst = r.Burst
		if r.RPM > 0 {
			b.tokensBurst = max(1, int(math.Ceil(float64(r.TPM)*float64(r.Burst)/float64(r.RPM))))
		}
	}
	b.callsBurst, b.tokensBurst = min(b.callsBurst, max(1, r.RPM)), min(b.tokensBurst, max(1, r.TPM))
	return b
}

// most is how many tokens a call can draw at once at best.
func (b budget) most(background bool) int {
	most := b.tokensBurst
	if b.fixed {
		most = b.tpm
	}
	if background {
		most = max(1, most*(1000-b.share)/1000)
	}
	return most
}

// text is the budget for the scripts, "" where there is none.
func (b budget) text() string {
	if b.rpm == 0 && b.tpm == 0 {
		return ""
	}
	fixed := 0
	if b.fixed {
		fixed = 1
	}
	return fmt.Sprintf("%d %d %d %d %d %d ", b.rpm, b.callsBurst, b.tpm, b.tokensBurst, b.share, fixed)
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

// breakerText is the breaker's threshold, window and cooldown for the scripts.
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
