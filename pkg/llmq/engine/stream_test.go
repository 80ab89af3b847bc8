package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/claims"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/results"
)

// speaker is a provider whose replies come in events: those that begin with a # tell nothing.
type speaker struct {
	fakeProvider
	play func(ctx context.Context, emit provider.Emit) error
	pace provider.Pace
}

func (p *speaker) Stream(ctx context.Context, req provider.Request, emit provider.Emit) (*provider.Response, error) {
	p.calls.Add(1)
	p.pace = req.Pace
	if err := p.play(ctx, emit); err != nil {
		return nil, err
	}
	return &provider.Response{Status: 200, ContentType: "text/event-stream", Usage: &provider.Usage{Input: 9, Output: 1}}, nil
}

func say(emit provider.Emit, events ...string) {
	for _, e := range events {
		emit([]byte(e), !strings.HasPrefix(e, "#"))
	}
}

func streamed() llmq.Request {
	req := request()
	req.Stream = true
	return req
}

// streamRig is a rig whose targets are served by scripts, one each.
func streamRig(t *testing.T, test func(t *testing.T, r *rig), plays ...*speaker) {
	t.Helper()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.wires = map[string]provider.Provider{}
		var targets []llmq.Target
		for i, s := range plays {
			x := target()
			x.Name, x.Provider = string(rune('a'+i)), string(rune('a'+i))
			r.wires[x.Provider] = s
			targets = append(targets, x)
		}
		r.policy.Attempts, r.policy.ThrottleAttempts = 1, 1
		r.chainOf(fallback.Rules{}, targets...)
		test(t, r)
	})
}

// heard is all that the state store keeps of a stream.
func (r *rig) heard(req llmq.Request) string {
	r.t.Helper()
	entries, err := r.client.XRange(r.t.Context(), r.space.Call(req.Tenant, req.RID()).Stream, "-", "+").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		all.WriteString(e.Values["p"].(string))
	}
	return all.String()
}

// A11: events are passed on while they come, and the result has all of them.
func TestStream_EventsArePassedOnWhileTheyCome(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	p := &speaker{}
	req := streamed()
	streamRig(t, func(t *testing.T, r *rig) {
		goOn = make(chan struct{})
		p.play = func(_ context.Context, emit provider.Emit) error {
			say(emit, "#role ", "a ")
			<-goOn
			say(emit, "b ", "c ")
			return nil
		}
		req.Deadline = request().Deadline
		done := make(chan engine.Verdict, 1)
		go func() { done <- r.engine.Run(t.Context(), engine.Call{Request: req}) }()
		synctest.Wait()
		if got := r.heard(req); got != "#role a " {
			t.Errorf("after the first content: %q", got)
		}
		close(goOn)
		wantVerdict(t, <-done, engine.Stored, "ok")
		if got := r.heard(req); got != "#role a b c " {
			t.Errorf("at the end: %q", got)
		}
		want := llmq.Reply{Status: 200, ContentType: "text/event-stream", Stream: true, Body: []byte("#role a b c ")}
		got := *r.stored(req).Reply
		got.Meta = llmq.Meta{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if p.pace != (provider.Pace{FirstContent: time.Minute, Stall: 20 * time.Second}) {
			t.Errorf("pace %+v", p.pace)
		}
	}, p)
}

// D13, DS50: until its first content a stream falls back as any call does; what it said by then nobody hears.
func TestStream_FallbackIsFreeUntilTheFirstContent(t *testing.T) {
	t.Parallel()
	bad := &speaker{play: func(_ context.Context, emit provider.Emit) error {
		say(emit, "#bad ")
		return &provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429}
	}}
	good := &speaker{play: func(_ context.Context, emit provider.Emit) error { say(emit, "#good ", "a "); return nil }}
	streamRig(t, func(t *testing.T, r *rig) {
		req := streamed()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if got := string(r.stored(req).Reply.Body); got != "#good a " || r.heard(req) != got {
			t.Errorf("result %q, heard %q", got, r.heard(req))
		}
		if m := r.stored(req).Reply.Meta; m.Target != "b" || !m.Fallback || m.Attempts != 2 {
			t.Errorf("meta %+v", m)
		}
	}, bad, good)
}

// D13, H24: from the first content on there is neither another try nor another target; the limiter is told all the same.
func TestStream_NothingFollowsTheFirstContent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fails provider.Error
		slot  capacity.Ending
	}{
		"throttle":  {provider.Error{Class: provider.Throttle, Code: llmq.CodeRateLimited, Status: 429, RetryAfter: time.Second}, capacity.Throttled},
		"broke off": {provider.Error{Class: provider.Retryable, Code: llmq.CodeProviderError, Status: 200}, capacity.Failed},
		"stall":     {provider.Error{Class: provider.Retryable, Code: llmq.CodeTimeout, Status: 200}, capacity.Failed},
		"too large": {provider.Error{Class: provider.TargetFatal, Code: llmq.CodeProviderError, Status: 200}, capacity.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := &speaker{play: func(_ context.Context, emit provider.Emit) error { say(emit, "a "); return &tc.fails }}
			never := &speaker{play: func(context.Context, provider.Emit) error { return nil }}
			streamRig(t, func(t *testing.T, r *rig) {
				r.policy.Attempts, r.policy.ThrottleAttempts = 5, 5
				r.engine = r.newEngine("w1", time.Second)
				req := streamed()
				r.engine.Run(t.Context(), engine.Call{Request: req})
				if e := r.wantStored(req, llmq.CodeStreamBroken); e.RetryAfter != 0 || e.Meta.Attempts != 1 {
					t.Errorf("error %+v", e)
				}
				if never.calls.Load() != 0 || bad.calls.Load() != 1 || r.heard(req) != "a " {
					t.Errorf("%d and %d calls, heard %q", bad.calls.Load(), never.calls.Load(), r.heard(req))
				}
				x := target()
				x.Name, x.Provider = "a", "a"
				got := batch(r, func(b *luascript.Batch) luascript.Pending[capacity.State] { return r.capacity.Peek(b, x) })
				if got.InUse != 0 || got.Ended[tc.slot] != 1 {
					t.Errorf("slots %+v, want one %s", got, tc.slot)
				}
			}, bad, never)
		})
	}
}

func TestStream_DeadlineAndCancelEndIt(t *testing.T) {
	t.Parallel()
	endless := func() *speaker {
		return &speaker{play: func(ctx context.Context, emit provider.Emit) error {
			for ctx.Err() == nil {
				say(emit, "a ")
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
			return &provider.Error{Class: provider.Retryable, Code: llmq.CodeTimeout, Err: ctx.Err()}
		}}
	}
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		streamRig(t, func(t *testing.T, r *rig) {
			req := streamed() // 90 s, more than an attempt of another kind may take
			began := time.Now()
			r.engine.Run(t.Context(), engine.Call{Request: req})
			r.wantStored(req, llmq.CodeTimeout)
			if took := time.Since(began); took < 89*time.Second || len(r.heard(req)) < 2*89 {
				t.Errorf("took %v, heard %d bytes", took, len(r.heard(req)))
			}
		}, endless())
	})
	t.Run("the process's limit", func(t *testing.T) {
		t.Parallel()
		streamRig(t, func(t *testing.T, r *rig) {
			req := streamed()
			v := r.engine.Run(t.Context(), engine.Call{Request: req, Limit: time.Now().Add(20 * time.Second)})
			r.wantStored(req, llmq.CodeStreamBroken)
			if v.Action != engine.Stored {
				t.Errorf("verdict %+v: nobody may run it anew", v)
			}
		}, endless())
	})
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		streamRig(t, func(t *testing.T, r *rig) {
			req := streamed()
			done := make(chan engine.Verdict, 1)
			go func() { done <- r.engine.Run(t.Context(), engine.Call{Request: req}) }()
			time.Sleep(5 * time.Second)
			batch(r, func(b *luascript.Batch) luascript.Pending[claims.Cancellation] {
				return r.claims.Cancel(b, req.Tenant, req.ID, []byte("{}"))
			})
			wantVerdict(t, <-done, engine.Stored, "cancelled")
			r.wantStored(req, llmq.CodeCancelled)
		}, endless())
	})
}

// A22, DS49: a claim with pieces is never run again.
func TestStream_TakeoverEndsWhatItsOwnerBegan(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]bool{"begun": true, "not begun": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &speaker{play: func(_ context.Context, emit provider.Emit) error { say(emit, "whole "); return nil }}
			streamRig(t, func(t *testing.T, r *rig) {
				req := streamed()
				dead := r.take(req, "dead/1")
				if begun {
					batch(r, func(b *luascript.Batch) luascript.Pending[claims.Hold] {
						return r.claims.Append(b, dead.Claim, 0, []byte("part "))
					})
				}
				time.Sleep(claims.Lease)
				v := r.engine.Run(t.Context(), engine.Call{Request: req})
				if begun {
					r.wantStored(req, llmq.CodeStreamBroken)
					wantVerdict(t, v, engine.Stored, "abandoned")
				} else if res := r.stored(req); res.Reply == nil || string(res.Reply.Body) != "whole " {
					t.Errorf("result %+v", res)
				}
				if calls := p.calls.Load() == 0; calls != begun {
					t.Errorf("%d calls", p.calls.Load())
				}
			}, p)
		})
	}
}

// While the state store is away the pieces wait, and none is lost or told twice.
func TestStream_PiecesOutlastAnOutage(t *testing.T) {
	t.Parallel()
	p := &speaker{}
	streamRig(t, func(t *testing.T, r *rig) {
		began := time.Now()
		r.trips.OnTrip(func(context.Context, []redis.Cmder) error {
			if since := time.Since(began); since > 5*time.Second && since < 25*time.Second {
				return errors.New("connection refused")
			}
			return nil
		})
		p.play = func(_ context.Context, emit provider.Emit) error {
			for range 30 {
				say(emit, "x ")
				time.Sleep(time.Second)
			}
			return nil
		}
		req := streamed()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if res := r.stored(req); res == nil || res.Reply == nil {
			t.Fatalf("stored %+v\n%s", res, r.log)
		}
		if want := strings.Repeat("x ", 30); string(r.stored(req).Reply.Body) != want || r.heard(req) != want {
			t.Errorf("heard %q", r.heard(req))
		}
	}, p)
}

// A reader follows a run that is far quicker than pieces are made, and gets every byte once.
func TestStream_ReaderGetsEveryByteOnce(t *testing.T) {
	t.Parallel()
	p := &speaker{}
	streamRig(t, func(t *testing.T, r *rig) {
		event := strings.Repeat("y", 999) + " "
		p.play = func(_ context.Context, emit provider.Emit) error {
			for range 500 {
				say(emit, event)
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		req := streamed()
		hub := results.NewHub(r.results)
		defer hub.Close()
		f, err := hub.Follow(t.Context(), req, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		done := make(chan engine.Verdict, 1)
		go func() { done <- r.engine.Run(t.Context(), engine.Call{Request: req}) }()
		var got strings.Builder
		reads := 0
		for {
			n, err := f.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got.Write(n.Piece)
			if n.Stored != nil {
				res, err := r.results.DecodeFrom(t.Context(), req, n.Stored, f.At())
				if err != nil {
					t.Fatal(err)
				}
				got.Write(res.Reply.Body)
				break
			}
			if n.Piece == nil {
				if err := f.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			reads++
		}
		<-done
		if got.String() != strings.Repeat(event, 500) {
			t.Errorf("got %d bytes", got.Len())
		}
		if reads < 10 || reads > 100 {
			t.Errorf("%d reads of half a second's stream", reads)
		}
	}, p)
}

func TestStream_ProviderWithoutStreams(t *testing.T) {
	t.Parallel()
	bubble(t, answers("{}", 0), func(t *testing.T, r *rig) {
		req := streamed()
		r.engine.Run(t.Context(), engine.Call{Request: req})
		r.wantStored(req, llmq.CodeUnsupported)
		if r.provider.calls.Load() != 0 {
			t.Error("it was called")
		}
	})
}
