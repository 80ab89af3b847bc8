package broker

import (
	"testing"
	"time"
)

func TestChangeVisibility_CountsFromTheCall(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "x"})
		m := one(t, b, queueName, 0)
		time.Sleep(10 * time.Second)
		for _, seconds := range []int{60, 5} { // longer, then shorter than what is left
			if err := b.ChangeVisibility(queueName, m.Handle, seconds); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		one(t, b, queueName, 20)
		elapsed(t, began, 5*time.Second)
	})
}

func TestChangeVisibility_IsNotRemembered(t *testing.T) {
	t.Parallel()
	bubble(t, map[string]string{attrVisibility: "4"}, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "x"})
		m := one(t, b, queueName, 0)
		if err := b.ChangeVisibility(queueName, m.Handle, 15); err != nil {
			t.Fatal(err)
		}
		one(t, b, queueName, 20)
		began := time.Now()
		one(t, b, queueName, 20)
		elapsed(t, began, 4*time.Second)
	})
}

func TestChangeVisibility_ZeroWakesAPoll(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "x"})
		m := one(t, b, queueName, 0)
		p := startPoll(t.Context(), b, Poll{WaitSeconds: new(20)})
		began := time.Now()
		if err := b.ChangeVisibility(queueName, m.Handle, 0); err != nil {
			t.Fatal(err)
		}
		<-p.done
		if len(p.got) != 1 {
			t.Fatal("the poll got nothing")
		}
		elapsed(t, began, 0)
	})
}

func TestChangeVisibility_TwelveHoursInAllSinceTheReceive(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "x"})
		m := one(t, b, queueName, 0)
		if err := b.ChangeVisibility(queueName, m.Handle, MaxVisibility); err != nil {
			t.Fatalf("12 h at once: %v", err)
		}
		time.Sleep(10 * time.Second)
		wantCode(t, b.ChangeVisibility(queueName, m.Handle, MaxVisibility-9), InvalidParameterValue)
		if err := b.ChangeVisibility(queueName, m.Handle, MaxVisibility-10); err != nil {
			t.Fatalf("what is left of 12 h: %v", err)
		}
		wantCode(t, b.ChangeVisibility(queueName, m.Handle, MaxVisibility+1), InvalidParameterValue)
		wantCode(t, b.ChangeVisibility(queueName, m.Handle, -1), InvalidParameterValue)
	})
}

func TestChangeVisibility_AfterTheTimeoutIsNotInflight(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "x"})
		m := one(t, b, queueName, 0)
		time.Sleep(30 * time.Second)
		wantCode(t, b.ChangeVisibility(queueName, m.Handle, 10), MessageNotInflight)
	})
}

func TestHandle_OnlyTheLatestCounts(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		send(t, b, Outgoing{Body: "x"})
		stale := one(t, b, queueName, 0)
		time.Sleep(30 * time.Second)
		latest := one(t, b, queueName, 0)
		if err := b.Delete(queueName, stale.Handle); err != nil {
			t.Fatalf("stale delete: %v", err)
		}
		wantCode(t, b.ChangeVisibility(queueName, stale.Handle, 0), InvalidParameterValue)
		counts(t, b, queueName, "0", "1", "0")
		if err := b.Delete(queueName, latest.Handle); err != nil {
			t.Fatal(err)
		}
		counts(t, b, queueName, "0", "0", "0")
		if err := b.Delete(queueName, latest.Handle); err != nil {
			t.Fatalf("second delete: %v", err)
		}
		wantCode(t, b.ChangeVisibility(queueName, latest.Handle, 1), InvalidParameterValue)
	})
}

func TestHandle_OfTheSourceDoesNothingToADeadLetter(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "1")
		send(t, b, Outgoing{Body: "x"})
		m := one(t, b, queueName, 0)
		time.Sleep(30 * time.Second)
		receive(t, b, queueName, 0)
		if err := b.Delete(queueName, m.Handle); err != nil {
			t.Fatal(err)
		}
		wantCode(t, b.Delete("dead", m.Handle), ReceiptHandleIsInvalid)
		counts(t, b, "dead", "1", "0", "0")
	})
}

func TestHandle_OfAnotherQueueOrNoneIsInvalid(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		create(t, b, "other", nil)
		send(t, b, Outgoing{Body: "x"})
		m := one(t, b, queueName, 0)
		for _, handle := range []string{"", "!", "bm9uc2Vuc2U=", "YSBiIGM=", m.Handle + "x"} {
			wantCode(t, b.Delete(queueName, handle), ReceiptHandleIsInvalid)
		}
		wantCode(t, b.Delete("other", m.Handle), ReceiptHandleIsInvalid)
	})
}

func FuzzHandle(f *testing.F) {
	b := New(Config{})
	f.Cleanup(b.Close)
	if err := b.CreateQueue(queueName, nil, nil); err != nil {
		f.Fatal(err)
	}
	if _, err := b.Send(queueName, "", Outgoing{Body: "x"}); err != nil {
		f.Fatal(err)
	}
	got, err := b.Receive(f.Context(), queueName, Poll{})
	if err != nil || len(got) != 1 {
		f.Fatalf("got %v, %v", got, err)
	}
	for _, seed := range []string{"", "!", "YSBiIGM=", got[0].Handle, got[0].Handle[1:]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, handle string) {
		if handle == got[0].Handle {
			return
		}
		_ = b.Delete(queueName, handle)
		counts(t, b, queueName, "0", "1", "0")
	})
}
