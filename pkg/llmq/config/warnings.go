package config

import (
	"cmp"
	"fmt"
	"math"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// unknownOutput is what package capacity reserves for a call that names no maximum of output.
const unknownOutput = 1000

// Warnings are contradictions that are no faults, for something sensible follows from them
// all the same: a limit that another one hides, a budget that ordinary calls don't fit in. Each
// is one line, for people; programs that load a configuration show them.
func (c *Config) Warnings() []string {
	var all []string
	for _, m := range c.Models {
		for i, t := range m.Targets {
			for _, w := range c.targetWarnings(m, t) {
				all = append(all, targetPath(m.Alias, i)+w)
			}
		}
	}
	for _, p := range c.Providers {
		if w := tooSmall(c.shared(p).Rates, unknownOutput); w != "" {
			all = append(all, providerPath(p.Name)+".shared_tpm"+w)
		}
	}
	return all
}

// targetWarnings begin with the setting's part of the path.
func (c *Config) targetWarnings(m Model, t Target) []string {
	var all []string
	p := c.provider(t.Provider)
	most, limits := cmp.Or(t.MaxConcurrency, m.MaxConcurrency, p.MaxConcurrency), c.limits(m, t, p)
	for _, l := range llmq.Lanes() {
		if lane := limits.Lanes[l]; most > 0 && lane > most {
			all = append(all, fmt.Sprintf(".lane_max_concurrency.%s: %d is above max_concurrency, %d, and so caps nothing", l, lane, most))
		}
	}
	switch burst := cmp.Or(t.Limits.RateBurst, m.Limits.RateBurst, p.Limits.RateBurst); {
	case burst == 0:
	case limits.Rates.RPM == 0:
		all = append(all, fmt.Sprintf(".rate_burst: %d does nothing without rpm", burst))
	case limits.Rates.Fixed:
		all = append(all, fmt.Sprintf(".rate_burst: %d does nothing with rate_window: fixed, which hands a minute's budget out whole", burst))
	}
	if w := tooSmall(limits.Rates, cmp.Or(m.DefaultMaxTokens, unknownOutput)); w != "" {
		all = append(all, ".tpm"+w)
	}
	return all
}

// tooSmall tells that a budget of tokens never has enough at once for a call that names no
// maximum of output; "" where it has. A call's input comes on top, a token at the least.
func tooSmall(r llmq.Rates, output int) string {
	if r.TPM == 0 {
		return ""
	}
	atOnce, raise := r.TPM, "tpm"
	if !r.Fixed {
		raise = "tpm, or set rate_window: fixed"
		atOnce = (r.TPM + 9) / 10
		if r.RPM > 0 {
			raise = "tpm or rate_burst, or set rate_window: fixed"
		}
		if r.RPM > 0 && r.Burst > 0 {
			atOnce = min(r.TPM, int(math.Ceil(float64(r.TPM)*float64(r.Burst)/float64(r.RPM))))
		}
	}
	lane, rt := "calls", atOnce
	if atOnce = atOnce * (1000 - int(r.RTShare*1000+0.5)) / 1000; atOnce > output {
		return ""
	}
	if rt > output {
		lane = "calls in bg and bulk"
	} else {
		atOnce = rt
	}
	return fmt.Sprintf(": %d has at most %d tokens at once, and %s that name no maximum of output reserve %d and their input: they are refused; raise %s, or have them ask for less", r.TPM, atOnce, lane, output, raise)
}
