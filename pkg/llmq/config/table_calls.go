package config

// tryRows are the rows of how targets are tried, at one of the places where they may stand.
func tryRows(path string, tries func(*scope) *Tries) []setting {
	return []setting{
		{
			path: path + "attempt_timeout_secs", form: formSecs, low: 1, high: 900, why: whyLambda, above: "timing.attempt_timeout_secs",
			doc: "one attempt, but of a stream", at: func(s *scope) any { return &tries(s).AttemptTimeout },
		},
		{
			path: path + "throttle_retry_attempts", form: formCount, low: 1, high: 20, why: whyTries, above: "timing.throttle_retry_attempts",
			doc: "tries after which a call leaves a target that has throttled it", at: func(s *scope) any { return &tries(s).ThrottleRetryAttempts },
		},
		{
			path: path + "retry_base_secs", form: formSecs, low: 0.001, high: 60, why: whyCurve, above: "timing.retry_base_secs",
			doc: "least wait before the first repeat", at: func(s *scope) any { return &tries(s).RetryBase },
		},
		{
			path: path + "retry_multiplier", form: formNumber, low: 1, high: 100, why: whyCurve, above: "timing.retry_multiplier",
			doc: "by how much each further repeat waits longer", at: func(s *scope) any { return &tries(s).RetryMultiplier },
		},
		{
			path: path + "retry_spread", form: formNumber, low: 1, high: 100, why: whyCurve, above: "timing.retry_spread",
			doc: "a wait lies between its least and so many times that", at: func(s *scope) any { return &tries(s).RetrySpread },
		},
		{
			path: path + "retry_max_secs", form: formSecs, low: 0.001, high: 900, why: whyLambda, above: "timing.retry_max_secs",
			doc: "longest wait", at: func(s *scope) any { return &tries(s).RetryMax },
		},
		{
			path: path + "throttle_retry_max_secs", form: formSecs, low: 0.001, high: 900, why: whyLambda, above: "timing.throttle_retry_max_secs",
			doc: "longest wait of the curve after a throttle", at: func(s *scope) any { return &tries(s).ThrottleRetryMax },
		},
	}
}

// callRows are the rows of a model's calls, at one of the places where they may stand.
func callRows(path string, calls func(*scope) *Calls) []setting {
	const whyQueueShare = "it is a percentage"
	times := func(lane, name, above, doc string, at func(*scope) any) setting {
		return setting{path: path + name + "." + lane, form: formSecs, low: 1, high: 43200, why: whyMessage, above: above, doc: doc, at: at}
	}
	const deadline, embeds = "deadline of a call that names none", "deadline of embeddings that name none"
	return []setting{
		times("rt", "timeout_secs", "lanes.rt.timeout_secs", deadline, func(s *scope) any { return &calls(s).Timeout.RT }),
		times("bg", "timeout_secs", "lanes.bg.timeout_secs", deadline, func(s *scope) any { return &calls(s).Timeout.BG }),
		times("bulk", "timeout_secs", "lanes.bulk.timeout_secs", deadline, func(s *scope) any { return &calls(s).Timeout.Bulk }),
		times("rt", "embed_timeout_secs", "lanes.rt.embed_timeout_secs", embeds, func(s *scope) any { return &calls(s).EmbedTimeout.RT }),
		times("bg", "embed_timeout_secs", "lanes.bg.embed_timeout_secs", embeds, func(s *scope) any { return &calls(s).EmbedTimeout.BG }),
		times("bulk", "embed_timeout_secs", "lanes.bulk.embed_timeout_secs", embeds, func(s *scope) any { return &calls(s).EmbedTimeout.Bulk }),
		{
			path: path + "rt_capacity_wait_secs", form: formSecs, low: 0, high: 900, why: whyLambda, above: "timing.rt_capacity_wait_secs",
			doc: "how long a received rt request waits for a slot; 0 tries once", at: func(s *scope) any { return &calls(s).RTCapacityWait },
		},
		{
			path: path + "routing.rt", words: routingModes(), above: "routing.rt",
			doc: "how rt calls reach their provider while all is well", at: func(s *scope) any { return &calls(s).Routing },
		},
		{
			path: path + "routing.rt_queue_percent", form: formNumber, low: 0, high: 100, why: whyQueueShare, above: "routing.rt_queue_percent",
			doc: "sessions whose rt calls queue though routing.rt is auto or direct", at: func(s *scope) any { return &calls(s).RTQueuePercent },
		},
	}
}

func routingModes() []string {
	return names([]RoutingMode{RoutingAuto, RoutingDirect, RoutingQueue})
}
