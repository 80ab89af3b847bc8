package config

// The ways to serve a call where its caller waits for it, instead of by the queue.
const (
	// DirectOutage lets calls run there: in outages of the queue or the state store, and as routing.rt says.
	DirectOutage = "outage"
	// DirectOff is none: the door holds no provider's secret and has no right to call one.
	DirectOff = "off"
)

// Routing says how calls reach their providers.
type Routing struct {
	Direct         string      // DirectOutage or DirectOff
	RT             RoutingMode // of models and providers that say nothing else; without Direct all is queued
	RTQueuePercent Number      // of models and providers that say nothing else
	Killed         bool        // nothing is queued; set live only

	AllowedProviders []string // names of providers that may be called; empty is all
	DeniedHosts      []string // that no provider may be called at, nor at what lies below them
}

// outages is what is done without a queue or a state store.
func outages() []setting {
	return []setting{
		{
			path: "timing.sqs_timeouts_to_failover", env: "LLMQ_SQS_TIMEOUTS_TO_FAILOVER", form: formCount, def: "3", low: 1, high: 100,
			why: "each of them is a caller that waited in vain",
			doc: "sends of a model's calls that get no answer within a minute, before its calls run where their callers wait; one that is refused is enough", at: func(s *scope) any { return &s.cfg.Timing.SQSTimeoutsToFailover },
		},
		{
			path: "timing.sqs_failover_secs", env: "LLMQ_SQS_FAILOVER_SECS", form: formSecs, def: "300", low: 1, high: 3600, why: "the queue is not tried for those calls meanwhile",
			doc: "for how long a model's calls then run so", at: func(s *scope) any { return &s.cfg.Timing.SQSFailover },
		},
		{
			path: "timing.valkey_wait_failover_secs", env: "LLMQ_VALKEY_WAIT_FAILOVER_SECS", form: formSecs, def: "10", low: 0, high: 60, why: "a caller waits for it",
			doc: "how long the state store may fail before a call that was not sent is run without it, or refused; in a function 2 at most. A Go program's call waits on until its deadline", at: func(s *scope) any { return &s.cfg.Timing.ValkeyWait },
		},
		{
			path: "routing.direct", env: "LLMQ_ROUTING_DIRECT", def: DirectOutage, words: []string{DirectOutage, DirectOff},
			why: "bg and bulk calls always queue",
			doc: "when rt calls may run where their callers wait: while the queue or the state store is down, or never. off takes the providers' secrets and rights from the door", at: func(s *scope) any { return &s.cfg.Routing.Direct },
		},
		{
			path: "routing.rt", env: "LLMQ_ROUTING_RT", def: string(RoutingQueue), words: routingModes(),
			doc: "how rt calls reach their provider while all is well. auto: they run where their callers wait, where a slot is free at once beyond those who wait for one, and queue else. direct: at any target of their chain that has one. Streams, bg and bulk always queue", at: func(s *scope) any { return &s.cfg.Routing.RT },
		},
		{
			path: "routing.rt_queue_percent", env: "LLMQ_ROUTING_RT_QUEUE_PERCENT", form: formNumber, def: "0", low: 0, high: 100, why: "it is a percentage",
			doc: "sessions whose rt calls queue though routing.rt is auto or direct: a canary. A session stays on its side", at: func(s *scope) any { return &s.cfg.Routing.RTQueuePercent },
		},
		{
			path: "routing.allowed_providers", env: "LLMQ_ALLOWED_PROVIDERS", form: formList, pattern: shortPattern, defNote: "all",
			doc: "names of providers that may be called. With another in the file no process of the deployment starts, so that nothing is sent", at: func(s *scope) any { return &s.cfg.Routing.AllowedProviders },
		},
		{
			path: "routing.denied_hosts", env: "LLMQ_DENIED_HOSTS", form: formList, pattern: deniedPattern, defNote: "none",
			doc: "hosts, with all below them, that no provider may be called at, whatever else allows it. With one as base_url, or as Bedrock's host of a region, no process starts; a worker opens no connection to one", at: func(s *scope) any { return &s.cfg.Routing.DeniedHosts },
		},
	}
}
