// Jobs is a worker of one's own, as an example: its functions run as jobs of a queue that the configuration names.
//
//	make run JOBS=text=./examples/jobs
//	echo '{"text": "to be or not to be"}' | llmq job send words --queue text --payload-file - --wait 30
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llm-queue/llmq/worker"
)

func main() {
	worker.Main(worker.Job("words", words), worker.Job("nap", nap))
}

// words counts the words of a text. It changes nothing, so that it may run as often as it must.
func words(_ context.Context, r worker.Run) ([]byte, error) {
	var ask struct{ Text string }
	if err := json.Unmarshal(r.Payload, &ask); err != nil {
		return nil, worker.Fatal(fmt.Errorf("read the payload: %w", err)) // it will not be better the next time
	}
	counts := map[string]int{}
	for word := range strings.FieldsSeq(strings.ToLower(ask.Text)) {
		counts[word]++
	}
	return json.Marshal(counts)
}

// nap takes the seconds that it is asked to. It ends when it is cancelled, as everything that takes long must.
func nap(ctx context.Context, r worker.Run) ([]byte, error) {
	var ask struct{ Secs float64 }
	if err := json.Unmarshal(r.Payload, &ask); err != nil || ask.Secs < 0 {
		return nil, worker.Fatal(errors.New("secs must be a number, of seconds to sleep"))
	}
	timer := time.NewTimer(time.Duration(ask.Secs * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return json.Marshal(map[string]any{"slept_secs": ask.Secs, "attempt": r.Attempt})
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
