package config

import (
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// A6: a queue of jobs and what follows from its few settings.
func TestJobs_AreRead(t *testing.T) {
	t.Parallel()
	cfg, err := Parse("aws", []byte(read(t, "testdata/aws.yaml")+"\njobs:\n  files: {artifact: team-worker, timeout_secs: 840, slots: 1}\n  mail: {artifact: team-worker, deadline_secs: 600}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	files, mail := cfg.Jobs[0], cfg.Jobs[1]
	if files.FunctionTimeout() != 900*time.Second || files.MaxConcurrency() != 2 || cfg.JobQueue(files) != "llm-dev-files-bulk" || cfg.JobFunction("files") != "llmq-dev-job-files" {
		t.Errorf("files is %+v", files)
	}
	if mail.Timeout != 300*time.Second || mail.Slots != 10 || mail.MemoryMB != 256 {
		t.Errorf("mail has the defaults %+v", mail)
	}
	c := cfg.Catalogue()
	for name, want := range map[string]time.Duration{"files": cfg.Lanes[llmq.LaneBulk].MaxTimeout, "mail": 600 * time.Second} {
		if d := c.Timeout(name, llmq.OpJob, llmq.LaneBulk); d != want {
			t.Errorf("a job of %s that names no deadline has %s", name, d)
		}
	}
	target, known := c.Target("files", llmq.JobTarget)
	if !known || target.MaxConcurrency != 1 || target.Limits.Initial != 1 || target.Limits.BackgroundShare != 1 || target.Pace.AttemptTimeout != 840*time.Second {
		t.Errorf("its slots and its time are %+v", target)
	}
	names := cfg.QueueNames()
	if n := len(names); names[n-2] != "llm-dev-files-bulk" || names[n-1] != "llm-dev-mail-bulk" {
		t.Errorf("queues %v", names)
	}
}

func TestJobs_Faults(t *testing.T) {
	t.Parallel()
	for jobs, want := range map[string]string{
		"files: {}":                                                 "jobs.files.artifact: is missing",
		"files: {artifact: worker}":                                 "jobs.files.artifact: worker is a function of llmq's own",
		"files: {artifact: x, timeout_secs: 841}":                   "must be 1 to 840, not 841",
		"files: {artifact: x, slots: 0}":                            "must be 1 to 1000, not 0",
		"Files: {artifact: x}":                                      "must match [a-z0-9]",
		"nova: {artifact: x}":                                       "jobs.nova: is the name of a model too",
		"files: {artifact: x, timeout_secs: 60, deadline_secs: 30}": "must be at least timeout_secs, 60",
		"files: {artifact: x, deadline_secs: 50000}":                "must be 1 to 43200",
		"files: {artefact: x}":                                      "did you mean artifact?",
	} {
		_, err := Parse("aws", []byte(read(t, "testdata/aws.yaml")+"\njobs:\n  "+jobs+"\n"), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", jobs, err, want)
		}
	}
}
