package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// held returns the weight of all messages, and how many there are, without opening a queue.
func held(b *Broker) (bytes, messages int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		messages += len(q.messages)
	}
	return b.held, messages
}

func TestRetention_FreesMemoryThoughNobodyAsks(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrRetention: "60", attrVisibility: "43200"}, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "in flight"})
		one(t, b, queueName, 0)
		send(t, b, Outgoing{Body: "ready"})
		send(t, b, Outgoing{Body: "delayed", DelaySeconds: new(900)})
		time.Sleep(60*time.Second - time.Nanosecond)
		if _, n := held(b); n != 3 {
			t.Fatalf("%d messages are held before their retention ends, want 3", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if bytes, n := held(b); bytes != 0 || n != 0 {
			t.Fatalf("%d messages, %d bytes are held after it", n, bytes)
		}
	})
}

func TestBroker_HoldsNoMoreBytesThanItMay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{MaxBytes: 2*upkeep + 3})
		defer b.Close()
		create(t, b, queueName, nil)
		send(t, b, Outgoing{Body: "a"})
		sent, err := b.SendBatch(queueName, "", []Outgoing{{Body: "bb"}, {Body: "c"}})
		if err != nil || sent[0].Err != nil {
			t.Fatalf("what there is room for: %+v, %v", sent, err)
		}
		wantCode(t, sent[1].Err, Unavailable)
		if err := b.Delete(queueName, firstOf(t, b).Handle); err != nil {
			t.Fatal(err)
		}
		send(t, b, Outgoing{Body: "c"})
	})
}

func TestBroker_EveryWayOutFreesItsBytes(t *testing.T) {
	t.Parallel()
	for name, out := range map[string]func(t *testing.T, b *Broker){
		"delete": func(t *testing.T, b *Broker) {
			if err := b.Delete(queueName, one(t, b, queueName, 0).Handle); err != nil {
				t.Fatal(err)
			}
		},
		"purge": func(t *testing.T, b *Broker) {
			if err := b.PurgeQueue(queueName); err != nil {
				t.Fatal(err)
			}
		},
		"the queue's deletion": func(t *testing.T, b *Broker) {
			if err := b.DeleteQueue(queueName); err != nil {
				t.Fatal(err)
			}
		},
		"the dead-letter queue, and back by a move": func(t *testing.T, b *Broker) {
			one(t, b, queueName, 0)
			time.Sleep(30 * time.Second)
			receive(t, b, queueName, 0)
			if _, err := b.StartMove(b.ARN("dead"), "", nil); err != nil {
				t.Fatal(err)
			}
			if err := b.Delete(queueName, one(t, b, queueName, 20).Handle); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, b *Broker) {
				redriveTo(t, b, "dead", "1")
				send(t, b, Outgoing{Body: "x"})
				if bytes, _ := held(b); bytes != upkeep+1 {
					t.Fatalf("%d bytes are held, want %d", bytes, upkeep+1)
				}
				out(t, b)
				if bytes, n := held(b); bytes != 0 || n != 0 {
					t.Fatalf("%d messages, %d bytes are held after all", n, bytes)
				}
			})
		})
	}
}

func TestCreateQueue_NoMoreThanThereMayBe(t *testing.T) {
	t.Parallel()
	b := New(Config{MaxQueues: 1})
	t.Cleanup(b.Close)
	create(t, b, queueName, nil)
	wantCode(t, b.CreateQueue("another", nil, nil), Unavailable)
	create(t, b, queueName, nil) // which is there
	if err := b.DeleteQueue(queueName); err != nil {
		t.Fatal(err)
	}
	create(t, b, "another", nil)
}

// Twins are one message to their receivers, and two to the queue.
func TestSend_TwinsAreDeletedOneByOne(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		id := send(t, b, Outgoing{Body: "x", Fate: Doubled})
		got := receive(t, b, queueName, 0)
		if len(got) != 2 || got[0].ID != id || got[1].ID != id {
			t.Fatalf("received %+v, want %s twice", got, id)
		}
		if err := b.Delete(queueName, got[0].Handle); err != nil {
			t.Fatal(err)
		}
		counts(t, b, queueName, "0", "1", "0")
		time.Sleep(30 * time.Second)
		if diff := cmp.Diff([]string{"x"}, bodies(receive(t, b, queueName, 0))); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The alarm of a message that is gone is left as it is: it must neither keep Close from returning nor spoil the next.
func TestAlarm_OneForNothingDoesNoHarm(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrVisibility: "5"}, func(t *testing.T, b *Broker) {
		began := time.Now()
		send(t, b, Outgoing{Body: "deleted before its timeout"})
		m := one(t, b, queueName, 0)
		send(t, b, Outgoing{Body: "later", DelaySeconds: new(7)})
		if err := b.Delete(queueName, m.Handle); err != nil {
			t.Fatal(err)
		}
		one(t, b, queueName, 20)
		elapsed(t, began, 7*time.Second)
	})
}

// firstOf receives one of several messages.
func firstOf(t *testing.T, b *Broker) Message {
	t.Helper()
	got, err := b.Receive(t.Context(), queueName, Poll{})
	if err != nil || len(got) != 1 {
		t.Fatalf("received %v, %v, want one", got, err)
	}
	return got[0]
}
