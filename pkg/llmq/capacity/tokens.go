package capacity

import (
	"math"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// unknownOutput is reserved for a call that sends no maximum of output.
const unknownOutput = 1000

// mostOutput bounds what a call reserves for its output: callers may ask for any number, which
// their provider refuses, and until then it must not hold up a target whose rate of tokens is learned. No
// model puts out more.
const mostOutput = 1_000_000

// Reserve is what a call takes off a token budget before it starts, as providers count it
// then: its input, estimated at four characters a token, and the most output that is
// sent (FEATURES C13). A burndown is charged at the end, see [Cost]. maxOutput 0: nothing
// is sent; embeddings, which have no output, pass noOutput.
func Reserve(inputChars, maxOutput int, noOutput bool) int {
	output := maxOutput
	switch {
	case noOutput:
		output = 0
	case maxOutput <= 0:
		output = unknownOutput
	}
	return min(mostTokens, (max(0, inputChars)+3)/4+min(output, mostOutput))
}

// Usage is what a provider says a call has used.
type Usage struct {
	Input      int // tokens of input, without those read from a cache
	CacheWrite int // tokens of input written to a cache
	Output     int
}

// Cost is what the provider charges its token budget for u in the end: Bedrock's output
// weighs more on some models, and what is read from a cache is free.
func Cost(rule llmq.TokenRule, u Usage) int {
	burndown := rule.Burndown
	if burndown <= 0 {
		burndown = 1
	}
	cost := float64(max(0, u.Input)) + float64(max(0, u.CacheWrite)) + math.Ceil(float64(max(0, u.Output))*burndown)
	return int(min(mostTokens, cost))
}
