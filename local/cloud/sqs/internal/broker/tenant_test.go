package broker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// noisyBubble runs a test on a broker that serves groups as AWS documents it, with n messages of the group "noisy" in flight and one
// more ready.
func noisyBubble(t *testing.T, n int, run func(t *testing.T, b *Broker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{NoisyGroups: true})
		defer b.Close()
		create(t, b, queueName, map[string]string{attrVisibility: "43200"})
		for range n {
			send(t, b, Outgoing{Body: "noisy", GroupID: "noisy"})
			one(t, b, queueName, 0)
		}
		send(t, b, Outgoing{Body: "noisy", GroupID: "noisy"})
		run(t, b)
	})
}

func TestNoisyGroups_OneWithThirtyInFlightGoesLast(t *testing.T) {
	t.Parallel()
	for inFlight, want := range map[int][]string{29: {"noisy", "quiet"}, 30: {"quiet", "noisy"}} {
		t.Run(fmt.Sprint(inFlight), func(t *testing.T) {
			t.Parallel()
			noisyBubble(t, inFlight, func(t *testing.T, b *Broker) {
				send(t, b, Outgoing{Body: "quiet", GroupID: "quiet"})
				if diff := cmp.Diff(want, bodies(receive(t, b, queueName, 0))); diff != "" {
					t.Fatal(diff)
				}
			})
		})
	}
}

func TestNoisyGroups_AMessageWithoutAGroupGoesBeforeIt(t *testing.T) {
	t.Parallel()
	noisyBubble(t, 30, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "alone"})
		if diff := cmp.Diff([]string{"alone", "noisy"}, bodies(receive(t, b, queueName, 0))); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestNoisyGroups_ATenthOfAllInFlightIsNotNoisy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{NoisyGroups: true})
		defer b.Close()
		create(t, b, queueName, nil)
		for i := range 300 { // 270 of others, then 30 of one: a tenth, not over it
			group := fmt.Sprint("g", i)
			if i >= 270 {
				group = "one"
			}
			send(t, b, Outgoing{Body: "x", GroupID: group})
			one(t, b, queueName, 0)
		}
		send(t, b, Outgoing{Body: "one", GroupID: "one"})
		send(t, b, Outgoing{Body: "other", GroupID: "other"})
		if diff := cmp.Diff([]string{"one", "other"}, bodies(receive(t, b, queueName, 0))); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestNoisyGroups_EndsWithItsBacklogOrAfterFiveQuietMinutes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then func(t *testing.T, b *Broker, inFlight []Message)
		want []string
	}{
		"backlog drained, and few in flight": {func(t *testing.T, b *Broker, inFlight []Message) {
			one(t, b, queueName, 0)
			removeAll(t, b, inFlight[:20])
			send(t, b, Outgoing{Body: "noisy", GroupID: "noisy"})
		}, []string{"noisy", "quiet"}},
		"backlog drained, but many in flight": {func(t *testing.T, b *Broker, _ []Message) {
			one(t, b, queueName, 0)
			send(t, b, Outgoing{Body: "noisy", GroupID: "noisy"})
		}, []string{"quiet", "noisy"}},
		"few in flight, but a backlog": {func(t *testing.T, b *Broker, inFlight []Message) {
			removeAll(t, b, inFlight[:20])
		}, []string{"quiet", "noisy"}},
		"nothing in flight for 5 minutes": {func(t *testing.T, b *Broker, inFlight []Message) {
			removeAll(t, b, inFlight)
			time.Sleep(5 * time.Minute)
		}, []string{"noisy", "quiet"}},
		"nothing in flight for less": {func(t *testing.T, b *Broker, inFlight []Message) {
			removeAll(t, b, inFlight)
			time.Sleep(5*time.Minute - time.Second)
		}, []string{"quiet", "noisy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := New(Config{NoisyGroups: true})
				defer b.Close()
				create(t, b, queueName, map[string]string{attrVisibility: "43200"})
				for range 41 {
					send(t, b, Outgoing{Body: "noisy", GroupID: "noisy"})
				}
				var inFlight []Message
				for range 4 {
					inFlight = slices.Concat(inFlight, receive(t, b, queueName, 0))
				}
				c.then(t, b, inFlight)
				send(t, b, Outgoing{Body: "quiet", GroupID: "quiet"})
				if diff := cmp.Diff(c.want, bodies(receive(t, b, queueName, 0))); diff != "" {
					t.Fatal(diff)
				}
			})
		})
	}
}

func removeAll(t *testing.T, b *Broker, messages []Message) {
	t.Helper()
	for _, m := range messages {
		if err := b.Delete(queueName, m.Handle); err != nil {
			t.Fatal(err)
		}
	}
}
