package rig_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// E5: what the command line's tests are made of is what a real door answers about jobs: the same members, of the same kinds.
func TestJobs_AnswersAreThoseThatTheCommandLineIsTestedWith(t *testing.T) {
	t.Parallel()
	j := withJobs(t, config.JobQueue{Timeout: 30 * time.Second, Slots: 2}, func(c *config.Config) {
		c.Timing.MaxReceives, c.Timing.RetryBase, c.Timing.RetryMax = 2, 10*time.Millisecond, time.Second
	})
	c := newCLI(t, j.Rig)
	file := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(file, []byte(`{"text":"to be","report":"`+j.url+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	send := func(name, queue, id string, more ...string) []string {
		return append([]string{"job", "send", name, "--queue", queue, "--payload-file", file, "--id", id}, more...)
	}
	for _, step := range []struct {
		recorded string
		code     int
		args     []string
	}{
		{"job-send", 0, send("nap", "text", "asleep")},
		{"job-done", 0, send("words", "text", "counted", "--wait", "30")},
		{"job-result", 0, []string{"job", "result", "counted"}},
		{"job-dead-waited", 1, send("fail", jobQueue, "unlucky", "--wait", "30")},
		{"job-dead", 0, []string{"job", "status", "unlucky"}},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "cmd", "llmq", "testdata", "answers", step.recorded+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var recorded struct{ Answer any }
		if err := json.Unmarshal(text, &recorded); err != nil {
			t.Fatal(err)
		}
		var real any
		c.run(step.code, &real, step.args...)
		if diff := cmp.Diff(shape(recorded.Answer), shape(real)); diff != "" {
			t.Errorf("%s (-recorded +real):\n%s", step.recorded, diff)
		}
	}
}

// shape is a JSON value with the kind of each scalar in its place.
func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range v {
			out[name] = shape(member)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = shape(v[i])
		}
		return out
	}
	return fmt.Sprintf("%T", v)
}
