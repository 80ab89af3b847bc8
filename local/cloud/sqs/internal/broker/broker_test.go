package broker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const queueName = "calls"

// bubble runs a test in time of its own, on a broker with one queue.
func bubble(t *testing.T, attributes map[string]string, run func(t *testing.T, b *Broker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Region: "us-east-1", AccountID: "000000000000"})
		defer b.Close()
		create(t, b, queueName, attributes)
		run(t, b)
	})
}

// plain returns a broker with one queue, for tests in which time plays no part.
func plain(t *testing.T) *Broker {
	t.Helper()
	b := New(Config{Region: "us-east-1", AccountID: "000000000000"})
	t.Cleanup(b.Close)
	create(t, b, queueName, nil)
	return b
}

func create(t *testing.T, b *Broker, name string, attributes map[string]string) {
	t.Helper()
	if err := b.CreateQueue(name, attributes, nil); err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
}

func send(t *testing.T, b *Broker, o Outgoing) string {
	t.Helper()
	id, err := b.Send(queueName, "sender", o)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	return id
}

// receive asks once for up to 10 messages.
func receive(t *testing.T, b *Broker, name string, waitSeconds int) []Message {
	t.Helper()
	got, err := b.Receive(t.Context(), name, Poll{Max: new(10), WaitSeconds: &waitSeconds})
	if err != nil {
		t.Fatalf("receive from %s: %v", name, err)
	}
	return got
}

func one(t *testing.T, b *Broker, name string, waitSeconds int) Message {
	t.Helper()
	got := receive(t, b, name, waitSeconds)
	if len(got) != 1 {
		t.Fatalf("received %d messages from %s, want 1", len(got), name)
	}
	return got[0]
}

func bodies(messages []Message) []string {
	var all []string
	for _, m := range messages {
		all = append(all, m.Body)
	}
	return all
}

// counts checks how many messages are ready, in flight and delayed.
func counts(t *testing.T, b *Broker, name, ready, inFlight, delayed string) {
	t.Helper()
	got, err := b.QueueAttributes(name, []string{attrReady, attrInFlight, attrDelayed})
	if err != nil {
		t.Fatal(err)
	}
	if got[attrReady] != ready || got[attrInFlight] != inFlight || got[attrDelayed] != delayed {
		t.Fatalf("counts of %s: %v, want %s ready, %s in flight, %s delayed", name, got, ready, inFlight, delayed)
	}
}

func wantCode(t *testing.T, err error, want Code) {
	t.Helper()
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != want {
		t.Fatalf("error %v, want %s", err, want)
	}
}

// elapsed checks that exactly d of the bubble's time has passed since began.
func elapsed(t *testing.T, began time.Time, d time.Duration) {
	t.Helper()
	if got := time.Since(began); got != d {
		t.Fatalf("took %v, want %v", got, d)
	}
}

func TestCreateQueue_DeletedNameIsTakenForAMinute(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		if err := b.DeleteQueue(queueName); err != nil {
			t.Fatal(err)
		}
		time.Sleep(nameReuseAfter - time.Millisecond)
		wantCode(t, b.CreateQueue(queueName, nil, nil), QueueDeletedRecently)
		time.Sleep(time.Millisecond)
		create(t, b, queueName, nil)
	})
}

func TestPurge_AgainAfterAMinute(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "x"})
		if err := b.PurgeQueue(queueName); err != nil {
			t.Fatal(err)
		}
		counts(t, b, queueName, "0", "0", "0")
		time.Sleep(purgeEvery - time.Millisecond)
		wantCode(t, b.PurgeQueue(queueName), PurgeQueueInProgress)
		time.Sleep(time.Millisecond)
		if err := b.PurgeQueue(queueName); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPurge_TakesMessagesInFlightAndDelayed(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "in flight", GroupID: "g"})
		m := one(t, b, queueName, 0)
		send(t, b, Outgoing{Body: "delayed", GroupID: "g", DelaySeconds: new(60)})
		if err := b.PurgeQueue(queueName); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(queueName, m.Handle); err != nil {
			t.Fatalf("delete of a purged message: %v", err)
		}
		time.Sleep(time.Hour)
		counts(t, b, queueName, "0", "0", "0")
	})
}

func TestRetention_ExpiresWhereverTheMessageIs(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrRetention: "60", attrVisibility: "3600"}, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "in flight"})
		one(t, b, queueName, 0)
		send(t, b, Outgoing{Body: "delayed", DelaySeconds: new(900)})
		send(t, b, Outgoing{Body: "ready"})
		time.Sleep(60*time.Second - time.Millisecond)
		counts(t, b, queueName, "1", "1", "1")
		time.Sleep(time.Millisecond)
		counts(t, b, queueName, "0", "0", "0")
	})
}

func TestRetention_ShortenedAppliesToWhatIsThere(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "x"})
		time.Sleep(2 * time.Minute)
		if err := b.SetQueueAttributes(queueName, map[string]string{attrRetention: "60"}); err != nil {
			t.Fatal(err)
		}
		counts(t, b, queueName, "0", "0", "0")
	})
}

func TestSetQueueAttributes_AllOrNone(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		err := b.SetQueueAttributes(queueName, map[string]string{attrDelay: "5", attrVisibility: "-1"})
		wantCode(t, err, InvalidAttributeValue)
		if got, _ := b.QueueAttributes(queueName, []string{attrDelay}); got[attrDelay] != "0" {
			t.Fatalf("DelaySeconds = %s although the call failed", got[attrDelay])
		}
	})
}

func TestCreateQueue_FIFOIsRefused(t *testing.T) {
	t.Parallel()
	b := plain(t)
	wantCode(t, b.CreateQueue("other.fifo", nil, nil), UnsupportedOperation)
	wantCode(t, b.CreateQueue("other", map[string]string{attrFIFO: "true"}, nil), UnsupportedOperation)
}

func TestCreateQueue_KMSExcludesManagedEncryption(t *testing.T) {
	t.Parallel()
	b := plain(t)
	create(t, b, "kms", map[string]string{attrKMSKey: "alias/x"})
	got, err := b.QueueAttributes("kms", []string{attrKMSKey, attrManagedSSE, attrKMSReuse})
	if err != nil || got[attrKMSKey] != "alias/x" || got[attrManagedSSE] != "false" || got[attrKMSReuse] != "300" {
		t.Fatalf("got %v, %v", got, err)
	}
	wantCode(t, b.SetQueueAttributes("kms", map[string]string{attrManagedSSE: "true"}), InvalidAttributeName)
}

func TestClose_LaterCallsAreUnavailable(t *testing.T) {
	t.Parallel()
	b := plain(t)
	send(t, b, Outgoing{Body: "x", DelaySeconds: new(900)}) // a timer that Close must end
	b.Close()
	b.Close()
	_, err := b.Send(queueName, "", Outgoing{Body: "x"})
	wantCode(t, err, Unavailable)
	_, err = b.Receive(t.Context(), queueName, Poll{})
	wantCode(t, err, Unavailable)
}
