package lambda

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEnvironment_OnlyWhatLambdaAndTheFunctionSet(t *testing.T) {
	t.Setenv("LAMBDA_TEST_SECRET", "must not leak")
	h := setup(t, func(_ *Options, c *FunctionConfig) { c.Env = []string{"LLMQ_CONFIG=x=y", "AWS_ACCESS_KEY_ID=local"} })
	var env []string
	if err := json.Unmarshal(invoke(t, h, map[string]any{"op": "env"}).Payload, &env); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		keys = append(keys, key)
		if key == "LLMQ_CONFIG" && value != "x=y" {
			t.Errorf("LLMQ_CONFIG is %q", value)
		}
	}
	slices.Sort(keys)
	want := []string{
		"AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_LAMBDA_FUNCTION_NAME",
		"AWS_LAMBDA_FUNCTION_VERSION", "AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_LAMBDA_LOG_GROUP_NAME",
		"AWS_LAMBDA_LOG_STREAM_NAME", "AWS_LAMBDA_RUNTIME_API", "AWS_REGION", "LAMBDA_RUNTIME_DIR", "LAMBDA_TASK_ROOT",
		"LANG", "LD_LIBRARY_PATH", "LLMQ_CONFIG", "PATH", "TMPDIR", "TZ", "_HANDLER", "_X_AMZN_TRACE_ID",
	} // the last is set by aws-lambda-go
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
}

func TestCreate_RefusesBadConfigurations(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	tests := []struct {
		name string
		edit func(*FunctionConfig)
		want Code
	}{
		{"name taken", func(*FunctionConfig) {}, CodeConflict},
		{"bad name", func(c *FunctionConfig) { c.Name = "a b" }, CodeInvalidConfig},
		{"no timeout", func(c *FunctionConfig) { c.Name, c.Timeout = "f2", 0 }, CodeInvalidConfig},
		{"long timeout", func(c *FunctionConfig) { c.Name, c.Timeout = "f2", 901*time.Second }, CodeInvalidConfig},
		{"no memory", func(c *FunctionConfig) { c.Name, c.MemoryMB = "f2", 0 }, CodeInvalidConfig},
		{"negative concurrency", func(c *FunctionConfig) { c.Name, c.Concurrency = "f2", -1 }, CodeInvalidConfig},
		{"no binary", func(c *FunctionConfig) { c.Name, c.Bootstrap = "f2", "nowhere/bootstrap" }, CodeInvalidConfig},
		{"not executable", func(c *FunctionConfig) { c.Name, c.Bootstrap = "f2", "host_test.go" }, CodeInvalidConfig},
		{"reserved key", func(c *FunctionConfig) { c.Name, c.Env = "f2", []string{"AWS_REGION=x"} }, CodeInvalidConfig},
		{"reserves too much", func(c *FunctionConfig) { c.Name, c.Concurrency = "f2", 900 }, CodeInvalidConfig},
		{"short event age", func(c *FunctionConfig) { c.Name, c.Async.MaxAge = "f2", time.Second }, CodeInvalidConfig},
		{"bad key", func(c *FunctionConfig) { c.Name, c.Env = "f2", []string{"1A=x"} }, CodeInvalidConfig},
		{"no value", func(c *FunctionConfig) { c.Name, c.Env = "f2", []string{"A"} }, CodeInvalidConfig},
		{"environment over 4 KB", func(c *FunctionConfig) { c.Name, c.Env = "f2", []string{"AB=" + strings.Repeat("x", 4096)} }, CodeInvalidConfig},
	}
	for _, tt := range tests {
		cfg := testConfig()
		tt.edit(&cfg)
		if err := h.Create(cfg); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}
