package engine_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// The log says why a call failed, in words of our own: everything that a provider words
// itself may quote a prompt or a key.
func TestRun_LogTellsTheCauseWithoutTheProvidersWords(t *testing.T) {
	t.Parallel()
	const canary = "sk-canary"
	quoted := errors.New(canary)
	for _, tc := range []struct {
		name, want string
		err        error
	}{
		{"none", "status=502", nil},
		{"text of net/http", "cause=other", fmt.Errorf("malformed HTTP response %q", canary)},
		{"deadline", "cause=timeout", fmt.Errorf("%w: %w", quoted, context.DeadlineExceeded)},
		{"cancelled", "cause=cancelled", fmt.Errorf("%w: %w", quoted, context.Canceled)},
		{"name", "cause=dns", &net.OpError{Op: "dial", Err: &net.DNSError{Err: canary, Name: canary}}},
		{"refused", "cause=dial", &net.OpError{Op: "dial", Err: fmt.Errorf("%w: %w", quoted, syscall.ECONNREFUSED)}},
		{"silent", "cause=timeout", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}},
		{"reset", "cause=read", &net.OpError{Op: "read", Err: quoted}},
		{"broken pipe", "cause=write", &net.OpError{Op: "write", Err: quoted}},
		{"certificate", "cause=tls", fmt.Errorf("%w: %w", quoted, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})},
		{"no TLS at all", "cause=tls", fmt.Errorf("%w: %w", quoted, tls.RecordHeaderError{Msg: canary})},
		{"cut off", "cause=cut_off", fmt.Errorf("%w: %w", quoted, io.ErrUnexpectedEOF)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			failure := provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 502, Kind: canary, Message: canary, Err: tc.err}
			bubble(t, fails(failure), func(t *testing.T, r *rig) {
				r.engine.Run(t.Context(), engine.Call{Request: request()})
				log := r.log.String()
				if !strings.Contains(log, "call_failed") || !strings.Contains(log, tc.want) || !strings.Contains(log, "class=retryable") {
					t.Errorf("the log does not say %s:\n%s", tc.want, log)
				}
				if strings.Contains(log, canary) || strings.Contains(log, "the prompt") {
					t.Errorf("the log quotes the provider:\n%s", log)
				}
			})
		})
	}
}

func TestRun_LogNamesAKnownKind(t *testing.T) {
	t.Parallel()
	failure := provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429, Kind: "ThrottlingException"}
	bubble(t, fails(failure), func(t *testing.T, r *rig) {
		r.engine.Run(t.Context(), engine.Call{Request: request()})
		if log := r.log.String(); !strings.Contains(log, "kind=ThrottlingException") {
			t.Errorf("the log does not name it:\n%s", log)
		}
	})
}

// A failure that is no provider's, as of a broken adapter, is not quoted either.
func TestRun_LogDoesNotQuoteAnUnknownFailure(t *testing.T) {
	t.Parallel()
	call := func(context.Context, provider.Request) (*provider.Response, error) {
		return nil, errors.New("sk-canary")
	}
	bubble(t, call, func(t *testing.T, r *rig) {
		r.engine.Run(t.Context(), engine.Call{Request: request()})
		if log := r.log.String(); !strings.Contains(log, "cause=other") || strings.Contains(log, "sk-canary") {
			t.Errorf("the log is\n%s", log)
		}
	})
}

// C9: a key of a wrong type, put there by hand, costs no call: they wait, and the log says which key to delete.
func TestRun_KeyOfAWrongTypeIsNamedAndHoldsTheCallUp(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		key := r.space.Target(target()).BG
		if err := r.client.Set(t.Context(), key, "oops", 0).Err(); err != nil {
			t.Fatal(err)
		}
		req := request()
		v := r.engine.Run(t.Context(), engine.Call{Request: req})
		if v.Action != engine.Release || v.Defer == nil || r.provider.calls.Load() != 0 {
			t.Errorf("verdict %+v after %d calls, want a release", v, r.provider.calls.Load())
		}
		if log := r.log.String(); !strings.Contains(log, "key="+key+" is=string want=zset") || strings.Count(log, "delete it") != 1 {
			t.Errorf("the log does not name it, or another:\n%s", log)
		}
		v.Defer(t.Context())
		time.Sleep(v.After)
		if err := r.client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
	})
}
