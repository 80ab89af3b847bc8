package llmq

import "time"

// Limits bound the calls of one target over all workers, beside its MaxConcurrency. The
// zero value has no configured limit but what is learned.
type Limits struct {
	Initial         int          // slots to begin with, before anything is learned; 0 is the limiter's own, 20
	BackgroundShare float64      // part of the slots that bg and bulk may use, above 0 to 1; 0 is the limiter's own, 0.8
	Lanes           map[Lane]int // slots that a lane may use; a lane that is missing, or 0, has no cap
	Rates           Rates
	Breaker         Breaker
}

// Rates are budgets of calls and tokens per minute. The zero value has none.
type Rates struct {
	RPM     int     // calls that may start; 0 is no budget
	TPM     int     // tokens, as the provider counts them; 0 is no budget
	Burst   int     // calls that may start back to back, from 1; the same fraction holds for tokens. 0 is a tenth of the budget. Fixed ones have none
	Fixed   bool    // the whole budget at each minute of the calendar, where false spreads it
	RTShare float64 // part of each budget that only rt may use, from 0 to less than 1
}

// Breaker says when a target that fails is left alone. The zero value is the default.
type Breaker struct {
	Threshold int           // failures that open it, if they are no fewer than the answers meanwhile; 0 is 5
	Window    time.Duration // in which they are counted; 0 is 60 s
	Cooldown  time.Duration // until one call may try again; 0 is 30 s
}

// SharedLimits bound the calls of a provider over all its targets.
type SharedLimits struct {
	MaxConcurrency int // 0 is no cap
	Rates          Rates
}

// TokenRule is how a target's provider counts tokens.
type TokenRule struct {
	Burndown         float64 // tokens that one token of output costs in the end; 0 is 1. Bedrock: 5 for some models
	DefaultMaxTokens int     // what is sent as the most output where the caller sends none; 0 sends none
}

// Pace is how a target is tried, and waited for. The zero value leaves all of it to whoever runs calls.
type Pace struct {
	AttemptTimeout   time.Duration // one attempt, but of a stream; 0: the whole Pace is not given
	Attempts         int           // failures, throttles apart, that end a target's turn; 0 leaves it to whoever runs calls
	ThrottleAttempts int           // tries that end a target's turn once it has throttled
	RetryBase        time.Duration // the least wait before the first repeat
	RetryMultiplier  float64       // by how much each further repeat waits longer
	RetrySpread      float64       // a wait lies between its least and so many times that
	RetryMax         time.Duration // the longest wait
	ThrottleRetryMax time.Duration // the longest wait of the curve after a throttle
	CapacityWait     time.Duration // how long a received rt call waits for a slot; of a call's first target
}
