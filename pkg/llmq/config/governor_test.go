package config

import (
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// C11: on where it is deployed, off locally, and off by one setting everywhere.
func TestGovernor_OneSetting(t *testing.T) {
	t.Parallel()
	if on := Default(KindAWS).Governor.Enabled; !on {
		t.Error("aws: off by default")
	}
	if on := Default(KindLocal).Governor.Enabled; on {
		t.Error("local: on by default")
	}
	for _, tt := range []struct {
		name, file string
		env        []string
		want       bool
	}{
		{"local file turns it on", example + "governor: {enabled: true}\n", nil, true},
		{"a variable wins", example + "governor: {enabled: true}\n", []string{"LLMQ_GOVERNOR_ENABLED=false"}, false},
		{"a variable alone", example, []string{"LLMQ_GOVERNOR_ENABLED=true"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse("x", []byte(tt.file), append(tt.env, "LLMQ_DEV_PEPPER=x"))
			if err != nil {
				t.Fatal(err)
			}
			if c.Governor.Enabled != tt.want {
				t.Errorf("enabled = %t, want %t", c.Governor.Enabled, tt.want)
			}
		})
	}
}

func TestWorkerFunction_Names(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]*Config{"llmq-prod-worker-bulk": {Kind: KindAWS, Env: "prod"}, "llmq-worker-bulk": {Kind: KindLocal, Env: "local"}} {
		if got := c.WorkerFunction(llmq.LaneBulk); got != want {
			t.Errorf("worker function = %q, want %q", got, want)
		}
		if got := c.SourceTarget(llmq.LaneBulk); got != want && (c.Kind == KindLocal || got != want+":live") {
			t.Errorf("event sources of %s invoke %q", want, got)
		}
	}
}
