package config

import "github.com/llm-queue/llmq/pkg/llmq"

// Governor sets how many invocations the event sources of bg and bulk may have at once, each minute.
type Governor struct {
	Enabled bool // default true on aws, false locally. Off leaves every source as it is; a deploy that changes one puts back what lanes say
}

// Alias is what deployed functions are invoked by: their versions change behind it.
const Alias = "live"

// WorkerFunction is the name of a lane's worker function.
func (c *Config) WorkerFunction(l llmq.Lane) string {
	if c.Kind == KindAWS {
		return "llmq-" + c.Env + "-worker-" + string(l)
	}
	return "llmq-worker-" + string(l)
}

// SourceTarget is what the event sources of a lane's worker invoke, by which they are listed: on AWS its alias.
func (c *Config) SourceTarget(l llmq.Lane) string {
	if c.Kind == KindAWS {
		return c.WorkerFunction(l) + ":" + Alias
	}
	return c.WorkerFunction(l)
}

// governing is the governor's one setting.
func governing() []setting {
	return []setting{{
		path: "governor.enabled", env: "LLMQ_GOVERNOR_ENABLED", form: formBool, def: "true", defNote: "aws: true; local: false",
		doc: "each minute, set the max_concurrency of every bg and bulk event source from its model's limit in force, never above what lanes say, and read how much waits, for X-LLMQ-Eta; off leaves them as they are",
		at:  func(s *scope) any { return &s.cfg.Governor.Enabled },
	}}
}
