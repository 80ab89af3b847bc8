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
	// Before, when set, is called ahead of each trip; an error is the trip's end. It is
	// set before the client is used.
	Before func(ctx context.Context, cmds []redis.Cmder) error
	// After, when set, is called after each trip; an error replaces the trip's own, as
	// if the answer had been lost. It is set before the client is used.
	After func(ctx context.Context, cmds []redis.Cmder) error

	mu    sync.Mutex // guards trips
	trips [][]string
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
	if !slices.Contains(names, "hello") && !slices.Contains(names, "client") {
		h.mu.Lock()
		h.trips = append(h.trips, names)
		h.mu.Unlock()
	}
	if h.Before == nil {
		return nil
	}
	return h.Before(ctx, cmds)
}

func (h *Trips) leave(ctx context.Context, cmds []redis.Cmder) error {
	if h.After == nil {
		return nil
	}
	return h.After(ctx, cmds)
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
