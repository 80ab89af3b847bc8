package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// workers are the queues of jobs that are asked for, each with the package of its worker, as flags name them: QUEUE=PACKAGE.
type workers []worker

type worker struct{ queue, pkg string }

// String is for the flags' help.
func (w *workers) String() string { return "" }

// Set reads one flag.
func (w *workers) Set(text string) error {
	queue, pkg, ok := strings.Cut(text, "=")
	if !ok || queue == "" || pkg == "" {
		return fmt.Errorf("%q is not QUEUE=PACKAGE, such as text=./examples/jobs", text)
	}
	*w = append(*w, worker{queue, pkg})
	return nil
}

// packages are the workers to build, by the artifact: one for each queue, of its name.
func (w workers) packages() map[string]string {
	out := map[string]string{}
	for _, of := range w {
		out[artifact(of.queue)] = of.pkg
	}
	return out
}

// artifact is the name of a queue's worker, which no function of llmq's own has.
func artifact(queue string) string { return "job-" + queue }

// The settings of these queues; a deployment says its own.
const (
	jobTimeout = 300 * time.Second
	jobSlots   = 10
	jobMemory  = 256
)

// configure adds the queues.
func (w workers) configure(c *config.Config) {
	for _, of := range w {
		c.Jobs = append(c.Jobs, config.JobQueue{Name: of.queue, Artifact: artifact(of.queue), Timeout: jobTimeout, Slots: jobSlots, MemoryMB: jobMemory})
	}
}
