package wiring

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/valkey"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// watched bounds every call of the state store and tells a watch how it went. A call is a command or a
// pipeline with all the repeats and redirections that the client library makes of it: of a store
// that hangs each of them would wait for its own time.
type watched struct {
	store  *telemetry.Store
	within time.Duration
}

var _ redis.Hook = watched{}

// DialHook implements redis.Hook. A dial that fails is told by the call that wanted it.
func (w watched) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (w watched) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return w.call(ctx, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements redis.Hook.
func (w watched) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return w.call(ctx, cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

func (w watched) call(ctx context.Context, cmds []redis.Cmder, do func(context.Context) error) error {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, w.within)
	defer cancel()
	err := do(bounded)
	cause := storeCause(err)
	for i := 0; cause == "" && i < len(cmds); i++ { // a pipeline returns the first error, and the one that matters may be another
		cause = storeCause(cmds[i].Err())
	}
	switch {
	case cause == "":
		w.store.Answered()
	case ctx.Err() == nil: // else its caller has given up, which tells nothing
		w.store.Failed(began, cause)
	}
	return err
}

// mixed is what is done about a reply that is another's (SECURITY-DESIGN KT6): it is counted and told, and no connection that was
// open then is used again.
func mixed(watch *telemetry.Store, trust *valkey.Trust) func(llmq.Request) {
	return func(r llmq.Request) {
		trust.Lose()
		watch.MixedUp(r.ID)
	}
}

// answers of a server that can't serve now. Any other answer shows that it is there.
var cantServe = map[string]string{ //nolint:gochecknoglobals // never changed
	"LOADING": "loading", "READONLY": "readonly", "CLUSTERDOWN": "cluster_down", "MASTERDOWN": "cluster_down", "TRYAGAIN": "moving", "MOVED ": "moving",
	"ASK ": "moving", "OOM": "out_of_memory", "BUSY": "busy", "MISCONF": "misconfigured", "NOREPLICAS": "no_replicas", "NOAUTH": "auth", "WRONGPASS": "auth",
	"max number of clients": "too_many_clients",
}

// storeCause names why a call of the store failed, by a word of a short list; "" where the store
// has answered.
func storeCause(err error) string {
	if err == nil || errors.Is(err, redis.Nil) {
		return ""
	}
	if answer := redis.Error(nil); errors.As(err, &answer) {
		for prefix, cause := range cantServe {
			if redis.HasErrorPrefix(err, prefix) {
				return cause
			}
		}
		return ""
	}
	var timed net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &timed) && timed.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	}
	return "other"
}
