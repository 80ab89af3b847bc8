package broker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReceive_VisibilityZeroLeavesTheMessageThere(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "x"})
		for i := range 5 {
			got, err := b.Receive(t.Context(), queueName, Poll{Max: new(10), VisibilitySeconds: new(0)})
			if err != nil || len(got) != 1 || got[0].Receives != i+1 {
				t.Fatalf("receive %d: got %+v, %v", i, got, err)
			}
		}
		counts(t, b, queueName, "1", "0", "0")
	})
}

func TestReceive_ThirdReceiveGoesToTheBack(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "poison"})
		send(t, b, Outgoing{Body: "fine"})
		var order []string
		for range 4 {
			got, err := b.Receive(t.Context(), queueName, Poll{VisibilitySeconds: new(0)})
			if err != nil {
				t.Fatal(err)
			}
			order = append(order, got[0].Body)
		}
		if diff := cmp.Diff([]string{"poison", "poison", "poison", "fine"}, order); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestReceive_GroupWithFewestInFlightComesFirst(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		for i := range 4 {
			send(t, b, Outgoing{Body: fmt.Sprint("noisy-", i), GroupID: "noisy"})
		}
		send(t, b, Outgoing{Body: "quiet-0", GroupID: "quiet"})
		send(t, b, Outgoing{Body: "none-0"})
		send(t, b, Outgoing{Body: "none-1"})
		// noisy-0 is the oldest and nothing is in flight; then noisy has one and waits for all others, since messages without a
		// group are tenants of their own.
		want := []string{"noisy-0", "quiet-0", "none-0", "none-1", "noisy-1", "noisy-2", "noisy-3"}
		if diff := cmp.Diff(want, bodies(receive(t, b, queueName, 0))); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestReceive_DeleteAndTimeoutGiveAGroupItsTurnBack(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		for i := range 3 {
			send(t, b, Outgoing{Body: fmt.Sprint("a", i), GroupID: "a"})
		}
		take := func() Message {
			got, err := b.Receive(t.Context(), queueName, Poll{})
			if err != nil || len(got) != 1 {
				t.Fatalf("got %v, %v", got, err)
			}
			return got[0]
		}
		first := take()
		send(t, b, Outgoing{Body: "b0", GroupID: "b"})
		send(t, b, Outgoing{Body: "b1", GroupID: "b"})
		if err := b.Delete(queueName, first.Handle); err != nil {
			t.Fatal(err)
		}
		if m := take(); m.Body != "a1" { // both have none in flight, a1 is older
			t.Fatalf("after the delete: %s, want a1", m.Body)
		}
		if m := take(); m.Body != "b0" {
			t.Fatalf("with one of a in flight: %s, want b0", m.Body)
		}
		time.Sleep(30 * time.Second) // both come back, to their old places
		if diff := cmp.Diff([]string{"a1", "b0", "a2", "b1"}, bodies(receive(t, b, queueName, 0))); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestReceive_ADelayedMessageStaysWithItsGroup(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "g-delayed", GroupID: "g", DelaySeconds: new(10)})
		send(t, b, Outgoing{Body: "g-0", GroupID: "g"})
		if err := b.Delete(queueName, one(t, b, queueName, 0).Handle); err != nil {
			t.Fatal(err)
		}
		send(t, b, Outgoing{Body: "g-1", GroupID: "g"})
		one(t, b, queueName, 0) // in flight
		time.Sleep(10 * time.Second)
		send(t, b, Outgoing{Body: "h", GroupID: "h"})
		if diff := cmp.Diff([]string{"h", "g-delayed"}, bodies(receive(t, b, queueName, 0))); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestReceive_OverLimitUntilOneIsDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{MaxInFlight: 2})
		defer b.Close()
		create(t, b, queueName, nil)
		for range 3 {
			send(t, b, Outgoing{Body: "x"})
		}
		got := receive(t, b, queueName, 0)
		if len(got) != 2 {
			t.Fatalf("received %d, want the 2 that may be in flight", len(got))
		}
		_, err := b.Receive(t.Context(), queueName, Poll{})
		wantCode(t, err, OverLimit)
		p := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)})
		time.Sleep(5 * time.Second)
		if err := b.Delete(queueName, got[0].Handle); err != nil {
			t.Fatal(err)
		}
		<-p.done
		if p.err != nil || len(p.got) != 1 {
			t.Fatalf("the poll that waited got %v, %v", p.got, p.err)
		}
	})
}

func TestReceive_DefaultInFlightLimitIs120000(t *testing.T) {
	t.Parallel()
	b := plain(t)
	batch := make([]Outgoing, 10)
	for i := range batch {
		batch[i].Body = "x"
	}
	for range maxInFlight / 10 {
		if _, err := b.SendBatch(queueName, "", batch); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, b, queueName, 0); len(got) != 10 {
			t.Fatalf("received %d, want 10", len(got))
		}
	}
	send(t, b, Outgoing{Body: "one more"})
	_, err := b.Receive(t.Context(), queueName, Poll{})
	wantCode(t, err, OverLimit)
}

// Consumers that crash, and let timeouts end, see every message all the same, and none after its delete.
func TestReceive_NoLossUnderTimeouts(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrVisibility: "2"}, func(t *testing.T, b *Broker) {
		const n = 200
		var (
			mu      sync.Mutex
			deleted = map[string]int{}
			wg      sync.WaitGroup
		)
		ctx, done := context.WithCancel(t.Context())
		defer done()
		for worker := range 8 {
			wg.Go(func() {
				for turn := worker; ctx.Err() == nil; turn++ {
					got, _ := b.Receive(ctx, queueName, Poll{Max: new(3), WaitSeconds: new(20)})
					for i, m := range got {
						if (turn+i)%3 == 0 {
							continue // crashed: its timeout ends
						}
						if err := b.Delete(queueName, m.Handle); err != nil {
							t.Error(err)
						}
						mu.Lock()
						deleted[m.ID]++
						if len(deleted) == n {
							done()
						}
						mu.Unlock()
					}
				}
			})
		}
		for i := range n {
			send(t, b, Outgoing{Body: fmt.Sprint(i), GroupID: fmt.Sprint("g", i%7)})
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
		for id, times := range deleted {
			if times != 1 {
				t.Errorf("message %s was received %d times after a delete", id, times-1)
			}
		}
		counts(t, b, queueName, "0", "0", "0")
	})
}
