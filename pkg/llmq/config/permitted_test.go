package config

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// providersFile is a file with two providers, and a third of a program's own type.
const providersFile = `kind: local
env: e
valkey: {cluster: false, tls: false}
storage: {state_bucket: llmq-keys}
key_pepper: {env: PEPPER}
region: eu-central-1
providers:
  main: {type: openai, base_url: "https://API.Example.com./v1", api_key: {env: K}}
  cloud: {type: bedrock}
  own: {type: acme, base_url: "https://llm.acme.test"}
models:
  m: {targets: [{name: a, provider: main, model_id: x}, {name: b, provider: own, model_id: y, wires: [openai]}]}
`

func faultsOf(t *testing.T, file string, env ...string) []string {
	t.Helper()
	_, err := Parse("f", []byte(file), append(env, "PEPPER=p", "K=k"))
	if err != nil && !errors.Is(err, llmq.CodeConfiguration) {
		t.Fatal(err)
	}
	faults, _ := errors.AsType[Faults](err)
	var out []string
	for _, f := range faults {
		out = append(out, f.Path+": "+f.Problem)
	}
	return out
}

// D8, EG1: what may not be called is in no process's configuration, so that neither a door nor a worker sends anything there.
func TestParse_HoldsProvidersAgainstWhatIsAllowed(t *testing.T) {
	t.Parallel()
	const own = " which routing.denied_hosts holds or lies above"
	for _, tt := range []struct {
		name string
		env  []string
		want []string
	}{
		{"nothing is said", nil, nil},
		{"all are allowed, and one that is not there", []string{"LLMQ_ALLOWED_PROVIDERS=main,cloud,own,other"}, nil},
		{"one is not allowed", []string{"LLMQ_ALLOWED_PROVIDERS=main,cloud"}, []string{"providers.own: is not among routing.allowed_providers: take it out, with the targets that name it, or allow it"}},
		{"a host", []string{"LLMQ_DENIED_HOSTS=api.example.com"}, []string{"providers.main.base_url: leads to api.example.com," + own}},
		{"what lies above it", []string{"LLMQ_DENIED_HOSTS=test,example.com"}, []string{"providers.main.base_url: leads to api.example.com," + own, "providers.own.base_url: leads to llm.acme.test," + own}},
		{"no part of a label", []string{"LLMQ_DENIED_HOSTS=ple.com,pi.example.com,example"}, nil},
		{"below it", []string{"LLMQ_DENIED_HOSTS=eu.api.example.com"}, nil},
		{"Bedrock's host of a region", []string{"LLMQ_DENIED_HOSTS=bedrock-runtime.eu-central-1.amazonaws.com"}, []string{"providers.cloud.region: leads to bedrock-runtime.eu-central-1.amazonaws.com," + own}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, faultsOf(t, providersFile, tt.env...)); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// D15: on AWS a provider's key is an ARN of Secrets Manager, never a variable of a function, which may be read by many.
func TestParse_D15ProviderKeysAreNoVariablesOnAWS(t *testing.T) {
	t.Parallel()
	file := read(t, "testdata/aws.yaml")
	key := regexp.MustCompile(`api_key: \{arn: [^}]*\}`)
	if !key.MatchString(file) {
		t.Fatal("the file has no key to replace")
	}
	_, err := Parse("aws", []byte(key.ReplaceAllString(file, "api_key: {env: OPENAI_API_KEY}")), []string{"OPENAI_API_KEY=sk-x"})
	if err == nil || !strings.Contains(err.Error(), "providers.openai.api_key.env: is refused on aws: a function's variables are readable") {
		t.Errorf("err = %v", err)
	}
	if _, err := Parse("aws", []byte(file), nil); err != nil {
		t.Errorf("with ARNs: %v", err)
	}
	if got := faultsOf(t, providersFile); got != nil {
		t.Errorf("locally: %q", got)
	}
}

// D8: a type of a program's own says its wires, which tells it from a slip of the pen.
func TestParse_TypesOfProgramsNameTheirWires(t *testing.T) {
	t.Parallel()
	c, err := Parse("f", []byte(providersFile), []string{"PEPPER=p", "K=k"})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Models[0].Targets[1].Wires; !slices.Equal(got, []llmq.Wire{llmq.WireOpenAI}) {
		t.Errorf("wires %v", got)
	}
	for from, to := range map[string]string{
		", wires: [openai]": "",
		"type: openai":      "type: opnai",
	} {
		got := faultsOf(t, strings.Replace(providersFile, from, to, 1))
		if len(got) != 1 || !strings.Contains(got[0], "is none of llmq's own, nor do its targets name wires, as those of a program's own do; ") {
			t.Errorf("%q for %q: %q, want one fault, of the type", to, from, got)
		}
	}
}
