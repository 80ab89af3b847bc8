package valkey

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Work is what a server has done since it started.
type Work struct {
	Commands int64 // those that scripts ran among them, and the scripts themselves
	Bytes    int64 // that came over its connections, and went
}

// ErrNotCounted is returned by [Server.Work] where the server counts nothing.
var ErrNotCounted = errors.New("miniredis does not count its work: valkey-server is needed")

// Work asks the server what it has done. The asking itself counts with the next answer: a few KB.
func (s *Server) Work(ctx context.Context) (Work, error) {
	if s.kind == inProcessKind {
		return Work{}, ErrNotCounted
	}
	c := redis.NewClient(&redis.Options{
		Addr: s.addr, Password: s.password, PoolSize: 1, DisableIdentity: true, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer c.Close() // its one connection ends with it
	info, err := c.Info(ctx, "stats", "commandstats").Result()
	if err != nil {
		return Work{}, fmt.Errorf("ask valkey for its work: %w", err)
	}
	return workOf(info)
}

// workOf reads the sections stats and commandstats of INFO.
func workOf(info string) (w Work, err error) {
	for _, name := range []string{"total_net_input_bytes", "total_net_output_bytes"} {
		text, _ := field(info, name)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return Work{}, fmt.Errorf("INFO: %s: %w", name, err)
		}
		w.Bytes += n
	}
	for line := range strings.Lines(info) {
		command, stats, ok := strings.Cut(line, ":calls=")
		if !ok || !strings.HasPrefix(command, "cmdstat_") || command == "cmdstat_info" {
			continue
		}
		text, _, _ := strings.Cut(stats, ",")
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return Work{}, fmt.Errorf("INFO: %s: %w", command, err)
		}
		w.Commands += n
	}
	return w, nil
}
