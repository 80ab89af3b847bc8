package rig_test

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/cloud/relay"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// frozenFor is how long TestFreeze leaves the functions frozen: go test ./local/rig -run
// TestFreeze -freeze 60s. By default no longer than it takes to cut their sockets.
var frozenFor = flag.Duration("freeze", 0, "how long TestFreeze leaves the functions frozen")

// linked is a rig whose functions reach every part over a link.
type linked struct{ *rig.Rig }

// startLinked starts one. Bodies of more than 1 KiB travel through the bucket.
func startLinked(t *testing.T) linked {
	t.Helper()
	return linked{ownRig(t, rig.Options{Linked: true, Change: func(c *config.Config) { c.Storage.InlineMaxBytes = 1024 }})}
}

// ask makes one call and expects its answer.
func (l linked) ask(t *testing.T, text string) {
	t.Helper()
	client := openai.NewClient(option.WithBaseURL(l.URL+"/v1"), option.WithAPIKey(l.Key), option.WithMaxRetries(0))
	got, err := chat(within(t, time.Minute), client, rig.ModelChat, text)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[fake-chat-1] " + text; got.Choices[0].Message.Content != want {
		t.Errorf("content = %.40q, want %.40q", got.Choices[0].Message.Content, want)
	}
}

// settled waits until every instance of a function is frozen, and returns their ids.
func (l linked) settled(t *testing.T, function string) []string {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for {
		var ids []string
		frozen := true
		for _, i := range l.Lambda.Instances(function) {
			ids = append(ids, i.ID)
			frozen = frozen && i.Frozen && i.State == lambda.StateIdle
		}
		if frozen && len(ids) > 0 {
			return ids
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s is not frozen: %+v", function, l.Lambda.Instances(function))
		}
	}
}

// Both functions are frozen between invocations, and while they are, every socket that
// they have dies: to the state store, to SQS, to the bucket and to the provider. They find
// that out at once when they are thawed, or only when they next send something, as on AWS,
// where no packet reaches a frozen function. Either way the next call goes through the same
// processes, and succeeds at the first try.
func TestFreeze_SocketsThatDiedMeanwhileFailNoCall(t *testing.T) {
	t.Parallel()
	deaths := map[string]func(*relay.Relay){"reset at once": (*relay.Relay).Cut, "reset at the next use": (*relay.Relay).Lapse}
	for name, die := range deaths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLinked(t)
			large := strings.Repeat("large ", 400)
			l.ask(t, large)
			worker := cloud.FunctionWorker(llmq.LaneRT)
			doors, workers := l.settled(t, cloud.FunctionEnqueue), l.settled(t, worker)
			if *frozenFor > 0 {
				time.Sleep(*frozenFor) // the processes stand still; there is nothing to wait for but time
			}
			for part, r := range l.Links {
				if c := r.Counts(); c.Open == 0 {
					t.Errorf("no socket to %s is there to die: %+v", part, c)
				}
				if part == rig.PartProvider {
					// A call that meets a dead connection only when it is sent may have been paid for, and
					// is not sent again: there is one attempt yet. So this one dies at once.
					r.Cut()
					continue
				}
				die(r)
			}
			began := time.Now()
			l.ask(t, large+"again")
			t.Logf("after the thaw, answered in %s", time.Since(began))
			if now := l.settled(t, cloud.FunctionEnqueue); !slices.Equal(now, doors) {
				t.Errorf("door's instances %v, then %v; want the same", doors, now)
			}
			if now := l.settled(t, worker); !slices.Equal(now, workers) {
				t.Errorf("worker's instances %v, then %v; want the same", workers, now)
			}
			for part, r := range l.Links {
				// After a long freeze a process may trust no old connection any more, and then none lapses.
				if c := r.Counts(); c.Cut == 0 && *frozenFor == 0 {
					t.Errorf("no socket to %s was reset: %+v", part, c)
				}
			}
			for _, f := range []string{cloud.FunctionEnqueue, worker} {
				if s := l.Lambda.Stats(f); s.Errors != 0 || s.ColdStarts != 1 {
					t.Errorf("%s: %+v", f, s)
				}
			}
		})
	}
}

// Each fault of a link or of a function is one line, and none of these costs a call.
func TestFaults_SlowLinksAndLostProcessesFailNoCall(t *testing.T) {
	t.Parallel()
	l := startLinked(t)
	worker := cloud.FunctionWorker(llmq.LaneRT)
	faults := []struct {
		name string
		do   func() error
	}{
		{"slow start of the worker", func() error { return l.Lambda.SlowStart(worker, 100*time.Millisecond) }},
		{"slow state store", func() error { l.Links[cloud.PartValkey].Delay(5 * time.Millisecond); return nil }},
		{"slow SQS", func() error { l.Links[cloud.PartSQS].Delay(20 * time.Millisecond); return nil }},
		{"slow bucket", func() error { l.Links[cloud.PartS3].Delay(20 * time.Millisecond); return nil }},
		{"slow provider", func() error { l.Links[rig.PartProvider].Delay(50 * time.Millisecond); return nil }},
		{"worker killed while idle", func() error { l.settled(t, worker); return l.Lambda.Kill(worker, "idle") }},
		{"door killed while idle", func() error { l.settled(t, cloud.FunctionEnqueue); return l.Lambda.Kill(cloud.FunctionEnqueue, "idle") }},
	}
	for _, f := range faults {
		if err := f.do(); err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		l.ask(t, strings.Repeat(f.name+" ", 100))
	}
}

// Connections that fall silent for ever, as behind a NAT that has forgotten them, are
// given up for fresh ones within the call.
func TestFaults_StrandedConnectionsFailNoCall(t *testing.T) {
	t.Parallel()
	l := startLinked(t)
	for _, part := range []string{cloud.PartS3, cloud.PartSQS} {
		l.ask(t, strings.Repeat("warm ", 400))
		if c := l.Links[part].Counts(); c.Open == 0 {
			t.Errorf("no connection to %s is there to be stranded", part)
		}
		l.Links[part].Strand()
		l.ask(t, strings.Repeat(part+" ", 400))
	}
}
