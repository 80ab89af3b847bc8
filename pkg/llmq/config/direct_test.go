package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// D10, D11: what is done without a queue or a state store is set by the file or by variables; off is a word, not a truth value.
func TestLoad_Outages(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/local.yaml",
		"LLMQ_SQS_TIMEOUTS_TO_FAILOVER=5", "LLMQ_SQS_FAILOVER_SECS=60", "LLMQ_VALKEY_WAIT_FAILOVER_SECS=0", "LLMQ_DOOR_MAX_CONCURRENCY=40", "LLMQ_ROUTING_DIRECT=off")
	got := []any{c.Timing.SQSTimeoutsToFailover, c.Timing.SQSFailover, c.Timing.ValkeyWait, c.Door.MaxConcurrency, c.Routing.Direct}
	for _, text := range []string{"off", `"off"`} {
		filed, err := Parse("local", []byte(read(t, "testdata/local.yaml")+"routing: {direct: "+text+"}\n"), nil)
		if err != nil || filed.Routing.Direct != DirectOff {
			t.Errorf("direct: %s is read as %+v, %v", text, filed, err)
		}
	}
	if diff := cmp.Diff([]any{5, time.Minute, time.Duration(0), 40, DirectOff}, got); diff != "" {
		t.Error(diff)
	}
}
