package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const awsTraces = `kind: aws
env: e
region: eu-central-1
id_hash_salt: {arn: "arn:aws:secretsmanager:eu-central-1:123456789012:secret:salt"}
providers:
  cloud: {type: bedrock}
models:
  m: {targets: [{name: a, provider: cloud, model_id: x}]}
`

// E9, DP4: spans go where the file says, in the clear on one's own machine alone.
func TestTraces_EndpointIsHTTPSOnAWS(t *testing.T) {
	t.Parallel()
	const path = "traces.endpoint_url: "
	for _, tt := range []struct {
		file, url, want string
	}{
		{providersFile, "http://collector.example:4318", ""},
		{awsTraces, "https://collector.example:4318/otlp", ""},
		{awsTraces, "http://localhost:4318", ""},
		{awsTraces, "http://127.0.0.1:4318", ""},
		{awsTraces, "http://[::1]:4318", ""},
		{awsTraces, "http://collector.example:4318", path + "must be https on aws, but to an extension on localhost"},
		{awsTraces, "http://localhost.example:4318", path + "must be https on aws, but to an extension on localhost"},
		{awsTraces, "https://user:pass@collector.example", path + "must hold no user or password; a key is given as a secret"},
		{providersFile, "collector:4318", path + "must be a URL such as https://api.openai.com/v1"},
	} {
		got := strings.Join(faultsOf(t, tt.file, "LLMQ_TRACES_ENDPOINT_URL="+tt.url), "; ")
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.url, diff)
		}
	}
}

func TestTraces_NothingIsTracedByDefault(t *testing.T) {
	t.Parallel()
	cfg, err := Parse("f", []byte(awsTraces), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Traces{SampleRatio: Share{Of: 1, Given: true}}, cfg.Traces); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if cfg, err = Parse("f", []byte(awsTraces), []string{"LLMQ_TRACES_SAMPLE_RATIO=0.05"}); err != nil || cfg.Traces.SampleRatio.Of != 0.05 {
		t.Errorf("ratio %v, %v", cfg.Traces.SampleRatio, err)
	}
}
