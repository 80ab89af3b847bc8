package config

const (
	whyAccident = "more than 2000 calls at once is no target but an accident"
	whyExact    = "counts in the state store are exact up to it"
	whyShare    = "it is a part of the whole"
	whyPause    = "a pause longer than that is an outage"
	whyLease    = "a worker that can't renew cancels its attempt after 35 s, and dead ones hold their slots so long"

	// Reasons for lower bounds.
	whyNoCap    = "leave it out for no cap; pause the queue to stop calls"
	whyNoBudget = "leave it out for no budget; pause the queue to stop calls"
	whyNoBurst  = "one call must be able to start; leave it out for a tenth of rpm"
	whySlot     = "without a slot to begin with nothing is ever learned; pause the queue to stop calls"
	whyRest     = "bg and bulk would never run; pause their queues to stop them"
	whyFailure  = "there must be a failure to open it; leave it out for the default"
	whyStorm    = "a target that fails would hardly be left alone"

	mostRPM = 10_000_000
	mostTPM = 1_000_000_000
)

// capAndLimits are the rows of limits at one of the places where they may stand. of is what
// the place is, for people.
func capAndLimits(path, of string, most func(*scope) *int, limits func(*scope) *Limits) []setting {
	return []setting{
		{
			path: path + "max_concurrency", form: formCount, low: 1, high: 2000, why: whyAccident, whyLow: whyNoCap, defNote: "no cap: what is learned",
			doc: "calls in flight at a target over all workers, " + of + "; see LLMQ_AC_MAX_BY_MODEL", at: func(s *scope) any { return most(s) },
		},
		{
			path: path + "limiter_initial", form: formCount, low: 1, high: 2000, why: whyAccident, whyLow: whySlot, defNote: "20, or the cap",
			doc: "slots to begin with, before anything was learned; see LLMQ_AC_INITIAL", at: func(s *scope) any { return &limits(s).Initial },
		},
		{
			path: path + "bg_share", form: formShare, low: 0.01, high: 1, why: whyShare, whyLow: whyRest, above: "limiter.bg_share",
			doc: "part of the slots that bg and bulk may use", at: func(s *scope) any { return &limits(s).BackgroundShare },
		},
		{
			path: path + "lane_max_concurrency.rt", form: formCount, low: 1, high: 2000, why: whyAccident, whyLow: whyNoCap, defNote: "no cap",
			doc: "rt calls in flight at a target", at: func(s *scope) any { return &limits(s).RT },
		},
		{
			path: path + "lane_max_concurrency.bg", form: formCount, low: 1, high: 2000, why: whyAccident, whyLow: whyNoCap, defNote: "no cap",
			doc: "bg calls in flight at a target", at: func(s *scope) any { return &limits(s).BG },
		},
		{
			path: path + "lane_max_concurrency.bulk", form: formCount, low: 1, high: 2000, why: whyAccident, whyLow: whyNoCap, defNote: "no cap",
			doc: "bulk calls in flight at a target", at: func(s *scope) any { return &limits(s).Bulk },
		},
		{
			path: path + "rpm", form: formCount, low: 1, high: mostRPM, why: whyExact, whyLow: whyNoBudget, defNote: "no budget",
			doc: "calls that may start per minute at a target, " + of, at: func(s *scope) any { return &limits(s).RPM },
		},
		{
			path: path + "tpm", form: formCount, low: 1, high: mostTPM, why: whyExact, whyLow: whyNoBudget, defNote: "no budget",
			doc: "tokens per minute at a target, as its provider counts them. A call that needs more at once than its burst is refused: a tenth of it, else by rate_burst or rate_window: fixed; 1000 tokens are reserved for output that has no maximum", at: func(s *scope) any { return &limits(s).TPM },
		},
		{
			path: path + "rate_window", words: []string{string(RateSmooth), string(RateFixed)}, above: "limiter.rate_window",
			doc: "smooth spreads a budget over the minute, fixed gives the whole of it at each minute of the calendar", at: func(s *scope) any { return &limits(s).RateWindow },
		},
		{
			path: path + "rate_burst", form: formCount, low: 1, high: mostRPM, why: whyExact, whyLow: whyNoBurst, defNote: "a tenth of rpm",
			doc: "calls that may start back to back in a smooth window; the same fraction of tpm. Needs rpm", at: func(s *scope) any { return &limits(s).RateBurst },
		},
		{
			path: path + "rt_rate_share", form: formShare, low: 0, high: 0.99, why: "the other lanes need some", above: "limiter.rt_rate_share",
			doc: "part of a budget that only rt may use", at: func(s *scope) any { return &limits(s).RTRateShare },
		},
		{
			path: path + "breaker_threshold", form: formCount, low: 1, high: 1000, why: "beyond it nothing ever opens", whyLow: whyFailure, above: "breaker.threshold",
			doc: "failures that open a target's breaker", at: func(s *scope) any { return &limits(s).BreakerThreshold },
		},
		{
			path: path + "breaker_cooldown_secs", form: formSecs, low: 0.1, high: 3600, why: "a target that is mended must be found", whyLow: whyStorm, above: "breaker.cooldown_secs",
			doc: "until one call may try an open target", at: func(s *scope) any { return &limits(s).BreakerCooldown },
		},
	}
}

// sharedLimits are the rows of what a provider's targets share.
func sharedLimits() []setting {
	return []setting{
		{
			path: "providers.*.shared_max_concurrency", form: formCount, low: 1, high: 2000, why: whyAccident, whyLow: whyNoCap, defNote: "no cap",
			doc: "calls in flight over all its targets", at: func(s *scope) any { return &s.provider.SharedMaxConcurrency },
		},
		{
			path: "providers.*.shared_rpm", form: formCount, low: 1, high: mostRPM, why: whyExact, whyLow: whyNoBudget, defNote: "no budget",
			doc: "calls that may start per minute over all its targets", at: func(s *scope) any { return &s.provider.SharedRPM },
		},
		{
			path: "providers.*.shared_tpm", form: formCount, low: 1, high: mostTPM, why: whyExact, whyLow: whyNoBudget, defNote: "no budget",
			doc: "tokens per minute over all its targets", at: func(s *scope) any { return &s.provider.SharedTPM },
		},
	}
}

// tokenRules are the rows of how a model's tokens count.
func tokenRules() []setting {
	return []setting{
		{
			path: "models.*.burndown", form: formNumber, low: 0.1, high: 100, why: "no provider weighs output more", whyLow: "no provider weighs it less", defNote: "1",
			doc: "tokens that one token of output costs a tpm budget in the end; Bedrock: 5 for some models", at: func(s *scope) any { return &s.model.Burndown },
		},
		{
			path: "models.*.default_max_tokens", form: formCount, low: 1, high: 10_000_000, why: "no model writes more", whyLow: "leave it out to send none", defNote: "none is sent, 1000 are reserved",
			doc: "sent as the most output where the caller sends none, and reserved of tpm budgets. The body of an InvokeModel is its vendor's own and gets none", at: func(s *scope) any { return &s.model.DefaultMaxTokens },
		},
	}
}

// limiter is how limits are learned, and when a target is left alone.
func limiter() []setting {
	return []setting{
		{
			path: "limiter.max", env: "LLMQ_AC_MAX", form: formCount, def: "2000", low: 1, high: 2000, why: whyAccident, whyLow: whySlot,
			doc: "ceiling of every learned limit", at: func(s *scope) any { return &s.cfg.Limiter.Max },
		},
		{
			path: "limiter.bg_share", env: "LLMQ_AC_BG_SHARE", form: formShare, def: "0.8", low: 0.01, high: 1, why: whyShare, whyLow: whyRest,
			doc: "part of the slots that bg and bulk may use; 1 gives all lanes all of them", at: func(s *scope) any { return &s.cfg.Limiter.BackgroundShare },
		},
		{
			path: "limiter.rate_window", env: "LLMQ_RATE_WINDOW", def: string(RateSmooth), words: []string{string(RateSmooth), string(RateFixed)},
			doc: "how budgets per minute are handed out", at: func(s *scope) any { return &s.cfg.Limiter.RateWindow },
		},
		{
			path: "limiter.rt_rate_share", env: "LLMQ_RT_RATE_SHARE", form: formShare, def: "0.2", low: 0, high: 0.99, why: "the other lanes need some",
			doc: "part of each budget that only rt may use", at: func(s *scope) any { return &s.cfg.Limiter.RTRateShare },
		},
		{
			path: "limiter.window_secs", env: "LLMQ_AC_WINDOW_SECS", form: formSecs, def: "1", low: 0.1, high: 60, why: "throttles are counted in it", whyLow: "calls and their throttles would fall into different windows",
			doc: "over which throttles are counted, and after which a limit may grow", at: func(s *scope) any { return &s.cfg.Limiter.Window },
		},
		{
			path: "limiter.min_throttles", env: "LLMQ_AC_MIN_THROTTLES", form: formCount, def: "2", low: 1, high: 1000, why: "beyond it nothing is ever cut", whyLow: "there must be a throttle to cut",
			doc: "throttles in a window that cut, if they are loss_tolerance of its calls too", at: func(s *scope) any { return &s.cfg.Limiter.MinThrottles },
		},
		{
			path: "limiter.loss_tolerance", env: "LLMQ_AC_LOSS_TOLERANCE", form: formShare, def: "0.05", low: 0, high: 1, why: whyShare,
			doc: "part of a window's calls whose throttles are no more than bad luck", at: func(s *scope) any { return &s.cfg.Limiter.LossTolerance },
		},
		{
			path: "limiter.pause_ratio", env: "LLMQ_AC_PAUSE_RATIO", form: formShare, def: "0.5", low: 0.01, high: 1, why: whyShare, whyLow: "it would pause at every throttle",
			doc: "part of a window's calls that, throttled, pauses the target", at: func(s *scope) any { return &s.cfg.Limiter.PauseRatio },
		},
		{
			path: "limiter.pause_secs", env: "LLMQ_AC_PAUSE_SECS", form: formSecs, def: "1", low: 0.1, high: 5, why: whyPause, whyLow: "a shorter one gives no rest",
			doc: "first pause; it doubles up to 5 s", at: func(s *scope) any { return &s.cfg.Limiter.Pause },
		},
		{
			path: "limiter.lease_ttl_secs", env: "LLMQ_AC_LEASE_TTL_SECS", form: formSecs, def: "60", low: 45, high: 300, why: whyLease,
			doc: "a slot's lease, renewed every 10 s", at: func(s *scope) any { return &s.cfg.Limiter.Lease },
		},
		{
			path: "breaker.threshold", env: "LLMQ_CB_THRESHOLD", form: formCount, def: "5", low: 1, high: 1000, why: "beyond it nothing ever opens", whyLow: whyFailure,
			doc: "5xx and time-outs in a window that open a target's breaker, if they are no fewer than its answers meanwhile; a 503 whose text says overloaded is a throttle and no failure", at: func(s *scope) any { return &s.cfg.Breaker.Threshold },
		},
		{
			path: "breaker.window_secs", env: "LLMQ_CB_WINDOW_SECS", form: formSecs, def: "60", low: 1, high: 3600, why: "older failures say nothing", whyLow: "failures would hardly meet in it",
			doc: "in which failures are counted, from the first of them", at: func(s *scope) any { return &s.cfg.Breaker.Window },
		},
		{
			path: "breaker.cooldown_secs", env: "LLMQ_CB_COOLDOWN_SECS", form: formSecs, def: "30", low: 0.1, high: 3600, why: "a target that is mended must be found", whyLow: whyStorm,
			doc: "until one call may try an open target", at: func(s *scope) any { return &s.cfg.Breaker.Cooldown },
		},
	}
}
