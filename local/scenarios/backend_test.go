package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// G5: a real endpoint is never called by accident: it takes SCN_PROVIDER and a model's id, besides the endpoint's own variables.
func TestFindBackend_NeverByAccident(t *testing.T) {
	t.Parallel()
	own := []string{"OPENAI_BASE_URL=https://api.example.com/v1", "OPENAI_API_KEY=k", "AWS_BEARER_TOKEN_BEDROCK=t", "AWS_REGION=eu-west-1"}
	for _, tt := range []struct {
		env  []string
		want string // of the error; "" is the fake provider
	}{
		{nil, ""},
		{own, ""},
		{append(slices.Clone(own), "SCN_PROVIDER=fake"), ""},
		{append(slices.Clone(own), "SCN_MODEL=gpt"), "SCN_PROVIDER"},
		{append(slices.Clone(own), "SCN_PROVIDER=openai"), "not set: SCN_MODEL"},
		{append(slices.Clone(own), "SCN_PROVIDER=aws"), "not set: SCN_MODEL"},
		{[]string{"SCN_PROVIDER=openai", "SCN_MODEL=gpt"}, "not set: OPENAI_BASE_URL, OPENAI_API_KEY"},
		{[]string{"SCN_PROVIDER=aws", "SCN_MODEL=m"}, "not set: AWS_BEARER_TOKEN_BEDROCK, AWS_REGION"},
		{append(slices.Clone(own), "SCN_PROVIDER=azure", "SCN_MODEL=gpt"), `"azure"`},
	} {
		b, err := findBackend(tt.env)
		if b != nil || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, %v; want %q", tt.env, b, err, tt.want)
		}
	}
}

// A real endpoint serves the models that were named; only one on this machine may be reached at a private address.
func TestFindBackend_ServesTheModelsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env     []string
		alias   string // that it serves
		private bool
	}{
		{[]string{"SCN_PROVIDER=openai", "SCN_MODEL=gpt", "OPENAI_BASE_URL=https://api.example.com/v1", "OPENAI_API_KEY=k"}, rig.ModelChat, false},
		{[]string{"SCN_PROVIDER=openai", "SCN_MODEL=gpt", "OPENAI_BASE_URL=http://127.0.0.1:9/v1", "OPENAI_API_KEY=k"}, rig.ModelChat, true},
		{[]string{"SCN_PROVIDER=aws", "SCN_MODEL=gpt", "AWS_BEARER_TOKEN_BEDROCK=k", "AWS_REGION=eu-west-1"}, rig.ModelConverse, false},
	} {
		b, err := findBackend(tt.env)
		if err != nil {
			t.Fatal(err)
		}
		c := &config.Config{}
		for _, alias := range []string{rig.ModelChat, rig.ModelEmbed, rig.ModelConverse} {
			c.Models = append(c.Models, config.Model{Alias: alias, Targets: []config.Target{{Provider: "fake"}}})
		}
		b.apply(c)
		for _, m := range c.Models {
			want := config.Target{Provider: "fake"}
			if m.Alias == tt.alias {
				want.Provider, want.ModelID = "real", "gpt"
			}
			if got := m.Targets[0]; got.Provider != want.Provider || got.ModelID != want.ModelID {
				t.Errorf("%q: %s is served by %s %q, want %s %q", tt.env, m.Alias, got.Provider, got.ModelID, want.Provider, want.ModelID)
			}
		}
		if b.Private != tt.private || b.key != "k" || len((&trial{Backend: b}).operations()) != 1 {
			t.Errorf("%q: %+v", tt.env, b)
		}
	}
}

// What injects faults or reads the fake provider's log is refused by name, and left out of all.
func TestBackend_RefusesWhatIsNotSafe(t *testing.T) {
	t.Parallel()
	ids := func(chosen []scenario) (out []string) {
		for _, sc := range chosen {
			out = append(out, sc.ID)
		}
		return out
	}
	var fake *backend
	real, many := &backend{}, &backend{lowVolume: true}
	if got, err := fake.allowed(all(), nil); err != nil || len(got) != len(all()) {
		t.Errorf("the fake provider runs %d of %d, %v", len(got), len(all()), err)
	}
	if got, err := real.allowed(all(), []string{"all"}); err != nil || !slices.Equal(ids(got), []string{"S01", "S29"}) {
		t.Errorf("all: %q, %v", ids(got), err)
	}
	if got, err := many.allowed(all(), []string{"all"}); err != nil || !slices.Equal(ids(got), []string{"S01", "S03", "S29"}) {
		t.Errorf("all, low volume: %q, %v", ids(got), err)
	}
	for id, want := range map[string]string{"s10": "fake provider only", "S03": "SCN_AWS_LOW_VOLUME=1", "outage-sqs": "fake provider only"} {
		chosen, err := choose(all(), []string{id})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := real.allowed(chosen, []string{id}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", id, err, want)
		}
	}
}
