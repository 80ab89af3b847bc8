package rig_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

var update = flag.Bool("update-elasticmq", false, "rewrite local/elasticmq.conf")

// elasticmqConf is the configuration of an ElasticMQ with the queues of cfg, as a deployment has them.
func elasticmqConf(cfg *config.Config) []byte {
	const maxReceiveCount = 1000 // only a last guard, as deployed: releases are receives too
	var b bytes.Buffer
	fmt.Fprintf(&b, `# The queues of local/llmq.yaml, for the ElasticMQ of docker-compose.yml. Made from that file; change it, then run
# go test ./local/rig -run TestElasticMQ -update-elasticmq
include classpath("application.conf")

# Queue URLs begin with whatever name the asker uses: 127.0.0.1 on the host, elasticmq in a container.
node-address { protocol = http, host = "*", port = 9324, context-path = "" }
rest-sqs { enabled = true, bind-port = 9324, bind-hostname = "0.0.0.0", sqs-limits = strict }
rest-stats { enabled = false }
aws { region = %q, accountId = %q }

queues {
`, cfg.Region, cfg.Queues.Account())
	for _, m := range cfg.Models {
		for _, lane := range m.Lanes {
			q := cfg.Queues.Names().Model(m.Alias, lane)
			fmt.Fprintf(&b, "  %s {\n    defaultVisibilityTimeout = %d seconds\n    receiveMessageWait = 20 seconds\n    deadLettersQueue { name = %q, maxReceiveCount = %d }\n  }\n  %s { receiveMessageWait = 20 seconds }\n",
				q, cfg.Lanes[lane].FunctionTimeout/time.Second, q.DLQ(), maxReceiveCount, q.DLQ())
		}
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// G2: ElasticMQ starts with the queues that the configuration names.
func TestElasticMQ_HasTheQueuesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(repository+"/local/llmq.yaml", pairs(composeEnv(t)))
	if err != nil {
		t.Fatal(err)
	}
	const file = repository + "/local/elasticmq.conf"
	want := elasticmqConf(cfg)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("local/elasticmq.conf (-configuration +file); -update-elasticmq rewrites it:\n%s", diff)
	}
}
