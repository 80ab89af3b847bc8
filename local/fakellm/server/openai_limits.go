package server

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

// slack is what float errors may have added to or taken from a whole number.
const slack = 1e-6

func number(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }

// throttle says it in OpenAI's words, whose "Please try again in" is read by some clients.
func (openAIWire) throttle(a ask, r quota.Refusal) fault {
	f := fault{code: "rate_limit_exceeded", kind: "requests", model: a.model}
	unit := "requests per min (RPM)"
	switch r.Cause {
	case quota.Tokens:
		f.kind, unit = "tokens", "tokens per min (TPM)"
	case quota.Concurrency:
		unit = "concurrent requests"
	case quota.Requests:
	case Chance:
		f.message = "That model is currently overloaded with other requests. Please try again in " + resetText(r.After) + "."
		return f
	}
	if r.Never {
		f.message = fmt.Sprintf("Request too large for %s in organization org-fakellm on %s: Limit %s, Requested %s. "+
			"The input or output tokens must be reduced in order to run successfully.", a.model, unit, number(math.Floor(r.Limit+slack)), number(r.Requested))
		return f
	}
	// Rounded apart, so that what is used and asked for never seems to fit.
	f.message = fmt.Sprintf("Rate limit reached for %s in organization org-fakellm on %s: Limit %s, Used %s, Requested %s. Please try again in %s.",
		a.model, unit, number(math.Floor(r.Limit+slack)), number(math.Ceil(r.Used-slack)), number(r.Requested), resetText(r.After))
	return f
}

func (openAIWire) tooLong(a ask, context int) fault {
	f := fault{code: "context_length_exceeded"}
	if a.maxTokens > 0 {
		f.message = fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d tokens (%d in the messages, %d in the completion). "+
			"Please reduce the length of the messages or completion.", context, a.input+a.maxTokens, a.input, a.maxTokens)
	} else {
		f.message = fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. "+
			"Please reduce the length of the messages.", context, a.input)
	}
	return f
}

// tellQuotas sets x-ratelimit-{limit,remaining,reset}-{requests,tokens}. The reset is the time
// until nothing is used any more, not that until the next call may come.
func (openAIWire) tellQuotas(h http.Header, requests, tokens quota.Left) {
	for _, each := range []struct {
		name string
		left quota.Left
	}{{"Requests", requests}, {"Tokens", tokens}} {
		if each.left.Limit == 0 {
			continue
		}
		h.Set("X-Ratelimit-Limit-"+each.name, number(each.left.Limit))
		h.Set("X-Ratelimit-Remaining-"+each.name, number(each.left.Remaining))
		h.Set("X-Ratelimit-Reset-"+each.name, resetText(each.left.Full))
	}
}

func (openAIWire) tellWait(h http.Header, wait time.Duration) {
	h.Set("Retry-After", wholeSeconds(wait))
	h.Set("Retry-After-Ms", millisCeil(wait))
}
