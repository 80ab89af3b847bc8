package config

const (
	whyTries = "each try is paid for, and tried often enough the deadline is over"
	whyCurve = "outside it no deadline is met, or none is waited for"
)

// retries is how often a target is tried, and how far apart (FEATURES D2).
func retries() []setting {
	return []setting{
		{
			path: "timing.retry_attempts", env: "LLMQ_RETRY_ATTEMPTS", form: formCount, def: "3", low: 1, high: 10, why: whyTries,
			doc: "failures, throttles apart, after which a call leaves a target", at: func(s *scope) any { return &s.cfg.Timing.RetryAttempts },
		},
		{
			path: "timing.throttle_retry_attempts", env: "LLMQ_THROTTLE_RETRY_ATTEMPTS", form: formCount, def: "6", low: 1, high: 20, why: whyTries,
			doc: "tries after which it leaves one that has throttled it", at: func(s *scope) any { return &s.cfg.Timing.ThrottleRetryAttempts },
		},
		{
			path: "timing.max_receives", env: "LLMQ_MAX_RECEIVES", form: formCount, def: "10", low: 1, high: 1000, why: "what fails more often is not mended by a repeat",
			doc: "failures, throttles apart, over all targets and releases, after which a call is poison: its caller gets the last error, its message goes to the dead-letter queue",
			at:  func(s *scope) any { return &s.cfg.Timing.MaxReceives },
		},
		{
			path: "timing.retry_base_secs", env: "LLMQ_RETRY_BASE_SECS", form: formSecs, def: "1", low: 0.001, high: 60, why: whyCurve,
			doc: "least wait before the first repeat", at: func(s *scope) any { return &s.cfg.Timing.RetryBase },
		},
		{
			path: "timing.retry_multiplier", env: "LLMQ_RETRY_MULTIPLIER", form: formNumber, def: "4", low: 1, high: 100, why: whyCurve,
			doc: "by how much each further repeat waits longer", at: func(s *scope) any { return &s.cfg.Timing.RetryMultiplier },
		},
		{
			path: "timing.retry_spread", env: "LLMQ_RETRY_SPREAD", form: formNumber, def: "2.5", low: 1, high: 100, why: whyCurve,
			doc: "a wait lies between its least and so many times that", at: func(s *scope) any { return &s.cfg.Timing.RetrySpread },
		},
		{
			path: "timing.retry_max_secs", env: "LLMQ_RETRY_MAX_SECS", form: formSecs, def: "30", low: 0.001, high: 900, why: whyLambda,
			doc: "longest wait. A provider that asks for a longer one has the call handed back for it, or loses it to the next target",
			at:  func(s *scope) any { return &s.cfg.Timing.RetryMax },
		},
		{
			path: "timing.throttle_retry_max_secs", env: "LLMQ_THROTTLE_RETRY_MAX_SECS", form: formSecs, def: "10", low: 0.001, high: 900, why: whyLambda,
			doc: "longest wait of the curve after a throttle", at: func(s *scope) any { return &s.cfg.Timing.ThrottleRetryMax },
		},
		{
			path: "timing.retry_full_jitter", env: "LLMQ_RETRY_FULL_JITTER", form: formBool, def: "false",
			doc: "draw waits from 0 to their least: the widest spread of a herd, at the cost of some quick repeats", at: func(s *scope) any { return &s.cfg.Timing.RetryFullJitter },
		},
	}
}
