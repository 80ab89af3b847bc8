package config

import (
	"slices"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// running is how lanes and attempts run.
func running() []setting {
	return slices.Concat(lanes(), retries(), live(), outages(), governing(), traceRows(), recordings())
}

func lanes() []setting {
	return []setting{
		{path: "lanes.*", form: formMap, words: laneNames(), doc: "how a lane's workers run"},
		{
			path: "lanes.*.function_timeout_secs", form: formFullSec, low: 30, high: 900, why: whyLambda + ", and under 30 s no attempt is worth beginning",
			laneDef: map[llmq.Lane]string{llmq.LaneRT: "120", llmq.LaneBG: "330", llmq.LaneBulk: "900"},
			doc:     "one invocation of the worker, and its queues' visibility", at: func(s *scope) any { return &s.lane.FunctionTimeout },
		},
		{
			path: "lanes.*.timeout_secs", env: "LLMQ_TIMEOUT_*_SECS", form: formSecs, low: 1, high: 43200, why: whyMessage,
			laneDef: secondsByLane(llmq.Lane.DefaultTimeout),
			doc:     "a request's deadline when it names none", at: func(s *scope) any { return &s.lane.Timeout },
		},
		{
			path: "lanes.*.embed_timeout_secs", env: "LLMQ_TIMEOUT_EMBED_*_SECS", form: formSecs, low: 1, high: 43200, why: whyMessage, defNote: "timeout_secs",
			doc: "the same of embeddings", at: func(s *scope) any { return &s.lane.EmbedTimeout },
		},
		{
			path: "lanes.*.max_timeout_secs", form: formSecs, low: 1, high: 43200, why: whyMessage,
			laneDef: secondsByLane(llmq.Lane.MaxTimeout),
			doc:     "the longest deadline that a caller may ask for", at: func(s *scope) any { return &s.lane.MaxTimeout },
		},
		{
			path: "lanes.*.batch_size", form: formCount, def: "10", low: 1, high: 10, why: "beyond 10 Lambda wants a batching window, which every message would wait for",
			doc: "messages that an invocation gets at most", at: func(s *scope) any { return &s.lane.BatchSize },
		},
		{
			path: "lanes.*.max_concurrency", form: formCount, def: "10", low: 2, high: 1000, why: "what an SQS event source takes",
			doc: "invocations at once per queue; each holds a call at least, so fewer than a model's targets take keeps single calls waiting", at: func(s *scope) any { return &s.lane.MaxConcurrency },
		},
		{
			path: "lanes.*.memory_mb", form: formCount, def: "256", low: 128, high: 10240, why: "what Lambda offers",
			doc: "memory of the worker", at: func(s *scope) any { return &s.lane.MemoryMB },
		},

		{
			path: "timing.attempt_timeout_secs", env: "LLMQ_ATTEMPT_TIMEOUT_SECS", form: formSecs, def: "180", low: 1, high: 900, why: whyLambda,
			doc: "one attempt at a provider; of a stream the next two hold in its place", at: func(s *scope) any { return &s.cfg.Timing.AttemptTimeout },
		},
		{
			path: "timing.first_content_timeout_secs", env: "LLMQ_FIRST_CONTENT_TIMEOUT_SECS", form: formSecs, def: "120", low: 1, high: 900, why: whyLambda,
			doc: "a stream's first content, from the begin of the attempt; what comes later is another target's turn", at: func(s *scope) any { return &s.cfg.Timing.FirstContent },
		},
		{
			path: "timing.stream_stall_timeout_secs", env: "LLMQ_STREAM_STALL_TIMEOUT_SECS", form: formSecs, def: "60", low: 1, high: 900, why: whyLambda,
			doc: "a stream's silence, comments that keep it open apart", at: func(s *scope) any { return &s.cfg.Timing.StreamStall },
		},
		{
			path: "timing.rt_capacity_wait_secs", env: "LLMQ_RT_CAPACITY_WAIT_SECS", form: formSecs, def: "30", low: 0, high: 900, why: whyLambda,
			doc: "how long a received rt request waits for a slot; 0 tries once", at: func(s *scope) any { return &s.cfg.Timing.RTCapacityWait },
		},
		{
			path: "timing.sqs_send_timeout_secs", env: "LLMQ_SQS_SEND_TIMEOUT_SECS", form: formSecs, def: "5", low: 0.1, high: 30, why: "a caller waits for it",
			doc: "one send to a queue", at: func(s *scope) any { return &s.cfg.Timing.SQSSendTimeout },
		},
		{
			path: "timing.sqs_batch_wait_secs", env: "LLMQ_SQS_BATCH_WAIT_SECS", form: formSecs, def: "0.02", low: 0, high: 1, why: "it is part of each call's time",
			doc: "how long a bg or bulk send of a Go client waits for others to share its request; 0 sends at once, as functions always do", at: func(s *scope) any { return &s.cfg.Timing.SQSBatchWait },
		},
		{
			path: "timing.drain_secs", env: "LLMQ_CONSUMER_DRAIN_SECS", form: formSecs, def: "90", low: 0, high: 900, why: "no attempt is longer",
			doc: "how long running calls may go on after a worker outside Lambda was told to stop, before they are cut and handed back; Lambda itself grants no such time", at: func(s *scope) any { return &s.cfg.Timing.Drain },
		},
	}
}

// live is how settings that change while processes run reach them.
func live() []setting {
	return []setting{{
		path: "timing.cfg_reload_secs", env: "LLMQ_CFG_RELOAD_SECS", form: formSecs, def: "30", low: 0.1, high: 600, why: "a kill switch that takes longer is none",
		doc: "how old what a process knows of live settings may become; they are looked at by calls, once in that time, and never between", at: func(s *scope) any { return &s.cfg.Timing.Reload },
	}}
}

// recordings is for tests that must not call providers.
func recordings() []setting {
	return []setting{
		{
			path: "cassette.mode", env: "LLMQ_CASSETTE", words: []string{"record", "replay", "auto"}, defNote: "none",
			doc: "local only: record or play what providers answer; see CASSETTES.md", at: func(s *scope) any { return &s.cfg.Cassette.Mode },
		},
		{
			path: "cassette.dir", env: "LLMQ_CASSETTE_DIR",
			doc: "absolute folder of the recordings; required with cassette.mode", at: func(s *scope) any { return &s.cfg.Cassette.Dir },
		},
	}
}
