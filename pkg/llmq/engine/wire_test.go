package engine_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/capacity"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
	"github.com/llm-queue/llmq/pkg/llmq/fallback"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/bedrock"
	"github.com/llm-queue/llmq/pkg/llmq/provider/openai"
)

// answer is what a wire's other end says.
type answer struct {
	status int
	header map[string]string
	body   string
	after  time.Duration
	every  time.Duration // between two bytes of the body; 0 is all at once
}

// trickle is a body that comes a byte at a time.
type trickle struct {
	ctx   context.Context //nolint:containedctx // a body lives as long as its request
	every time.Duration
	rest  io.Reader
}

func (b trickle) Read(p []byte) (int, error) {
	select {
	case <-time.After(b.every):
		return b.rest.Read(p[:1])
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

// line is a provider's network without sockets: it plays its answers in order, the last one for ever, and notes
// when it was asked.
type line struct {
	answers []answer
	start   time.Time

	mu   sync.Mutex // guards at and sent
	at   []time.Duration
	sent []string
}

func (l *line) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	a := l.answers[min(len(l.at), len(l.answers)-1)]
	l.at, l.sent = append(l.at, time.Since(l.start)), append(l.sent, string(body))
	l.mu.Unlock()
	select {
	case <-time.After(a.after):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	h := http.Header{"Content-Type": {"application/json"}}
	for k, v := range a.header {
		h.Set(k, v)
	}
	var reply io.Reader = strings.NewReader(a.body)
	if a.every > 0 {
		reply = trickle{req.Context(), a.every, reply}
	}
	return &http.Response{StatusCode: a.status, Header: h, Body: io.NopCloser(reply), ContentLength: int64(len(a.body)), Request: req}, nil
}

func (l *line) calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.at)
}

// dial makes a provider of the given wire whose other end is l.
func dial(t testing.TB, w llmq.Wire, l *line) provider.Provider {
	t.Helper()
	n := provider.DefaultNetwork()
	n.Wrap = func(http.RoundTripper) http.RoundTripper { return l }
	var (
		p     provider.Provider
		err   error
		close func()
	)
	if w == llmq.WireConverse {
		var b *bedrock.Provider
		b, err = bedrock.New(bedrock.Config{Name: "b", Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""), Network: n})
		if err == nil {
			p, close = b, b.Close
		}
	} else {
		var o *openai.Provider
		o, err = openai.New(openai.Config{Name: "o", BaseURL: "https://llm.example.com/v1", APIKey: func(context.Context) (string, error) { return "key", nil }, Network: n})
		if err == nil {
			p, close = o, o.Close
		}
	}
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(close)
	return p
}

// wired makes the model m of one target for each line, in order: m@0, m@1 and so on.
func (r *rig) wired(w llmq.Wire, lines ...*line) []llmq.Target {
	r.t.Helper()
	r.wires = map[string]provider.Provider{}
	var targets []llmq.Target
	for i, l := range lines {
		name := fmt.Sprint(i)
		l.start = time.Now()
		r.wires[name] = dial(r.t, w, l)
		t := place("m", name)
		t.Provider, t.Wires = name, []llmq.Wire{w}
		targets = append(targets, t)
	}
	r.chainOf(fallback.Rules{}, targets...)
	return targets
}

// asked is a request on a wire.
func asked(w llmq.Wire) llmq.Request {
	req := request()
	req.Body = []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	if w == llmq.WireConverse {
		req.Op, req.Body = llmq.OpConverse, []byte(`{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`)
	}
	return req
}

func (r *rig) peek(t llmq.Target) capacity.State {
	r.t.Helper()
	return batch(r, func(b *luascript.Batch) luascript.Pending[capacity.State] { return r.capacity.Peek(b, t) })
}

func chatted() answer {
	return answer{status: 200, body: `{"choices":[{}],"output":{},"usage":{"prompt_tokens":12,"completion_tokens":38}}`}
}

func slowDown(header map[string]string) answer {
	return answer{status: 429, header: header, body: `{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"}}`}
}

// H14: every way to say how long to wait, from the header to the next attempt. DS31: no slot is held meanwhile.
func TestRun_WaitsAsLongAsItWasTold(t *testing.T) {
	t.Parallel()
	type header = map[string]string
	spent := func(reset string) header {
		return header{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": reset}
	}
	date := func(layout string, after time.Duration) func() header {
		return func() header { return header{"Retry-After": time.Now().UTC().Add(after).Format(layout)} }
	}
	is := func(h header) func() header { return func() header { return h } }
	const own = 0 // the curve's
	for name, tc := range map[string]struct {
		header func() header // in the bubble's time
		wait   time.Duration
	}{
		"seconds":        {is(header{"Retry-After": "7"}), 7 * time.Second},
		"fraction":       {is(header{"retry-after": "7.25"}), 7250 * time.Millisecond},
		"RFC 1123":       {date(http.TimeFormat, 7*time.Second), 7 * time.Second},
		"RFC 850":        {date("Monday, 02-Jan-06 15:04:05 GMT", 7*time.Second), 7 * time.Second},
		"asctime":        {date(time.ANSIC, 7*time.Second), 7 * time.Second},
		"ms":             {is(header{"retry-after-ms": "350", "Retry-After": "1"}), 350 * time.Millisecond},
		"past":           {date(http.TimeFormat, -time.Minute), own},
		"zero":           {is(header{"Retry-After": "0"}), own},
		"empty":          {is(header{"Retry-After": ""}), own},
		"negative":       {is(header{"Retry-After": "-5"}), own},
		"word":           {is(header{"Retry-After": "soon"}), own},
		"NaN":            {is(header{"Retry-After": "NaN"}), own},
		"huge":           {is(header{"Retry-After": "1e400"}), own},
		"a day":          {is(header{"Retry-After": "86400"}), 24 * time.Hour},
		"reset 6m":       {is(spent("6m0s")), 6 * time.Minute},
		"reset 17ms":     {is(spent("17ms")), 17 * time.Millisecond},
		"reset 2m59.56s": {is(spent("2m59.56s")), 179560 * time.Millisecond},
		"reset 60":       {is(spent("60")), time.Minute},
		"reset timestamp": {func() header {
			return header{"x-ratelimit-remaining-requests": "0", "anthropic-ratelimit-requests-reset": time.Now().UTC().Add(7 * time.Second).Format(time.RFC3339)}
		}, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, r *rig) {
				l := &line{answers: []answer{slowDown(tc.header()), chatted()}}
				target := r.wired(llmq.WireOpenAI, l)[0]
				req, start := asked(llmq.WireOpenAI), time.Now()
				req.Deadline = start.Add(time.Hour)
				done := make(chan engine.Verdict, 1)
				go func() { done <- r.engine.Run(t.Context(), engine.Call{Request: req}) }()
				time.Sleep(500 * time.Millisecond) // less than any wait
				if st := r.peek(target); st.InUse != 0 {
					t.Errorf("%d slots are held while it waits", st.InUse)
				}
				v := <-done
				switch {
				case tc.wait >= time.Hour: // beyond the deadline: told at once, with our own Retry-After
					wantVerdict(t, v, engine.Stored, "throttled")
					if e := r.wantStored(req, llmq.CodeRateLimited); e.RetryAfter != tc.wait || l.calls() != 1 {
						t.Errorf("stored %+v after %d calls", e, l.calls())
					}
				case tc.wait > r.policy.Curve.Max: // handed back for so long
					wantVerdict(t, v, engine.Release, "retry_later")
					if v.After < tc.wait || v.After > tc.wait+tc.wait/10 || l.calls() != 1 {
						t.Errorf("handed back for %v after %d calls", v.After, l.calls())
					}
				default:
					wantVerdict(t, v, engine.Stored, "ok")
					low, high := max(tc.wait, time.Second), max(tc.wait+1500*time.Millisecond, 2500*time.Millisecond)
					if gap := l.at[1] - l.at[0]; gap < low || gap > high+100*time.Millisecond || l.calls() != 2 {
						t.Errorf("%d calls, the second %v after the first, want %v to %v", l.calls(), gap, low, high)
					}
				}
			})
		})
	}
}

// H14: a wait that passes the deadline, or that nobody sleeps for, is the next target's turn where there is one.
func TestRun_LongWaitIsTheNextTargetsTurn(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		busy, spare := &line{answers: []answer{slowDown(map[string]string{"Retry-After": "86400"})}}, &line{answers: []answer{chatted()}}
		r.wired(llmq.WireOpenAI, busy, spare)
		req, start := asked(llmq.WireOpenAI), time.Now()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if m := r.stored(req).Reply.Meta; time.Since(start) != 0 || m.Target != "1" || m.Attempts != 2 || !m.Fallback {
			t.Errorf("after %v: %+v", time.Since(start), m)
		}
	})
}

// H15 a to d, DS34: what will not go away while we wait is tried once, and the limiter hears of load only.
func TestRun_QuotaIsNoThrottle(t *testing.T) {
	t.Parallel()
	coral := map[string]string{"x-amzn-errortype": "ThrottlingException:http://internal.example/coral/"}
	for name, tc := range map[string]struct {
		wire     llmq.Wire
		refusal  answer
		throttle bool
	}{
		"a": {llmq.WireOpenAI, answer{status: 429, body: `{"error":{"message":"out of credit","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`}, false},
		"b": {llmq.WireOpenAI, answer{status: 429, body: `{"error":{"message":"out of credit","type":"insufficient_quota","param":null,"code":null}}`}, false},
		"c": {llmq.WireConverse, answer{status: 429, header: coral, body: `{"message":"Too many tokens per day, please wait before trying again."}`}, false},
		"d": {llmq.WireConverse, answer{status: 429, header: coral, body: `{"message":"Too many tokens, please wait before trying again."}`}, true},
	} {
		for _, spares := range []int{0, 1} {
			t.Run(fmt.Sprint(name, " with ", spares, " more targets"), func(t *testing.T) {
				t.Parallel()
				bubble(t, nil, func(t *testing.T, r *rig) {
					lines := []*line{{answers: []answer{tc.refusal}}, {answers: []answer{chatted()}}}
					first := r.wired(tc.wire, lines[:1+spares]...)[0]
					req, start := asked(tc.wire), time.Now()
					v := r.engine.Run(t.Context(), engine.Call{Request: req})
					tries, code, ending := 1, llmq.CodeInsufficientQuota, capacity.Failed
					if tc.throttle {
						tries, code, ending = 6, llmq.CodeRateLimited, capacity.Throttled
					}
					if lines[0].calls() != tries || !tc.throttle && time.Since(start) != 0 {
						t.Errorf("%d tries in %v, want %d", lines[0].calls(), time.Since(start), tries)
					}
					if spares == 0 {
						if e := r.wantStored(req, code); e.Code.Info().Status != 429 || e.Meta.Attempts != tries {
							t.Errorf("stored %+v", e)
						}
					} else if wantVerdict(t, v, engine.Stored, "ok"); lines[1].calls() != 1 || r.stored(req).Reply.Meta.Target != "1" {
						t.Errorf("the next target was called %d times", lines[1].calls())
					}
					st := r.peek(first)
					if diff := cmp.Diff(map[capacity.Ending]int{ending: tries}, st.Ended); diff != "" || st.Breaker != capacity.BreakerClosed {
						t.Errorf("breaker %s, endings (-want +got):\n%s", st.Breaker, diff)
					}
				})
			})
		}
	}
}

// H18 and its control: the same status and the same name, and only one of them is the target's fault.
func TestRun_OnDemandThroughputIsTheTargetsFault(t *testing.T) {
	t.Parallel()
	invalid := func(message string) answer {
		return answer{status: 400, header: map[string]string{"x-amzn-ErrorType": "ValidationException"}, body: `{"message":"` + message + `"}`}
	}
	t.Run("bare id", func(t *testing.T) {
		t.Parallel()
		bubble(t, nil, func(t *testing.T, r *rig) {
			bare := &line{answers: []answer{invalid("Invocation of model ID example.model-v1:0 with on-demand throughput isn\u2019t supported. Use an inference profile.")}}
			profile := &line{answers: []answer{{status: 200, body: `{"output":{}}`}}}
			first := r.wired(llmq.WireConverse, bare, profile)[0]
			req := asked(llmq.WireConverse)
			wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
			if m := r.stored(req).Reply.Meta; bare.calls() != 1 || profile.calls() != 1 || !m.Fallback || m.Target != "1" || m.Attempts != 2 {
				t.Errorf("%d and %d calls, meta %+v", bare.calls(), profile.calls(), m)
			}
			if st := r.peek(first); st.Breaker != capacity.BreakerClosed || st.InUse != 0 {
				t.Errorf("%+v", st)
			}
		})
	})
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		bubble(t, nil, func(t *testing.T, r *rig) {
			const said = "messages.0.content.0: unknown field foo"
			wrong, spare := &line{answers: []answer{invalid(said)}}, &line{answers: []answer{{status: 200, body: `{"output":{}}`}}}
			first := r.wired(llmq.WireConverse, wrong, spare)[0]
			req := asked(llmq.WireConverse)
			wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "failed")
			e := r.wantStored(req, llmq.CodeProviderRejected)
			if wrong.calls() != 1 || spare.calls() != 0 || e.Meta.Fallback || !strings.Contains(e.Message, said) || e.Code.Info().Status != 400 {
				t.Errorf("%d and %d calls, stored %+v", wrong.calls(), spare.calls(), e)
			}
			if st := r.peek(first); st.Breaker != capacity.BreakerClosed {
				t.Errorf("%+v", st)
			}
		})
	})
}

// C13: what the model's configuration sends as the most output is what the call reserves.
func TestRun_SendsWhatItReserves(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		l := &line{answers: []answer{chatted()}, start: time.Now()}
		r.wires = map[string]provider.Provider{"o": dial(t, llmq.WireOpenAI, l)}
		target := place("m", "t")
		target.Provider, target.Tokens = "o", llmq.TokenRule{DefaultMaxTokens: 390}
		target.Limits.Rates = llmq.Rates{TPM: 1000, Fixed: true}
		r.chainOf(fallback.Rules{}, target)
		l.answers[0].after = 2 * time.Second
		done := make(chan engine.Verdict, 1)
		go func() { done <- r.engine.Run(t.Context(), engine.Call{Request: asked(llmq.WireOpenAI)}) }()
		time.Sleep(time.Second)
		if st := r.peek(target); st.TokensUsed != 391 { // and "hi", two characters
			t.Errorf("%d tokens are reserved, want 391", st.TokensUsed)
		}
		wantVerdict(t, <-done, engine.Stored, "ok")
		if want := `{"max_tokens":390,"model":"m/t","messages":[{"role":"user","content":"hi"}]}`; l.sent[0] != want {
			t.Errorf("sent %s, want %s", l.sent[0], want)
		}
		if st := r.peek(target); st.TokensUsed != 50 {
			t.Errorf("%d tokens are used, want 50", st.TokensUsed)
		}
	})
}
