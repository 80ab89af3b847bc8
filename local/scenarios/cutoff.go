package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/llm-queue/llmq/local/cloud/relay"
	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// alone gives a program a link of its own to the state store. It is no cluster's client, which would dial what the cluster
// says.
func (t *trial) alone(ctx context.Context, w *world) (*relay.Relay, *client.Client, error) {
	link, err := relay.New(context.WithoutCancel(ctx), w.Valkey.Addr())
	if err != nil {
		return nil, nil, err
	}
	t.onClose(func(context.Context) error { link.Close(); return nil })
	environ, err := t.environOf(w, func(c *config.Config) { c.Valkey.Cluster = false })
	if err != nil {
		return nil, nil, err
	}
	host, port, err := net.SplitHostPort(link.Addr())
	if err != nil {
		return nil, nil, err
	}
	program, err := t.programOf(ctx, append(environ, "LLMQ_REDIS_HOST="+host, "LLMQ_REDIS_PORT="+port))
	return link, program, err
}

// reply is how a program's call ended.
type reply struct {
	id   string
	got  llmq.Reply
	err  error
	took time.Duration
}

// asking makes calls of a program side by side; the channel gets each end.
func asking(ctx context.Context, p *client.Client, lane llmq.Lane, ids []string) <-chan reply {
	ends := make(chan reply, len(ids))
	for _, id := range ids {
		go func() {
			r := request(id, lane, 2*time.Minute)
			r.OneOff = true // its id is nobody's but the call's, as of one that names none
			began := time.Now()
			got, err := p.Do(ctx, r)
			end := reply{id: id, err: err, took: time.Since(began)}
			if got != nil {
				end.got = *got
			}
			ends <- end
		}()
	}
	return ends
}

func s21(ctx context.Context, t *trial) error {
	const (
		slow    = 6 * time.Second // what was sent ends at its worker while its caller hears nothing
		waits   = 10 * time.Second
		replays = 5 * time.Second
	)
	w, err := t.Start(ctx, 0, learned) // what has a cap can't run uncounted for 45 s
	if err != nil {
		return err
	}
	link, program, err := t.alone(ctx, w)
	if err != nil {
		return err
	}
	if e := <-asking(ctx, program, llmq.LaneRT, []string{"warm"}); e.err != nil {
		return fmt.Errorf("warm: %w", e.err)
	}
	// From now on the store knows of the program, and after this time the program knows its part of what is in force.
	if err := t.Pause(ctx, capacity.Away+2*capacity.AttendEvery); err != nil {
		return err
	}

	if err := w.Fake.Program(server.Match{}, server.Reply{Hang: true, Times: 2}); err != nil {
		return err
	}
	given, giveUp := context.WithCancel(ctx)
	defer giveUp()
	cancelled := asking(given, program, llmq.LaneRT, rig.Numbered("cancelled", 2))
	if err := w.Fake.AwaitInFlight(ctx, "", 2); err != nil {
		return err
	}
	if err := w.Fake.Program(server.Match{}, server.Reply{Delay: slow, Times: 8}); err != nil {
		return err
	}
	rts, bgs := rig.Numbered("sent-rt", 4), rig.Numbered("sent-bg", 4)
	sentRT, sentBG := asking(ctx, program, llmq.LaneRT, rts), asking(ctx, program, llmq.LaneBG, bgs)
	if err := w.Fake.AwaitInFlight(ctx, "", 10); err != nil {
		return err
	}
	link.Refuse()
	link.Cut()
	down := time.Now()
	giveUp()
	for range 2 {
		e := <-cancelled
		t.Hold(errors.Is(e.err, context.Canceled) || errors.Is(e.err, llmq.CodeCancelled), "%s, cancelled, got %v", e.id, e.err)
	}
	fresh, later := rig.Numbered("new-rt", 10), rig.Numbered("new-bg", 4)
	freshEnds, laterEnds := asking(ctx, program, llmq.LaneRT, fresh), asking(ctx, program, llmq.LaneBG, later)
	direct := 0
	var first time.Duration
	for range fresh {
		e := <-freshEnds
		if e.err == nil && e.got.Meta.Direct {
			direct++
		} else {
			t.Hold(false, "%s got %v, direct %v", e.id, e.err, e.got.Meta.Direct)
		}
		if first == 0 || e.took < first {
			first = e.took
		}
	}
	t.Note("new_rt_calls_run_in_the_program", direct)
	t.Note("the_first_after_s", round(first.Seconds()))
	t.Hold(first >= waits-time.Second && first < waits+5*time.Second, "the first call ran in the program after %s, want about %s", first, waits)
	t.Hold(w.Fake.InFlight("") == 2, "%d calls are at the provider, want the 2 that nobody could cancel", w.Fake.InFlight(""))
	early := len(sentRT) + len(sentBG) + len(laterEnds)
	t.Hold(early == 0, "%d calls ended that could only wait", early)

	link.Resume()
	up := time.Now()
	t.Note("cut_off_s", round(up.Sub(down).Seconds()))
	stopping, stop := context.WithTimeout(ctx, 4*replays)
	defer stop()
	if err := w.Fake.AwaitInFlight(stopping, "", 0); err != nil {
		return fmt.Errorf("the cancelled calls run on: %w", err)
	}
	replayed := time.Since(up)
	t.Note("cancelled_ones_stopped_after_s", round(replayed.Seconds()))
	t.Hold(replayed < replays, "the cancelled calls were stopped %s after Valkey was back", replayed)
	queued := 0
	for _, some := range []struct {
		ends <-chan reply
		n    int
	}{{sentRT, len(rts)}, {sentBG, len(bgs)}, {laterEnds, len(later)}} {
		for range some.n {
			if e := <-some.ends; e.err == nil && !e.got.Meta.Direct {
				queued++
			} else {
				t.Hold(false, "%s got %v, direct %v", e.id, e.err, e.got.Meta.Direct)
			}
		}
	}
	t.Note("queued_calls_answered_by_workers", queued)

	ids := slices.Concat(rts, bgs, later)
	a, err := t.Account(ctx, w, ids)
	if err != nil {
		return err
	}
	t.onceEach(a, ids)
	seen := w.ByRequest()
	for _, id := range slices.Concat(fresh, rig.Numbered("cancelled", 2)) {
		t.Hold(len(seen[id]) == 1, "the provider saw %s %d times, want once", id, len(seen[id]))
	}
	return nil
}
