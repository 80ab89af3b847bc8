package valkey

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// pollEvery is the pause between two looks at a server that is not ready yet.
	pollEvery = 10 * time.Millisecond
	// readyWithin bounds a start whose context has no deadline. It takes 0.1 s, or 2.1 s in
	// cluster mode, on an idle machine.
	readyWithin = 30 * time.Second
	// endsWithin is how long a server that can't bind its port is given to end.
	endsWithin = time.Second
)

var (
	// errPortTaken marks an attempt that another port may save.
	errPortTaken = errors.New("its port was taken by somebody else")
	errEnded     = errors.New("valkey-server ended")
)

// awaitReady waits until the server answers and, in cluster mode, owns all slots and says so. It
// returns the server's version.
func (p *process) awaitReady(ctx context.Context, addr, password string, cluster bool) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := p.poll(ctx, "listen", func() (bool, error) { return accepts(ctx, addr), nil }); err != nil {
		return "", err
	}
	c := redis.NewClient(&redis.Options{
		Addr:                     addr,
		Password:                 password,
		PoolSize:                 1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer c.Close() // its one connection ends with it
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		// Whoever took the port between our look and the server's bind refuses the password, and
		// then our server is about to end.
		select {
		case <-p.ended:
		case <-time.After(endsWithin):
		}
		return "", p.explain("ask for its version", err)
	}
	version, found := field(info, "valkey_version")
	if !found {
		return "", errors.New("ask for its version: INFO has no valkey_version")
	}
	if !cluster {
		return version, nil
	}
	if err := p.giveSlots(ctx, c); err != nil {
		return "", err
	}
	return version, p.poll(ctx, "trust its cluster", func() (bool, error) {
		info, err := c.ClusterInfo(ctx).Result()
		if err != nil {
			return false, fmt.Errorf("ask for the cluster's state: %w", err)
		}
		state, _ := field(info, "cluster_state")
		return state == "ok", nil
	})
}

// giveSlots gives the server all slots, unless it has them from the run before.
func (p *process) giveSlots(ctx context.Context, c *redis.Client) error {
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return p.explain("ask for the cluster's state", err)
	}
	if assigned, _ := field(info, "cluster_slots_assigned"); assigned == "16384" {
		return nil
	}
	if err := c.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		return p.explain("give it all slots", err)
	}
	return nil
}

// poll calls ready until it says yes, fails, the server ends or ctx does.
func (p *process) poll(ctx context.Context, what string, ready func() (bool, error)) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		ok, err := ready()
		if err != nil {
			return p.explain("wait for it to "+what, err)
		}
		// A server that ended is no server, even if something answers on its port.
		select {
		case <-p.ended:
			return p.explain("wait for it to "+what, errEnded)
		default:
		}
		if ok {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.ended:
			return p.explain("wait for it to "+what, errEnded)
		case <-ctx.Done():
			return fmt.Errorf("wait for it to %s: %w", what, ctx.Err())
		}
	}
}

// explain adds to err how the server ended, if it has, and what it said last.
func (p *process) explain(doing string, err error) error {
	select {
	case <-p.ended:
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
	said := p.log.String()
	if strings.Contains(said, "Address already in use") {
		err = errors.Join(errPortTaken, err)
	}
	return fmt.Errorf("%s: %w (%w); it said: %s", doing, err, p.exit, said)
}

// accepts says whether something listens on addr.
func accepts(ctx context.Context, addr string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

// field finds a line "name:value" in what INFO and CLUSTER INFO answer.
func field(info, name string) (value string, found bool) {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && key == name {
			return value, true
		}
	}
	return "", false
}
