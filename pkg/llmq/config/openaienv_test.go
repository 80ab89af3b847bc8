package config

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func TestFromOpenAIEnv_TwoVariablesAreEnough(t *testing.T) {
	t.Parallel()
	p, m, ok, err := FromOpenAIEnv([]string{"OPENAI_API_KEY=sk-live-123", "OPENAI_BASE_URL=https://api.openai.com/v1"}, []string{"127.0.0.1:8080"})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	wantP := Provider{
		Name: "openai", Type: ProviderOpenAI, BaseURL: "https://api.openai.com/v1", APIKey: Secret{Env: "OPENAI_API_KEY"},
		ConnectTimeout: 10 * time.Second, ReadTimeout: 300 * time.Second, RemoteMedia: "refuse",
	}
	wantM := Model{
		Alias: "default", Any: true, Lanes: llmq.Lanes(),
		Targets: []Target{{Name: "main", Provider: "openai", Wires: []llmq.Wire{llmq.WireOpenAI}}},
	}
	if diff := cmp.Diff(wantP, p) + cmp.Diff(wantM, m); diff != "" {
		t.Error(diff)
	}
}

// What it makes must be what Load takes, or `make run` could not write it down.
func TestFromOpenAIEnv_MakesWhatLoadTakes(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"https://api.openai.com/v1", "http://localhost:11434/v1/", "http://10.0.3.7:8000", "http://[::1]:1/v1"} {
		p, m, _, err := FromOpenAIEnv([]string{"OPENAI_API_KEY=x", "OPENAI_BASE_URL=" + base}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := Default(KindLocal)
		c.Env, c.KeyPepper, c.Storage.StateBucket, c.Providers, c.Models = "local", Secret{Env: "K"}, "state", []Provider{p}, []Model{m}
		b, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse("x", b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
			t.Errorf("%s: %s", base, diff)
		}
	}
}

// A key alone stands in many shells, and must not make anybody pay.
func TestFromOpenAIEnv_NoBaseURL(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "sk-live-123"} {
		if _, _, ok, err := FromOpenAIEnv([]string{"PATH=/bin", "OPENAI_API_KEY=" + key}, nil); ok || err != nil {
			t.Error(ok, err)
		}
	}
}

func TestFromOpenAIEnv_PrivateUpstreams(t *testing.T) {
	t.Parallel()
	loopback := []string{"127.0.0.0/8", "::1/128"}
	for _, tc := range []struct {
		base  string
		cidrs []string
	}{
		{"http://127.0.0.1:11434/v1", loopback},
		{"http://LOCALHOST.:11434/v1", loopback},
		{"http://10.0.3.7:8000/v1", []string{"10.0.3.7/32"}},
		{"https://192.168.1.2/v1", []string{"192.168.1.2/32"}},
		{"http://[fd00::7]:8000/v1", []string{"fd00::7/128"}},
	} {
		p, _, ok, err := FromOpenAIEnv([]string{"OPENAI_BASE_URL=" + tc.base}, nil)
		if !ok || err != nil || !p.Private || !p.APIKey.IsZero() {
			t.Errorf("%s: %v %v %+v", tc.base, ok, err, p)
		}
		if diff := cmp.Diff(tc.cidrs, p.AllowedCIDRs); diff != "" {
			t.Errorf("%s: %s", tc.base, diff)
		}
	}
}

func TestFromOpenAIEnv_Refusals(t *testing.T) {
	t.Parallel()
	const circles = ", where this program itself listens: calls would go in circles; unset it, or set it to the provider's URL"
	const private = " (private: true with allowed_cidrs) or on loopback"
	for _, tc := range []struct {
		base      string
		listeners []string
		want      string
	}{
		{"http://127.0.0.1:8080/v1", []string{"127.0.0.1:8080"}, "OPENAI_BASE_URL is 127.0.0.1:8080" + circles},
		{"http://LocalHost.:8080/v1", []string{"127.0.0.1:8080"}, "OPENAI_BASE_URL is localhost:8080" + circles},
		{"http://[::1]:8080/v1", []string{"localhost.:8080"}, "OPENAI_BASE_URL is [::1]:8080" + circles},
		{"http://[::ffff:127.0.0.1]:8080/v1", []string{"localhost:8080"}, "OPENAI_BASE_URL is 127.0.0.1:8080" + circles},
		{"http://127.0.0.1/v1", []string{"https://x:1", "localhost:80"}, "OPENAI_BASE_URL is 127.0.0.1" + circles},
		{"https://127.0.0.1/v1", []string{"https://localhost"}, "OPENAI_BASE_URL is 127.0.0.1" + circles},
		{"http://127.0.0.1:8080", []string{":8080"}, "OPENAI_BASE_URL is 127.0.0.1:8080" + circles},
		{"http://127.0.0.1:8080", []string{"0.0.0.0:8080"}, "OPENAI_BASE_URL is 127.0.0.1:8080" + circles},
		{"https://LLMQ.example.com/v1", []string{"llmq.Example.com.:443"}, "OPENAI_BASE_URL is llmq.example.com" + circles},
		{"http://api.example.com/v1", nil, "OPENAI_BASE_URL must be https; http is for private providers" + private},
		{"https://93.184.216.34/v1", nil, "OPENAI_BASE_URL must have a host name; an address is for private providers" + private},
		{"https://u:hunter2@api.example.com", nil, "OPENAI_BASE_URL must hold no user or password; a key is given as a secret"},
		{"https://api.example.com/v1", nil, "OPENAI_API_KEY is missing, and api.example.com is not on this machine or network"},
	} {
		_, _, ok, err := FromOpenAIEnv([]string{"OPENAI_BASE_URL=" + tc.base}, tc.listeners)
		if ok || !errors.Is(err, llmq.CodeConfiguration) {
			t.Errorf("%s: %v %v", tc.base, ok, err)
			continue
		}
		if got := llmq.AsError(err).Message; got != tc.want {
			t.Errorf("%s:\ngot  %q\nwant %q", tc.base, got, tc.want)
		}
	}
}

func TestFromOpenAIEnv_OtherPortOfThisMachineIsNoListener(t *testing.T) {
	t.Parallel()
	_, _, ok, err := FromOpenAIEnv([]string{"OPENAI_BASE_URL=http://127.0.0.1:8082/v1"}, []string{"127.0.0.1:8080", "127.0.0.1:8081", "junk"})
	if !ok || err != nil {
		t.Error(ok, err)
	}
}
