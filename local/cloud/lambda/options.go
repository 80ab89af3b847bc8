package lambda

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Options configure a Host. Start from DefaultOptions.
type Options struct {
	// Region and AccountID appear in ARNs; Region also in AWS_REGION. Both are required.
	Region    string
	AccountID string

	// Freeze stops an instance's processes between invocations (SIGSTOP), as AWS does: no goroutine runs, no timer fires and
	// no socket is read until the next invocation, while the clock goes on.
	Freeze bool

	// InitTimeout bounds the time from a process's start to its first request for work. On AWS it is 10s. A process that
	// fails or exceeds it is started once more, and then init and invocation share the function's timeout.
	InitTimeout time.Duration

	// StopGrace is how long a process has between SIGTERM and SIGKILL when it is spun down or runs out of time, if it has
	// registered an extension (lambda.WithEnableSIGTERM does). On AWS it is 500ms. Without an extension it is 0, whatever
	// this says: there is no SIGTERM then.
	StopGrace time.Duration

	// IdleTimeout is when an instance that got no work is spun down. AWS says nothing; 5 to 7 minutes are usual. 0 is never.
	IdleTimeout time.Duration

	// MaxLifetime is when an instance is replaced, between two invocations, though it is in use. AWS does that after some
	// hours. 0 is never.
	MaxLifetime time.Duration

	// AccountConcurrency is how many invocations may run at once over all functions: 1000, or 10 in a new account. What
	// functions reserve comes out of it; 100 at least (or all, if it is less) must stay unreserved.
	AccountConcurrency int

	// ScaleUp is how many instances a function may start within 10 seconds, refilled evenly: 1000 on AWS. 0 is no limit.
	ScaleUp int

	// RequestRate limits a function's invocations per second to 10 times its reserved or, without one, the account's
	// concurrency. AWS does. It is off by default since a bench of one instance would only meet this limit.
	RequestRate bool

	// StreamRate bounds a streamed reply after its first 6 MB, in bytes per second: 2 MB/s on AWS. 0 is no limit.
	StreamRate int64

	// AsyncRetries are the waits before an asynchronous event is tried again after a function error: 1 and 2 minutes on AWS,
	// which also tries at most twice more.
	AsyncRetries []time.Duration

	// TempDir is where instances get their scratch folders (TMPDIR), each removed when its instance ends. A host that is
	// killed leaves them. Empty: os.TempDir.
	TempDir string

	// Output receives what functions write to stdout and stderr, one Write per line, each line led by
	// "[function instance] ". What a function wrote before its reply is there before the caller has the reply. It must be
	// safe for concurrent use, as os.Stderr is. nil discards.
	Output io.Writer

	// Logger receives the host's own events: starts, exits, timeouts; never payloads. nil discards.
	Logger *slog.Logger
}

// DefaultOptions returns the options that correspond to AWS's behaviour, for us-east-1 and a made-up account; only the
// request rate is not limited.
func DefaultOptions() Options {
	return Options{
		Region: "us-east-1", AccountID: "000000000000",
		Freeze: true, InitTimeout: 10 * time.Second, StopGrace: 500 * time.Millisecond, IdleTimeout: 6 * time.Minute,
		AccountConcurrency: 1000, ScaleUp: 1000, StreamRate: 2 << 20,
		AsyncRetries: []time.Duration{time.Minute, 2 * time.Minute},
	}
}

const (
	scaleWindow     = 10 * time.Second // of Options.ScaleUp
	ratePerInstance = 10               // invocations a second that AWS allows per unit of concurrency
	minUnreserved   = 100              // concurrency that AWS keeps for functions that reserve none
	maxAsyncRetries = 2
)

// validate fills what may be left out and reports every fault.
func (o *Options) validate() error {
	var faults []error
	check := func(ok bool, text string) {
		if !ok {
			faults = append(faults, errors.New(text))
		}
	}
	check(o.Region != "" && o.AccountID != "", "region and account id are required")
	check(o.InitTimeout > 0, "init timeout must be positive")
	check(o.StopGrace >= 0, "stop grace must not be negative")
	check(o.IdleTimeout >= 0 && o.MaxLifetime >= 0, "idle timeout and lifetime must not be negative")
	check(o.AccountConcurrency >= 1, "account concurrency must be at least 1")
	check(o.ScaleUp >= 0 && o.StreamRate >= 0, "scale-up and stream rate must not be negative")
	check(len(o.AsyncRetries) <= maxAsyncRetries, "there are at most 2 asynchronous retries")
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("lambda: options: %w", err)
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
