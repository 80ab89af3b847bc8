package stack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func TestLoad_RefusesWhatCantBeDeployed(t *testing.T) {
	for _, tc := range []struct {
		name, file        string
		replace, with     string
		wantErr, wantAlso string
	}{
		{name: "a VPC without a way out to a provider", file: "dev", replace: "kind: aws\n", with: "kind: aws\nvalkey: {network: vpc}\n", wantErr: "provider openai", wantAlso: "deploy.nat"},
		{name: "a file of another name", file: "dev", replace: "env: dev", with: "env: prod", wantErr: `env is "prod"`, wantAlso: `named "dev"`},
		{name: "a pepper of its own without its suffix", file: "dev", replace: "kind: aws\n", with: "kind: aws\nkey_pepper: {arn: \"arn:aws:secretsmanager:us-east-1:111122223333:secret:pepper\"}\n", wantErr: "secret:pepper", wantAlso: "six characters"},
		{name: "a provider's secret without its suffix", file: "dev", replace: "openai-GhIjKl", with: "openai", wantErr: "dev/openai", wantAlso: "six characters"},
		{name: "more invocations than are reserved", file: "prod", replace: "rt: {max_concurrency: 30}", with: "rt: {max_concurrency: 34}", wantErr: "34 times 3 queues", wantAlso: "lower it to 33"},
		{name: "a quota that is too small", file: "prod", replace: "region: us-east-1\n", with: "region: us-east-1\ndeploy: {lambda_concurrency: 500}\n", wantErr: "quota of 550", wantAlso: "is 500"},
		{name: "what no function would start on", file: "dev", replace: "provider: bedrock", with: "provider: rockbed", wantErr: "rockbed", wantAlso: "targets"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source, err := os.ReadFile(environmentFile(tc.file))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(source), tc.replace) {
				t.Fatalf("%s.yaml has no %q to replace", tc.file, tc.replace)
			}
			file := filepath.Join(t.TempDir(), tc.file+".yaml")
			if err := os.WriteFile(file, []byte(strings.Replace(string(source), tc.replace, tc.with, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = Load(file)
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !strings.Contains(err.Error(), tc.wantAlso) {
				t.Errorf("error %v, want one with %q and %q", err, tc.wantErr, tc.wantAlso)
			}
		})
	}
}

// What is deployed must not depend on who deploys it.
func TestLoad_IgnoresVariables(t *testing.T) {
	t.Setenv("LLMQ_DOOR_WAIT_SECS", "1")
	env, err := Load(environmentFile("dev"))
	if err != nil {
		t.Fatal(err)
	}
	if got := env.Config.Door.Wait.Seconds(); got != 280 {
		t.Errorf("the door waits %v s, want the file's 280", got)
	}
}

// A lane's worker can't read the key of a provider that none of its models uses.
func TestProviderSecrets_AreThoseOfTheLanesModels(t *testing.T) {
	env, err := Load(environmentFile("dev"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range env.Config.Models {
		if m := &env.Config.Models[i]; m.Alias == "mini" {
			m.Lanes = []llmq.Lane{llmq.LaneRT, llmq.LaneBG}
		}
	}
	if got := env.providerSecrets(llmq.LaneBG); len(got) != 1 || !strings.HasSuffix(got[0], "dev/openai-GhIjKl") {
		t.Errorf("bg reads %v", got)
	}
	if got := env.providerSecrets(llmq.LaneBulk); len(got) != 0 {
		t.Errorf("bulk reads %v", got)
	}
}

// Environments may share an account and a region.
func TestEnvironments_ShareNoQueueName(t *testing.T) {
	seen := map[string]string{}
	for _, name := range deployed() {
		env, err := Load(environmentFile(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range env.Config.QueueNames() {
			if other := seen[string(q)]; other != "" {
				t.Errorf("%s is a queue of %s and of %s", q, other, name)
			}
			seen[string(q)] = name
		}
	}
}
