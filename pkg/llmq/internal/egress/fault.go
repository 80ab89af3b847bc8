package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

var (
	errOrigin   = errors.New("not the origin of this provider")
	errTooLarge = errors.New("reply is too large")
	errEncoded  = errors.New("reply is compressed, which was not asked for")
	errFirst    = errors.New("no content came in time")
	errStall    = errors.New("the stream stood still")
	errRest     = errors.New("the exchange did not end behind a whole reply")
)

// Fault classifies what went wrong around an exchange rather than in it: a credential that could
// not be had, for instance. The end of ctx comes before every other reason; what remains has the
// class and code given.
func Fault(ctx context.Context, err error, class provider.Class, code llmq.Code) *provider.Error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		// No target should be tried any more, so the class is CallFatal. Why is the cause's to say.
		return &provider.Error{Class: provider.CallFatal, Code: llmq.CodeCancelled, Err: errors.Join(err, context.Cause(ctx))}
	case ctx.Err() != nil:
		// It may have been the attempt's deadline and not the call's; whoever set them knows.
		return &provider.Error{Class: provider.Retryable, Code: llmq.CodeTimeout, Message: "the provider did not answer in time", Err: err}
	}
	return &provider.Error{Class: class, Code: code, Err: err}
}

// cause is an error whose text is fit for a log: net/http's own quote what the other side sent.
type cause struct{ err error }

func (c cause) Error() string { return provider.CleanMessage(c.err.Error()) }
func (c cause) Unwrap() error { return c.err }

// fault classifies an exchange that gave no usable reply.
func fault(ctx context.Context, err error) *provider.Error {
	if e, ok := errors.AsType[*provider.Error](err); ok {
		return e // of a transport that was wrapped around ours: it knows what its errors mean
	}
	for _, f := range faults {
		if f.is(err) {
			e := Fault(ctx, cause{err}, f.class, f.code)
			if e.Message == "" && e.Code == f.code {
				e.Message = f.message
			}
			return e
		}
	}
	panic("egress: the last row of faults takes every error")
}

// faults is the table of [fault]; the first row that fits decides. A fault that the same request
// would meet again costs money at each try where the provider did its work, so only what can pass
// is retryable.
var faults = []struct {
	is      func(error) bool
	class   provider.Class
	code    llmq.Code
	message string // for the caller, who learns nothing of hosts and addresses
}{
	{is(errTooLarge), provider.TargetFatal, llmq.CodeProviderError, "the provider's reply is larger than 20 MiB"},
	{is(errEncoded), provider.TargetFatal, llmq.CodeProviderError, "the provider's reply is compressed"},
	{headerTooLarge, provider.TargetFatal, llmq.CodeProviderError, "the header of the provider's reply is larger than 64 KiB"},
	// Both are faults of the configuration, or of whoever answers for the host's name.
	{is(errAddress), provider.TargetFatal, llmq.CodeProviderError, "the provider's address is not one that may be called"},
	{is(errOrigin), provider.TargetFatal, llmq.CodeProviderError, "the request is not for this provider"},
	// A wrong certificate stays wrong for as long as anybody waits; other faults of a handshake pass.
	{badCertificate, provider.TargetFatal, llmq.CodeProviderError, "the provider's certificate is not valid"},
	// The connection stood and the provider was silent for all of ReadTimeout.
	{headerTimeout, provider.Retryable, llmq.CodeTimeout, "the provider did not answer in time"},
	// Name not found, refused, unreachable, reset, broken off in the middle, not HTTP. A name that
	// is not found is usually a wrong one, but resolvers say so in passing troubles as well.
	{func(error) bool { return true }, provider.Retryable, llmq.CodeProviderError, "the provider could not be reached, or broke off"},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func badCertificate(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// headerTooLarge goes by net/http's words, as it has no value for it; a test pins them.
func headerTooLarge(err error) bool {
	return strings.Contains(err.Error(), "server response headers exceeded")
}

// headerTimeout tells the wait for a reply from that for a connection, which is an *net.OpError or
// a failed handshake.
func headerTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout() && strings.Contains(err.Error(), "awaiting response headers")
}
