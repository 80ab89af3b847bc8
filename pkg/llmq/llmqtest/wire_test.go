package llmqtest

import (
	"bufio"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// wired is a client of a miniredis, over a wire.
func wired(t *testing.T, protocol int) (*Wire, *redis.Client) {
	t.Helper()
	w := NewWire(t, StartMiniredis(t).Addr())
	c := redis.NewClient(&redis.Options{
		Addr: w.Addr(), Protocol: protocol, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true, PipelinePoolSize: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() })
	return w, c
}

func commands(trips []Trip) [][]string {
	var got [][]string
	for _, t := range trips {
		got = append(got, t.Commands)
	}
	return got
}

func TestWire_CountsRoundTrips(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		w, c := wired(t, protocol)
		ctx := t.Context()
		if err := c.Set(ctx, "a", strings.Repeat("x\r\n", 100_000), 0).Err(); err != nil {
			t.Fatalf("set: %v", err)
		}
		pipe := c.Pipeline()
		pipe.Get(ctx, "a")
		pipe.HGetAll(ctx, "b")
		pipe.Get(ctx, "none")
		pipe.Incr(ctx, "a") // an error is an answer
		_, _ = pipe.Exec(ctx)
		if got := pipe.Len(); got != 0 {
			t.Errorf("%d commands were not sent", got)
		}
		sub := c.Subscribe(ctx, "ch")
		if _, err := sub.Receive(ctx); err != nil {
			t.Fatalf("subscribe: %v", err)
		}
		if err := c.Publish(ctx, "ch", "hello").Err(); err != nil {
			t.Fatalf("publish: %v", err)
		}
		if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
			t.Fatalf("message %v, %v", m, err)
		}
		if err := sub.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		want := [][]string{{"set"}, {"get", "hgetall", "get", "incr"}, {"subscribe"}, {"publish"}}
		if diff := cmp.Diff(want, commands(w.Trips())); diff != "" {
			t.Errorf("RESP %d (-want +got):\n%s", protocol, diff)
		}
		if w.Trips() != nil {
			t.Error("trips are told twice")
		}
	}
}

func TestWire_DelayHoldsReplies(t *testing.T) {
	t.Parallel()
	w, c := wired(t, 3)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("ping: %v", err)
	}
	w.Delay(time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Set(ctx, "a", 1, 0).Err(); err == nil {
		t.Error("answered at once")
	}
}

func TestWire_HeldMessagesPassAtOnce(t *testing.T) {
	t.Parallel()
	w, c := wired(t, 3)
	sub := c.Subscribe(t.Context(), "ch")
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	release := w.HoldMessages()
	for i := range 3 {
		if err := c.Publish(t.Context(), "ch", i).Err(); err != nil {
			t.Fatalf("publish: %v", err)
		}
	}
	if m, err := sub.ReceiveTimeout(t.Context(), 50*time.Millisecond); err == nil {
		t.Errorf("received %v while it was held", m)
	}
	release()
	for i := range 3 {
		if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != strconv.Itoa(i) {
			t.Errorf("message %d = %v, %v", i, m, err)
		}
	}
}

func TestWire_LostReplyIsOfACommandThatRan(t *testing.T) {
	t.Parallel()
	w, c := wired(t, 3)
	w.Lose("incr")
	if n, err := c.Incr(t.Context(), "a").Result(); err == nil {
		t.Errorf("incr = %d, want its answer lost", n)
	}
	if n, err := c.Incr(t.Context(), "a").Result(); err != nil || n != 2 {
		t.Errorf("the next = %d, %v; want 2", n, err)
	}
	if _, made := w.Conns(); made != 2 {
		t.Errorf("%d connections, want 2", made)
	}
}

func TestChain_IsTheLongestRowOfTripsThatDoNotOverlap(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	trips := []Trip{{Begun: at(0), Ended: at(10)}, {Begun: at(1), Ended: at(3)}, {Begun: at(2), Ended: at(4)}, {Begun: at(3), Ended: at(5)}, {Begun: at(10), Ended: at(11)}}
	if n := Chain(trips); n != 3 {
		t.Errorf("chain of %d, want 3", n)
	}
	if n := Chain(nil); n != 0 {
		t.Errorf("chain of nothing is %d", n)
	}
}

// What is no RESP ends the connection, whatever it is, and never the test binary.
func FuzzReadRESP(f *testing.F) {
	for _, s := range []string{"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "%1\r\n+a\r\n:1\r\n", ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "$-1\r\n", "_\r\n", "*-1\r\n", "$5\r\nab"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1000 {
			return
		}
		var raw []byte
		if _, err := readRESP(bufio.NewReader(strings.NewReader(string(in))), &raw); err == nil && !strings.HasPrefix(string(in), string(raw)) {
			t.Errorf("%q was read as %q", in, raw)
		}
	})
}
