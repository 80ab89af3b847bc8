package capacity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// State of an older form, or a stranger's, in any field is as if the field were missing: every script answers, a call
// is admitted, and what is written then is ours again.
func TestGate_ForeignStateBeginsAnew(t *testing.T) {
	t.Parallel()
	foreign := []string{
		"", "junk", "17", "-5", "1e300", "nan", "1 2 3", strings.Repeat("9", 400), "9 9 1", "17 junk 1",
		strings.TrimSpace(strings.Repeat("1e300 ", 25)), strings.TrimSpace(strings.Repeat("-7 ", 25)), strings.TrimSpace(strings.Repeat("nan ", 25)),
		strings.Repeat("9", 300) + " 1 1 " + strings.Repeat("9", 300) + " -", "1 -99999999999999999 99 1 -99999999999999999 99",
	}
	fields := []string{
		"flow", "evidence", "slots", "starts", "tokens", "check", "wall", "starts_ring", "tokens_ring",
		"ok", "rpm", "tpm", "breaker", "waits", "throttled", "failed", "abandoned", "lapsed", "ran_rt",
	}
	c := servers.Dial(t, true)
	d, at := open(t, c), target(20)
	rates := llmq.Rates{RPM: 5000, TPM: 100_000, Fixed: true}
	at.Limits.Rates, at.Shared = rates, llmq.SharedLimits{MaxConcurrency: 20, Rates: rates}
	k, p := d.names(at)
	n := 0
	ask := func() Ask {
		n++
		return Ask{Target: at, Lane: llmq.LaneRT, CallID: fmt.Sprint("c", n), Tokens: 10}
	}
	plant := func(field, text string) {
		if err := c.HSet(t.Context(), k.State, field, text).Err(); err != nil {
			t.Fatalf("plant: %v", err)
		}
		if field == "rpm" || field == "tpm" {
			if err := c.HSet(t.Context(), p.State, field, text).Err(); err != nil {
				t.Fatalf("plant: %v", err)
			}
		}
	}
	for _, field := range fields {
		for _, text := range foreign {
			// Each verb meets it as the first.
			a, held := ask(), ask()
			for range 2 {
				d.admit(held)
			}
			plant(field, text)
			d.peek(at)
			if got := d.admit(a); !got.Granted {
				t.Fatalf("%s = %.40q: admitted %+v", field, text, got)
			} else {
				plant(field, text)
				d.renew(got.Slot)
				if got := d.settle(got.Slot, Outcome{Ending: OK, Tokens: 5}); !got.Returned {
					t.Fatalf("%s = %.40q: settled %+v", field, text, got)
				}
			}
			plant(field, text)
			if got := d.abandon(held); !got.Returned {
				t.Fatalf("%s = %.40q: abandoned %+v", field, text, got)
			}
			for _, o := range []Outcome{{Ending: Throttled}, {Ending: Failed, Broken: true, Tokens: Unknown}, {Ending: Abandoned, Tokens: Unknown}} {
				got := d.admit(ask())
				if !got.Granted {
					t.Fatalf("%s = %.40q: admitted %+v", field, text, got)
				}
				plant(field, text)
				if end := d.settle(got.Slot, o); !end.Returned {
					t.Fatalf("%s = %.40q: settled %+v with %+v", field, text, end, o)
				}
			}
			if err := c.Del(t.Context(), k.State, p.State).Err(); err != nil {
				t.Fatalf("clear: %v", err)
			}
		}
	}
}
