package queue_test

import (
	"errors"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// MS1: the zero value is a deployment that lists nobody, and takes nobody's messages.
func TestSenders_NobodyIsListed(t *testing.T) {
	t.Parallel()
	var s queue.Senders
	for _, id := range []string{"", ":", "AROAX", "AROAX:door"} {
		if _, err := s.Of(queue.Message{SenderID: id}); !errors.Is(err, llmq.CodeSenderNotAllowed) {
			t.Errorf("%q: %v, want it refused", id, err)
		}
	}
	if !s.None() || (queue.Senders{Workers: []string{"w"}}).None() == false {
		t.Error("somebody's calls are taken; a worker sends dead letters only")
	}
	if (queue.Senders{Own: []string{"d"}}).None() || (queue.Senders{Producers: []queue.Producer{{SenderID: "p"}}}).None() {
		t.Error("somebody is listed")
	}
}

// MS4: without a producer nothing but the tenant's own folder is in reach.
func TestSenders_PointersWithoutProducers(t *testing.T) {
	t.Parallel()
	s := queue.Senders{Own: []string{"d"}}
	from, err := s.Of(queue.Message{SenderID: "d:session"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"off/" + llmq.TenantHash("t") + "/x": true, "off/" + llmq.TenantHash("u") + "/x": false, "off/" + llmq.TenantHash("t"): false, "in/p/x": false, "in//x": false, "": false,
	} {
		if got := s.MayPointAt(key, from, "t"); got != want {
			t.Errorf("%q: %t, want %t", key, got, want)
		}
	}
}
