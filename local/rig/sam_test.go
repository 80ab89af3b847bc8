package rig_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// repository is the checkout's root.
const repository = "../.."

// samTemplate is what is read of local/sam-template.yaml.
type samTemplate struct {
	Parameters map[string]struct {
		Default       string   `yaml:"Default"`
		AllowedValues []string `yaml:"AllowedValues"`
	} `yaml:"Parameters"`
	Globals struct {
		Function samFunction `yaml:"Function"`
	} `yaml:"Globals"`
	Resources map[string]struct {
		Type       string      `yaml:"Type"`
		Properties samFunction `yaml:"Properties"`
	} `yaml:"Resources"`
}

type samFunction struct {
	Name          string         `yaml:"FunctionName"`
	CodeURI       string         `yaml:"CodeUri"`
	Runtime       string         `yaml:"Runtime"`
	Handler       string         `yaml:"Handler"`
	Architectures []samIntrinsic `yaml:"Architectures"`
	MemoryMB      int            `yaml:"MemorySize"`
	TimeoutSecs   int            `yaml:"Timeout"`
	Environment   struct {
		Variables map[string]string `yaml:"Variables"`
	} `yaml:"Environment"`
}

// samIntrinsic is a value with CloudFormation's tag, as !Ref Name.
type samIntrinsic struct{ tag, value string }

func (i *samIntrinsic) UnmarshalYAML(n *yaml.Node) error {
	i.tag = n.Tag
	i.value = n.Value
	return nil
}

// samFunctions reads the template: its functions by their logical names, with what is global filled in as sam does.
func samFunctions(t *testing.T) (map[string]samFunction, samTemplate) {
	t.Helper()
	var tmpl samTemplate
	text, err := os.ReadFile(repository + "/local/sam-template.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &tmpl)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := tmpl.Globals.Function
	fs := map[string]samFunction{}
	for name, r := range tmpl.Resources {
		if r.Type != "AWS::Serverless::Function" {
			t.Fatalf("%s is a %s: the template holds functions only", name, r.Type)
		}
		f := r.Properties
		variables := maps.Clone(all.Environment.Variables)
		maps.Copy(variables, f.Environment.Variables)
		f.Environment.Variables = variables
		if f.MemoryMB == 0 {
			f.MemoryMB = all.MemoryMB
		}
		f.Runtime, f.Handler, f.Architectures = all.Runtime, all.Handler, all.Architectures
		fs[name] = f
	}
	return fs, tmpl
}

// composeEnv reads local/compose.env.
func composeEnv(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(repository + "/local/compose.env")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if _, twice := env[name]; !ok || twice || strings.ContainsAny(value, " $\"'#\\") {
			t.Fatalf("compose.env: %q: want NAME=value once, which a shell and docker compose read alike", line)
		}
		env[name] = value
	}
	return env
}

func pairs(env map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// onAWSOnly are the deployment's variables that a function on this machine has no use for.
func onAWSOnly() map[string]string {
	return map[string]string{
		"LLMQ_REDIS_CACHE_NAME": "IAM signs in to a cache of that name; here there is a password",
		"LLMQ_REDIS_USERNAME":   "the same: the IAM user of a function",
		"LLMQ_KEY_PEPPER_ARN":   "names a secret; here LLMQ_KEY_PEPPER is the pepper itself",
		"LLMQ_SQS_SENDER_IDS":   "unique ids of roles; local/llmq.yaml says whose messages are believed",
		"LLMQ_SQS_WORKER_IDS":   "the same of the workers; ElasticMQ tells nobody from another",
	}
}

// hereOnly are the variables of functions on this machine that no deployment has.
func hereOnly() map[string]string {
	return map[string]string{
		"LLMQ_SQS_ENDPOINT_URL":   "a stand-in's address",
		"LLMQ_S3_ENDPOINT_URL":    "a stand-in's address",
		"AWS_ENDPOINT_URL_LAMBDA": "a stand-in's address, where nobody is",
		"LLMQ_REDIS_PASSWORD":     "a secret, told",
		"LLMQ_KEY_PEPPER":         "a secret, told",
		"LLMQ_FAKELLM_KEY":        "a secret, told",
		"LLMQ_LOCAL_ADMIN_KEY":    "a secret, told",
	}
}

// cdkFunctions are the functions of the dev environment's template, by name.
func cdkFunctions(t *testing.T) map[string]cdkFunction {
	t.Helper()
	var tmpl struct {
		Resources map[string]struct {
			Type       string
			Properties json.RawMessage
		}
	}
	text, err := os.ReadFile(repository + "/infra/cdk/stack/testdata/dev/stack.json")
	if err == nil {
		err = json.Unmarshal(text, &tmpl)
	}
	if err != nil {
		t.Fatal(err)
	}
	fs := map[string]cdkFunction{}
	for id, r := range tmpl.Resources {
		if r.Type != "AWS::Lambda::Function" {
			continue
		}
		var f cdkFunction
		if err := json.Unmarshal(r.Properties, &f); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if name, ok := strings.CutPrefix(f.FunctionName, "llmq-dev-"); ok {
			fs[name] = f
		}
	}
	return fs
}

type cdkFunction struct {
	FunctionName, Runtime, Handler string
	Architectures                  []string
	MemorySize, Timeout            int
	Environment                    struct{ Variables map[string]any }
}

// G2: what sam runs is what CDK deploys, but for what only one of them has.
func TestSAMTemplate_IsInStepWithTheDeployment(t *testing.T) {
	t.Parallel()
	local, tmpl := samFunctions(t)
	deployed := cdkFunctions(t)
	if len(deployed) < 5 {
		t.Fatalf("the deployment's template has the functions %v", slices.Sorted(maps.Keys(deployed)))
	}
	var names []string
	for id, f := range local {
		name := strings.TrimPrefix(f.Name, "llmq-local-")
		names = append(names, name)
		d := deployed[name]
		got := []any{f.Handler, f.Runtime, f.TimeoutSecs, f.MemoryMB}
		want := []any{d.Handler, d.Runtime, d.Timeout, d.MemorySize}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: handler, runtime, timeout and memory (-deployed +local):\n%s", id, diff)
		}
		if len(d.Architectures) != 1 || !slices.Contains(tmpl.Parameters["Architecture"].AllowedValues, d.Architectures[0]) {
			t.Errorf("%s: the deployment's architecture %v is none that the parameter allows", id, d.Architectures)
		}
		if len(f.Architectures) != 1 || f.Architectures[0] != (samIntrinsic{"!Ref", "Architecture"}) {
			t.Errorf("%s: architectures are %v, want the parameter", id, f.Architectures)
		}
		var gotVars, wantVars []string
		for v := range f.Environment.Variables {
			if hereOnly()[v] == "" {
				gotVars = append(gotVars, v)
			}
		}
		for v := range d.Environment.Variables {
			if onAWSOnly()[v] == "" {
				wantVars = append(wantVars, v)
			}
		}
		slices.Sort(gotVars)
		slices.Sort(wantVars)
		if diff := cmp.Diff(wantVars, gotVars); diff != "" {
			t.Errorf("%s: variables (-deployed +local):\n%s", id, diff)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(deployed)), names); diff != "" {
		t.Errorf("functions (-deployed +local):\n%s", diff)
	}
}

// Each folder that CodeUri names is one that make sam builds of a function of that name.
func TestSAMTemplate_CodeIsWhatMakeSamBuilds(t *testing.T) {
	t.Parallel()
	fs, _ := samFunctions(t)
	for id, f := range fs {
		artifact := path.Base(f.CodeURI)
		if f.CodeURI != "../.build/sam/"+artifact {
			t.Errorf("%s: CodeUri is %s", id, f.CodeURI)
		}
		if _, err := os.Stat(filepath.Join(repository, "functions", artifact, "main.go")); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// What sam hands to a function passes as its configuration, and says the same as the shell that runs sam: sam prefers the
// shell's variables, so an address of this machine there would lead a container to itself.
func TestSAMTemplate_AgreesWithComposeEnv(t *testing.T) {
	t.Parallel()
	fs, _ := samFunctions(t)
	env := composeEnv(t)
	for id, f := range fs {
		for name, value := range f.Environment.Variables {
			if told, both := env[name]; both && told != value {
				t.Errorf("%s: %s is %q there and %q in compose.env", id, name, value, told)
			}
		}
		vars := map[string]string{"AWS_SAM_LOCAL": "true", "LAMBDA_TASK_ROOT": "/var/task"}
		maps.Copy(vars, f.Environment.Variables)
		cfg, err := config.Load(repository+"/local/llmq.yaml", pairs(vars))
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		host := config.Config{}
		if c, err := config.Load(repository+"/local/llmq.yaml", pairs(env)); err != nil {
			t.Fatal(err)
		} else {
			host = *c
		}
		if got, want := fmt.Sprint(cfg.Storage.Bucket, cfg.Storage.StateBucket, cfg.Queues.Account()), fmt.Sprint(host.Storage.Bucket, host.Storage.StateBucket, host.Queues.Account()); got != want {
			t.Errorf("%s: buckets and account are %s in a container and %s on the host", id, got, want)
		}
	}
}
