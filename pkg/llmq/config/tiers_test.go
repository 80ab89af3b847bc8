package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// D12, D8: tiers of a target and the switch of a provider reach the catalogue and survive being written.
func TestLoad_TiersAndStreamOptions(t *testing.T) {
	t.Parallel()
	data := strings.NewReplacer(
		"wires: [openai], max_concurrency: 20", "wires: [openai], service_tiers: [priority, flex], max_concurrency: 20",
		"private: true,", "private: true, refuses_stream_options: true,",
	).Replace(read(t, "testdata/aws.yaml"))
	c, err := Parse("aws", []byte(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Catalogue().Models()[0].Targets[0]; got.Tier(llmq.LaneRT) != llmq.TierPriority || got.Tier(llmq.LaneBG) != "" || got.Tier(llmq.LaneBulk) != llmq.TierFlex {
		t.Errorf("tiers %v", got.Tiers)
	}
	if !c.provider("local-vllm").RefusesStreamOptions || c.provider("openai").RefusesStreamOptions {
		t.Error("the switch is not where it was set")
	}
	written, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again", written, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, again, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Errorf("written and read (-want +got):\n%s", diff)
	}
	if _, err := Parse("aws", []byte(strings.Replace(data, "[priority, flex]", "[premium]", 1)), nil); err == nil {
		t.Error("a tier that nobody has is taken")
	}
}

// IN5, EG4: what a target may reach besides its model is listed, and a private provider fetches nothing.
func TestLoad_ToolsAndMedia(t *testing.T) {
	t.Parallel()
	plain := read(t, "testdata/aws.yaml")
	data := strings.NewReplacer(
		"    type: openai\n    base_url: https://api", "    type: openai\n    remote_media: pass\n    base_url: https://api",
		"    targets:\n", "    hosted_tools: [web_search, mcp]\n    targets:\n",
	).Replace(plain)
	c, err := Parse("aws", []byte(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web_search", "mcp"}, c.Catalogue().Models()[0].Targets[0].HostedTools); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if c.provider("openai").RemoteMedia != "pass" || c.provider("local-vllm").RemoteMedia != "refuse" {
		t.Errorf("media: %+v", c.Providers)
	}
	if _, err := Parse("aws", []byte(strings.Replace(plain, "private: true,", "private: true, remote_media: pass,", 1)), nil); err == nil || !strings.Contains(err.Error(), "remote_media: pass is for public providers") {
		t.Errorf("a private provider that fetches: %v", err)
	}
}
