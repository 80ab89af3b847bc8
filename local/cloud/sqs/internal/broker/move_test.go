package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// deadLetters puts n messages into the dead-letter queue by way of the test's queue.
func deadLetters(t *testing.T, b *Broker, n int) {
	t.Helper()
	for i := range n {
		send(t, b, Outgoing{Body: fmt.Sprint(i)})
	}
	receive(t, b, queueName, 0)
	time.Sleep(30 * time.Second)
	receive(t, b, queueName, 0)
	counts(t, b, "dead", fmt.Sprint(n), "0", "0")
}

func TestMove_BackToTheSourceAtTheFullRate(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "1")
		deadLetters(t, b, 5)
		began := time.Now()
		if _, err := b.StartMove(b.ARN("dead"), "", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Millisecond) // 500 a second
		counts(t, b, "dead", "0", "0", "0")
		for _, m := range receive(t, b, queueName, 0) {
			if m.Receives != 1 || m.SourceARN != "" || m.SentAt.Before(began) {
				t.Errorf("moved message %+v is not new", m)
			}
		}
		moves, err := b.Moves(b.ARN("dead"), 10)
		want := []Move{{Status: "COMPLETED", SourceARN: b.ARN("dead"), Moved: 5, ToMove: 5, StartedAt: began}}
		if diff := cmp.Diff(want, moves); diff != "" || err != nil {
			t.Fatal(diff, err)
		}
	})
}

func TestMove_KeepsToItsRateUntilCancelled(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "1")
		create(t, b, "elsewhere", nil)
		deadLetters(t, b, 10)
		handle, err := b.StartMove(b.ARN("dead"), b.ARN("elsewhere"), new(2))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1700 * time.Millisecond)
		counts(t, b, "elsewhere", "3", "0", "0")
		_, err = b.StartMove(b.ARN("dead"), "", nil)
		wantCode(t, err, InvalidParameterValue)
		if moved, err := b.CancelMove(handle); err != nil || moved != 3 {
			t.Fatalf("cancel: %d, %v", moved, err)
		}
		time.Sleep(time.Minute)
		counts(t, b, "elsewhere", "3", "0", "0")
		_, err = b.CancelMove(handle)
		wantCode(t, err, UnsupportedOperation)
		if _, err := b.StartMove(b.ARN("dead"), "", nil); err != nil {
			t.Fatalf("a new task after the cancelled one: %v", err)
		}
	})
}

func TestMove_FailsWhenItCannotTellWhereTo(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "1")
		if _, err := b.Send("dead", "", Outgoing{Body: "sent here by hand"}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.StartMove(b.ARN("dead"), "", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		moves, err := b.Moves(b.ARN("dead"), 1)
		if err != nil || moves[0].Status != "FAILED" || moves[0].Failure != "CouldNotDetermineMessageSource" {
			t.Fatalf("got %+v, %v", moves, err)
		}
		counts(t, b, "dead", "1", "0", "0")
	})
}

func TestMove_FailsWhenItsDestinationIsDeleted(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "1")
		create(t, b, "elsewhere", nil)
		deadLetters(t, b, 3)
		if _, err := b.StartMove(b.ARN("dead"), b.ARN("elsewhere"), new(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if err := b.DeleteQueue("elsewhere"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		moves, err := b.Moves(b.ARN("dead"), 1)
		if err != nil || moves[0].Status != "FAILED" || moves[0].Failure != "AWS.SimpleQueueService.NonExistentQueue" || moves[0].Moved != 1 {
			t.Fatalf("got %+v, %v", moves, err)
		}
		counts(t, b, "dead", "2", "0", "0")
	})
}

func TestMove_RemembersTheLastTen(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "1")
		for range 12 {
			if _, err := b.StartMove(b.ARN("dead"), "", nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		moves, err := b.Moves(b.ARN("dead"), 10)
		if err != nil || len(moves) != 10 || !moves[0].StartedAt.After(moves[9].StartedAt) {
			t.Fatalf("got %d tasks, %v, want the last 10, newest first", len(moves), err)
		}
	})
}

func TestMove_Refused(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, b *Broker) {
		redriveTo(t, b, "dead", "1")
		start := func(source, destination string, rate *int) error {
			_, err := b.StartMove(source, destination, rate)
			return err
		}
		wantCode(t, start(b.ARN("none"), "", nil), ResourceNotFound)
		wantCode(t, start(b.ARN("dead"), b.ARN("none"), nil), ResourceNotFound)
		wantCode(t, start(b.ARN(queueName), "", nil), InvalidParameterValue)
		wantCode(t, start(b.ARN("dead"), b.ARN("dead"), nil), InvalidParameterValue)
		wantCode(t, start(b.ARN("dead"), "", new(501)), InvalidParameterValue)
		_, err := b.Moves(b.ARN("dead"), 11)
		wantCode(t, err, InvalidParameterValue)
		_, err = b.CancelMove("nonsense")
		wantCode(t, err, InvalidParameterValue)
		handle, err := b.StartMove(b.ARN("dead"), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.DeleteQueue("dead"); err != nil {
			t.Fatal(err)
		}
		_, err = b.CancelMove(handle)
		wantCode(t, err, ResourceNotFound)
	})
}
