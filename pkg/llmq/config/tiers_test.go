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
