package config

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// JobQueue is a queue of jobs (FEATURES A6): functions that a team writes, in a worker that it builds. The queue, its dead-letter
// queue, its event source and its Lambda function are its own.
type JobQueue struct {
	Name     string        // [a-z0-9][a-z0-9-]{0,39}, no model's alias: callers name a job as name@function
	Artifact string        // [a-z0-9-]{1,32}: the folder of the worker's binary, where make build leaves those of llmq
	Timeout  time.Duration // one run of a function; default 300 s, up to 840 s
	Deadline time.Duration // of a job that names none, from its sending; 0 is the longest that lanes.bulk allows
	Slots    int           // jobs that run at once, over all workers; default 10
	MemoryMB int           // of the worker, which runs one job at a time; default 256
}

// jobSpare is what a job's function has beyond the job's own time: to wait for a slot, and to store how it ended.
const jobSpare = 60 * time.Second

// FunctionTimeout is that of the queue's Lambda function, and the queue's visibility.
func (j JobQueue) FunctionTimeout() time.Duration { return j.Timeout + jobSpare }

// MaxConcurrency is how many invocations the event source may make at once, with a job each. One slot has two: AWS takes no less,
// and the second hands its job back.
func (j JobQueue) MaxConcurrency() int { return max(2, j.Slots) }

// JobQueue is the name of a queue of jobs: they run in the bulk lane, whose deadlines reach the farthest.
func (c *Config) JobQueue(j JobQueue) queue.Name {
	return c.Queues.Names().Model(j.Name, llmq.LaneBulk)
}

// JobFunction is the name of the Lambda function that runs a queue's jobs.
func (c *Config) JobFunction(name string) string {
	if c.Kind == KindAWS {
		return "llmq-" + c.Env + "-job-" + name
	}
	return "llmq-job-" + name
}

// JobTarget is what the event source of a queue's jobs invokes, by which it is listed: on AWS the function's alias.
func (c *Config) JobTarget(name string) string {
	if c.Kind == KindAWS {
		return c.JobFunction(name) + ":" + Alias
	}
	return c.JobFunction(name)
}

// jobModel is a queue of jobs as the rest of llmq knows it: a model of one target. Its limit is its slots; nothing is learned, for
// nothing throttles, and no breaker opens, since one function's fault is none of another's. A function that fails is tried
// until timing.max_receives ends it.
func (c *Config) jobModel(j JobQueue) llmq.Model {
	t := c.Timing
	return llmq.Model{
		Alias: j.Name, Lanes: []llmq.Lane{llmq.LaneBulk},
		Timeouts: map[llmq.Lane]time.Duration{llmq.LaneBulk: cmp.Or(j.Deadline, c.Lanes[llmq.LaneBulk].MaxTimeout)},
		Targets: []llmq.Target{{
			Model: j.Name, Name: llmq.JobTarget, Provider: llmq.JobProvider, Wires: []llmq.Wire{llmq.WireJob}, MaxConcurrency: j.Slots,
			Limits: llmq.Limits{
				Initial: j.Slots, BackgroundShare: 1,
				Breaker: llmq.Breaker{Threshold: math.MaxInt32, Window: c.Breaker.Window, Cooldown: c.Breaker.Cooldown},
			},
			Pace: llmq.Pace{
				AttemptTimeout: j.Timeout, Attempts: math.MaxInt32, ThrottleAttempts: t.ThrottleRetryAttempts,
				RetryBase: t.RetryBase, RetryMultiplier: t.RetryMultiplier, RetrySpread: t.RetrySpread, RetryMax: t.RetryMax, ThrottleRetryMax: t.ThrottleRetryMax,
			},
		}},
	}
}

func jobRows() []setting {
	return []setting{
		{path: "jobs.*", form: formMap, pattern: aliasPattern, why: whyQueue, doc: "queues of jobs, by name: functions of your own, in a worker that you build (package worker). Each has its dead-letter queue, event source and Lambda function", open: openJobs},
		{
			path: "jobs.*.artifact", pattern: shortPattern, required: true,
			doc: "folder of its worker's binary: dist/arm64/ARTIFACT/bootstrap at deployment", at: func(s *scope) any { return &s.jobs.Artifact },
		},
		{
			path: "jobs.*.timeout_secs", form: formFullSec, def: "300", low: 1, high: 840, why: whyLambda + ", and 60 s are for the wait for a slot and the end",
			doc: "one run of a function; its Lambda function, and the queue's visibility, have 60 s more", at: func(s *scope) any { return &s.jobs.Timeout },
		},
		{
			path: "jobs.*.deadline_secs", form: formSecs, low: 1, high: 43200, why: whyMessage, defNote: "`lanes.bulk.max_timeout_secs`",
			doc: "until when a job that names no deadline must have run, from its sending, repeats and waits included", at: func(s *scope) any { return &s.jobs.Deadline },
		},
		{
			path: "jobs.*.slots", form: formCount, def: "10", low: 1, high: 1000, why: "what an SQS event source takes",
			doc: "jobs that run at once, over all workers", at: func(s *scope) any { return &s.jobs.Slots },
		},
		{
			path: "jobs.*.memory_mb", form: formCount, def: "256", low: 128, high: 10240, why: "what Lambda offers",
			doc: "memory of the worker, which runs one job at a time", at: func(s *scope) any { return &s.jobs.MemoryMB },
		},
	}
}

// artifacts are llmq's own.
var artifacts = []string{"enqueue", "worker", "admin"}

// jobs checks that each queue of jobs has a name and an artifact of its own kind, and times that fit.
func (c *checker) jobs() {
	for _, j := range c.cfg.Jobs {
		path := jobsPath(j.Name)
		if slices.ContainsFunc(c.cfg.Models, func(m Model) bool { return m.Alias == j.Name }) {
			c.fault(path, "is the name of a model too; callers could not tell a job from a call")
		}
		if slices.Contains(artifacts, j.Artifact) {
			c.fault(path+".artifact", "%s is a function of llmq's own, which has no job; build one by package worker and give it a folder of its own", j.Artifact)
		}
		most := c.cfg.Lanes[llmq.LaneBulk].MaxTimeout
		deadline := cmp.Or(j.Deadline, most)
		switch {
		case !c.ok(path+".deadline_secs", path+".timeout_secs", "lanes.bulk.max_timeout_secs"):
		case deadline > most:
			c.fault(path+".deadline_secs", "must be at most lanes.bulk.max_timeout_secs, %s: jobs run in that lane", formatSecs(most))
		case deadline < j.Timeout:
			c.fault(path+".deadline_secs", "must be at least timeout_secs, %s, but is %s: a job that takes its time would never end", formatSecs(j.Timeout), formatSecs(deadline))
		}
	}
}
