package broker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// poll is a Receive that runs beside the test.
type poll struct {
	done chan struct{}
	got  []Message
	err  error
	at   time.Time // when it returned
}

func startPoll(ctx context.Context, b *Broker, p Poll) *poll {
	started := &poll{done: make(chan struct{})}
	go func() {
		defer close(started.done)
		started.got, started.err = b.Receive(ctx, queueName, p)
		started.at = time.Now()
	}()
	synctest.Wait()
	return started
}

func TestReceive_WakesInTheInstantOfASend(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		p := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)})
		time.Sleep(7 * time.Second)
		sent := time.Now()
		send(t, b, Outgoing{Body: "x"})
		<-p.done
		if len(p.got) != 1 || !p.at.Equal(sent) {
			t.Fatalf("got %d messages %v after the send", len(p.got), p.at.Sub(sent))
		}
	})
}

func TestReceive_WakesAsADelayEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attributes map[string]string
		message    Outgoing
		want       time.Duration
	}{
		"of the message":            {nil, Outgoing{Body: "x", DelaySeconds: new(3)}, 3 * time.Second},
		"of the queue":              {map[string]string{attrDelay: "5"}, Outgoing{Body: "x"}, 5 * time.Second},
		"of 0 on a queue with more": {map[string]string{attrDelay: "5"}, Outgoing{Body: "x", DelaySeconds: new(0)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, c.attributes, func(t *testing.T, b *Broker) {
				began := time.Now()
				send(t, b, c.message)
				one(t, b, queueName, 20)
				elapsed(t, began, c.want)
			})
		})
	}
}

func TestReceive_WakesAsATimeoutEnds(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrVisibility: "9"}, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "x"})
		began := time.Now()
		first := one(t, b, queueName, 0)
		second := one(t, b, queueName, 20)
		elapsed(t, began, 9*time.Second)
		if second.Receives != 2 || !second.FirstReceivedAt.Equal(first.FirstReceivedAt) || !second.SentAt.Equal(first.SentAt) {
			t.Fatalf("second receive: %+v", second)
		}
	})
}

func TestReceive_AnEarlierMessageMovesTheAlarmForward(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		began := time.Now()
		send(t, b, Outgoing{Body: "late", DelaySeconds: new(10)})
		send(t, b, Outgoing{Body: "early", DelaySeconds: new(2)})
		if m := one(t, b, queueName, 20); m.Body != "early" {
			t.Fatalf("received %q first", m.Body)
		}
		elapsed(t, began, 2*time.Second)
		one(t, b, queueName, 20)
		elapsed(t, began, 10*time.Second)
	})
}

func TestReceive_EmptyPollTakesItsTime(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrWait: "11"}, func(t *testing.T, b *Broker) {
		began := time.Now()
		got, err := b.Receive(t.Context(), queueName, Poll{})
		if err != nil || len(got) != 0 {
			t.Fatalf("got %v, %v", got, err)
		}
		elapsed(t, began, 11*time.Second)
		receive(t, b, queueName, 0)
		elapsed(t, began, 11*time.Second)
	})
}

func TestReceive_MessageInThePollsLastInstantIsNotLost(t *testing.T) {
	t.Parallel()
	for range 20 { // whether the poll sees its end or the message first is left to chance
		bubble(t, nil, func(t *testing.T, b *Broker) {
			began := time.Now()
			send(t, b, Outgoing{Body: "x", DelaySeconds: new(5)})
			ending := startPoll(t.Context(), b, Poll{WaitSeconds: new(5)})
			next := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)})
			<-ending.done
			<-next.done
			taker := ending
			if len(ending.got) == 0 {
				taker = next
			}
			if len(ending.got)+len(next.got) != 1 || taker.at.Sub(began) != 5*time.Second {
				t.Fatalf("the polls got %d and %d messages after %v", len(ending.got), len(next.got), taker.at.Sub(began))
			}
		})
	}
}

func TestReceive_APollThatEndedTakesNoWakeUp(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		receive(t, b, queueName, 5)
		p := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)})
		sent := time.Now()
		send(t, b, Outgoing{Body: "x"})
		<-p.done
		if len(p.got) != 1 || !p.at.Equal(sent) {
			t.Fatalf("the poll got %d messages %v after the send", len(p.got), p.at.Sub(sent))
		}
	})
}

func TestReceive_ABatchComesTogether(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		p := startPoll(t.Context(), b, Poll{Max: new(10), WaitSeconds: new(20)})
		var batch []Outgoing
		for i := range 10 {
			batch = append(batch, Outgoing{Body: fmt.Sprint(i)})
		}
		if _, err := b.SendBatch(queueName, "", batch); err != nil {
			t.Fatal(err)
		}
		<-p.done
		if len(p.got) != 10 {
			t.Fatalf("the poll got %d messages of a batch of 10", len(p.got))
		}
	})
}

func TestReceive_EveryPollGetsItsMessage(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		const n = 25
		var polls []*poll
		for range n {
			polls = append(polls, startPoll(t.Context(), b, Poll{WaitSeconds: new(20)}))
		}
		began := time.Now()
		for i := range n {
			send(t, b, Outgoing{Body: fmt.Sprint(i)})
		}
		seen := map[string]bool{}
		for _, p := range polls {
			<-p.done
			for _, m := range p.got {
				seen[m.Body] = true
			}
		}
		if len(seen) != n {
			t.Fatalf("%d of %d polls got a message of their own", len(seen), n)
		}
		elapsed(t, began, 0)
	})
}

func TestReceive_LongestWaitIsServedFirst(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		first := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)})
		second := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)})
		send(t, b, Outgoing{Body: "x"})
		<-first.done
		<-second.done
		if len(first.got) != 1 || len(second.got) != 0 {
			t.Fatalf("first got %d, second %d", len(first.got), len(second.got))
		}
	})
}

func TestReceive_APollWhoseCallerLeftTakesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		ctx, leave := context.WithCancel(t.Context())
		gone := startPoll(ctx, b, Poll{WaitSeconds: new(20)})
		leave()
		<-gone.done
		wantCode(t, gone.err, Unavailable)
		send(t, b, Outgoing{Body: "x"})
		one(t, b, queueName, 0)
	})
}

// The poll is woken for the message, and its caller leaves in the same instant: its wake-up must go to the next.
func TestReceive_APollThatLeavesPassesItsWakeUpOn(t *testing.T) {
	t.Parallel()
	for range 50 { // which of the two it sees first is left to chance
		bubble(t, nil, func(t *testing.T, b *Broker) {
			ctx, leave := context.WithCancel(t.Context())
			gone := startPoll(ctx, b, Poll{WaitSeconds: new(20)})
			next := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)})
			began := time.Now()
			leave()
			send(t, b, Outgoing{Body: "x"})
			<-gone.done
			<-next.done
			if len(gone.got) != 0 || len(next.got) != 1 {
				t.Fatalf("the poll that left got %d, the next %d", len(gone.got), len(next.got))
			}
			elapsed(t, began, 0)
		})
	}
}

func TestReceive_OnACancelledContextTakesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		ctx, leave := context.WithCancel(t.Context())
		leave()
		send(t, b, Outgoing{Body: "x"})
		_, err := b.Receive(ctx, queueName, Poll{})
		wantCode(t, err, Unavailable)
		counts(t, b, queueName, "1", "0", "0")
	})
}

func TestReceive_EndsWhenTheQueueIsDeleted(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		p := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)})
		began := time.Now()
		if err := b.DeleteQueue(queueName); err != nil {
			t.Fatal(err)
		}
		<-p.done
		wantCode(t, p.err, QueueDoesNotExist)
		elapsed(t, began, 0)
	})
}

func TestClose_EndsWaitingPolls(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		p := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)})
		began := time.Now()
		b.Close()
		<-p.done
		if p.err != nil || len(p.got) != 0 {
			t.Fatalf("got %v, %v, want nothing", p.got, p.err)
		}
		elapsed(t, began, 0)
	})
}
