package wiring

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// redisLog takes what the client library of the state store says by itself, which would else be plain lines on the standard
// error. It tells of connections and addresses, never of what a command carries. At debug level: that the store is lost, and why,
// is said once by [telemetry.Store].
type redisLog struct{ log *slog.Logger }

// Printf is the library's Logging.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "state_store_client", "said", fmt.Sprintf(format, v...))
	}
}

// logRedis sets the library's logger, which is one for the whole process and may be swapped while connections are open. So only
// [Start] does it, which a process calls once, and not [New], of which there may be many.
func logRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }
