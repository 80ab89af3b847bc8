package luatest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Trips is a hook that notes every round trip of a client: a pipeline is one, whatever
// it holds. Where it is asked to, it calls back before a trip is made. It is safe for
// concurrent use.
type Trips struct {
	// Before and After are what OnTrip and OnAnswer set, for a literal: once the client is used they are guarded by mu.
	Before, After func(ctx context.Context, cmds []redis.Cmder) error

	mu    sync.Mutex
	trips [][]string // guarded by mu
}

// OnTrip has f called ahead of each trip from now on; an error is the trip's end. nil is nobody.
func (h *Trips) OnTrip(f func(ctx context.Context, cmds []redis.Cmder) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Before = f
}

// OnAnswer has f called after each trip from now on; an error replaces the trip's own, as if the answer had been lost. nil is nobody.
func (h *Trips) OnAnswer(f func(ctx context.Context, cmds []redis.Cmder) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.After = f
}

var _ redis.Hook = (*Trips)(nil)

// DialHook implements redis.Hook.
func (h *Trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (h *Trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.enter(ctx, []redis.Cmder{cmd}); err != nil {
			cmd.SetErr(err)
			return err
		}
		err := next(ctx, cmd)
		if lost := h.leave(ctx, []redis.Cmder{cmd}); lost != nil {
			cmd.SetErr(lost)
			return lost
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h *Trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := h.enter(ctx, cmds); err != nil {
			return fail(cmds, err)
		}
		err := next(ctx, cmds)
		if lost := h.leave(ctx, cmds); lost != nil {
			return fail(cmds, lost)
		}
		return err
	}
}

func fail(cmds []redis.Cmder, err error) error {
	for _, c := range cmds {
		c.SetErr(err)
	}
	return err
}

func (h *Trips) enter(ctx context.Context, cmds []redis.Cmder) error {
	names := make([]string, len(cmds))
	for i, c := range cmds {
		names[i] = c.Name()
	}
	// A connection's first words are no trip of the caller's.
	counts := !slices.Contains(names, "hello") && !slices.Contains(names, "client")
	h.mu.Lock()
	if counts {
		h.trips = append(h.trips, names)
	}
	before := h.Before
	h.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(ctx, cmds)
}

func (h *Trips) leave(ctx context.Context, cmds []redis.Cmder) error {
	h.mu.Lock()
	after := h.After
	h.mu.Unlock()
	if after == nil {
		return nil
	}
	return after(ctx, cmds)
}

// Seen lists the trips so far, each as the names of its commands, and forgets them.
func (h *Trips) Seen() [][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.trips
	h.trips = nil
	return seen
}

// IsScript reports whether cmd runs a script, and its declared keys and arguments.
func IsScript(cmd redis.Cmder) (keys, args []any, ok bool) {
	if name := cmd.Name(); name != "eval" && name != "evalsha" {
		return nil, nil, false
	}
	all := cmd.Args()
	var n int
	if _, err := fmt.Sscan(fmt.Sprint(all[2]), &n); err != nil {
		return nil, nil, false
	}
	return all[3 : 3+n], all[3+n:], true
}
