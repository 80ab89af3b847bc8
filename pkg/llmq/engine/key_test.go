package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// KT4, SEC05: a hop that the key may not use is skipped, with what the caller is told of the failure naming it; with no hop left
// nothing is called. Without a claim the same holds.
func TestRun_KeyBoundsTheChain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		allowed llmq.ModelSet
		calls   []string
		code    llmq.Code
		message string
	}{
		"one model":      {llmq.ModelSet{"cheap"}, []string{"cheap/a", "cheap/b"}, llmq.CodeProviderError, "cheap@a: m; skipped, for the key may not use it: dear@c"},
		"single targets": {llmq.ModelSet{"cheap@b", "dear@d"}, []string{"cheap/b"}, llmq.CodeProviderError, "cheap@b: m; skipped, for the key may not use it: cheap@a, dear@c"},
		"all":            {llmq.ModelSet{"dear", "cheap"}, []string{"cheap/a", "cheap/b", "dear/c"}, llmq.CodeProviderError, "cheap@a: m"},
		"none of it":     {llmq.ModelSet{"other"}, nil, llmq.CodeForbidden, `the key may use no target of model "cheap"`},
		"not asked":      {nil, nil, llmq.CodeForbidden, `the key may use no target of model "cheap"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				fatal := fails(provider.Error{Class: provider.TargetFatal, Code: llmq.CodeProviderError, Status: 404, Message: "m"})
				r.chainOf(fallback.Rules{Models: map[string][]fallback.Model{"cheap": {{Alias: "dear"}}}}, place("cheap", "a"), place("cheap", "b"), place("dear", "c"))
				s := r.stage(map[string]act{"cheap/a": fatal, "cheap/b": fatal, "dear/c": fatal})
				req := request()
				req.Model.Alias, req.KeyID, req.Allowed = "cheap", "0123456789", tc.allowed
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, map[bool]string{true: "failed", false: "abandoned"}[tc.calls != nil])
				if diff := cmp.Diff(tc.calls, s.ids); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				if e := r.wantStored(req, tc.code); e.Message != tc.message {
					t.Errorf("message %q, want %q", e.Message, tc.message)
				}
				s.ids = nil
				res, ran := r.engine.RunUnclaimed(t.Context(), req, anywhere)
				if diff := cmp.Diff(tc.calls, s.ids); diff != "" || !ran || res.Err == nil || res.Err.Code != tc.code || res.Err.Message != tc.message {
					t.Errorf("without a claim: %v, %v; calls (-want +got):\n%s", ran, res.Err, diff)
				}
			})
		})
	}
}

// KT3, SEC03: a request whose key was revoked ends without an attempt, for all who wait for it, once its claim is taken. What
// has ended before stays as it is; what another runs is left to it.
func TestRun_RefusedEndsWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		s := r.stage(map[string]act{"model-1": answers("{}", 0)})
		req := request()
		why := llmq.Errorf(llmq.CodeKeyRevoked, "the key was revoked")
		r.take(req, "other/1")
		if v := r.engine.Run(t.Context(), engine.Call{Request: req, Refused: why}); v.Action != engine.Release || v.Reason != "running_elsewhere" {
			t.Errorf("verdict %+v while another runs it", v)
		}
		time.Sleep(time.Minute) // its lease ends
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Refused: why}), engine.Stored, "abandoned")
		r.wantStored(req, llmq.CodeKeyRevoked)
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "already_stored")
		r.wantStored(req, llmq.CodeKeyRevoked)
		if len(s.ids) != 0 {
			t.Errorf("calls: %q", s.ids)
		}
		r.wantSlots(ended(capacity.Abandoned)) // the last run asked for one, and gave it back
	})
}

// A request without a key, a producer's, is bound by nothing but its model's rules.
func TestRun_WithoutAKeyTheChainIsWhole(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.chainOf(fallback.Rules{Models: map[string][]fallback.Model{"m": {{Alias: "n"}}}}, place("m", "a"), place("n", "c"))
		s := r.stage(map[string]act{"m/a": gone(), "n/c": answers("{}", 0)})
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: request()}), engine.Stored, "ok")
		if diff := cmp.Diff([]string{"m/a", "n/c"}, s.ids); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// DS15: a key that nobody could read until the deadline ends its request as expired only where nothing was paid for it: here the
// deadline is ahead on the store's clock, so that the claim can be taken.
func TestRun_ExpiredIsNoEndOfWhatWasTried(t *testing.T) {
	t.Parallel()
	why := llmq.Errorf(llmq.CodeExpired, "the deadline passed before the key could be looked at")
	for name, tt := range map[string]struct {
		before func(r *rig, req llmq.Request)
		code   llmq.Code
	}{
		"never begun":           {func(*rig, llmq.Request) {}, llmq.CodeExpired},
		"a worker died over it": {func(r *rig, req llmq.Request) { r.killed(req, 1) }, llmq.CodeTimeout},
		"an attempt had come of it": {func(r *rig, req llmq.Request) {
			taken := batch(r, func(b *luascript.Batch) luascript.Pending[claims.Take] {
				return r.claims.Take(b, req, claims.BodyHash(req), "before")
			})
			batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
				return r.claims.Defer(b, taken.Claim, 0, claims.Progress{Attempts: 1})
			})
		}, llmq.CodeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
				req := hour(request())
				tt.before(r, req)
				wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req, Refused: why}), engine.Stored, "abandoned")
				r.wantStored(req, tt.code)
			})
		})
	}
}
