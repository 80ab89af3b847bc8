package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/quota"
	"github.com/llm-queue/llmq/local/fakellm/server"
)

func setRules(t *testing.T, s *server.Server, rules ...server.Rule) {
	t.Helper()
	if err := s.SetRules(rules...); err != nil {
		t.Fatalf("set rules: %v", err)
	}
}

func onePhase(p server.Phase) server.Rule { return server.Rule{Phases: []server.Phase{p}} }

func converse(t *testing.T, s http.Handler, model, region, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := request(t.Context(), http.MethodPost, conversePath(model), body)
	r.Header.Set("Authorization", sigV4Header(accessKey, region, "bedrock"))
	return do(s, r)
}

// let counts the calls that come through until one is throttled, one after the other.
func let(t *testing.T, s http.Handler, model string) (n int, refused *httptest.ResponseRecorder) {
	t.Helper()
	for ; n < 1000; n++ {
		if refused = chat(t, s, model); refused.Code == http.StatusTooManyRequests {
			return n, refused
		}
	}
	return n, nil
}

func TestRule_ConcurrencyQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setRules(t, s, onePhase(server.Phase{Limits: quota.Limits{Concurrency: 5}, Latency: server.Latency{Mean: time.Second}}))
		var wg sync.WaitGroup
		for range 40 { // four at a time, a quarter of a second apart
			for range 4 {
				wg.Go(func() { converse(t, s, "m", "us-east-1", converseBody) })
			}
			time.Sleep(250 * time.Millisecond) // bubble time
		}
		wg.Wait()
		g := s.Stats().Models["m"]
		// Ten seconds with five at a time, and the last five.
		if g.Peak != 5 || g.Good != g.Admitted || g.Good < 45 || g.Good > 55 || g.Throttled != 160-g.Good {
			t.Errorf("counted %+v", g)
		}
		throttled := 0
		for _, c := range s.Calls() {
			if c.ThrottledBy == quota.Concurrency && c.Status == 429 {
				throttled++
			}
		}
		if throttled != g.Throttled {
			t.Errorf("%d of the log were throttled by concurrency, %d counted", throttled, g.Throttled)
		}
	})
}

// Bedrock reserves input and max_tokens, and settles with the output's burndown.
func TestRule_BedrockTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setRules(t, s, onePhase(server.Phase{
			Limits:       quota.Limits{Tokens: quota.Rate{PerMinute: 60_000}, Burndown: 5},
			Latency:      server.Latency{Mean: time.Second},
			OutputTokens: server.Spread{Mean: 100},
		}))
		body := `{"inferenceConfig":{"maxTokens":20000},` + converseBody[1:]
		codes := make(chan int, 4)
		for range 4 {
			go func() { codes <- converse(t, s, "m", "r", body).Code }()
		}
		counts := map[int]int{}
		for range 4 {
			counts[<-codes]++
		}
		if diff := cmp.Diff(map[int]int{200: 2, 429: 2}, counts); diff != "" { // 3 x 20,001 are too much
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
		g := s.Stats().Models["m"]
		if g.ChargedTokens != 2*(1+5*100) || g.OutputTokens != 200 {
			t.Errorf("charged %d for %d tokens of output, want 1,002", g.ChargedTokens, g.OutputTokens)
		}
		// 1,002 are gone, and a second has brought 1,000.
		if q := s.Quotas(); len(q) != 1 || q[0].Model != "m" || q[0].Region != "r" || q[0].Tokens.Remaining != 59_998 {
			t.Errorf("quotas %+v", q)
		}
	})
}

func TestRule_QuotasAreApart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		per  []server.Dimension
		want int // of 2 models x 2 regions with two calls each, of which one is let in
	}{
		"model and region": {nil, 4},
		"model":            {[]server.Dimension{server.ByModel}, 2},
		"region":           {[]server.Dimension{server.ByRegion}, 2},
		"key":              {[]server.Dimension{server.ByKey}, 1},
		"all together":     {[]server.Dimension{}, 1},
	} {
		s := newServer(t, nil)
		setRules(t, s, server.Rule{Per: tc.per, Phases: []server.Phase{{Limits: quota.Limits{Requests: quota.Rate{PerMinute: 1}}}}})
		for _, model := range []string{"a", "b"} {
			for _, region := range []string{"us-east-1", "eu-west-3"} {
				converse(t, s, model, region, converseBody)
				converse(t, s, model, region, converseBody)
			}
		}
		if got := s.Stats().All.Admitted; got != tc.want {
			t.Errorf("%s: %d let in, want %d", name, got, tc.want)
		}
	}
}

func TestRule_FirstThatFits(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	down := server.Phase{Faults: []server.Fault{{Share: 1, Reply: server.Reply{Status: 503}}}}
	setRules(t, s,
		server.Rule{Match: server.Match{Model: "a", Key: accessKey}, Phases: []server.Phase{{}}},
		server.Rule{Match: server.Match{Model: "a"}, Phases: []server.Phase{down}},
	)
	if by, other, none := converse(t, s, "a", "r", converseBody).Code, chat(t, s, "a").Code, chat(t, s, "b").Code; by != 200 || other != 503 || none != 200 {
		t.Errorf("statuses %d, %d, %d, want 200, 503, 200", by, other, none)
	}
}

func TestRule_PhasesStepRampAndLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // at a full minute
		s := newServer(t, nil)
		limits := quota.Limits{Requests: quota.Rate{PerMinute: 100, Window: quota.Minute}}
		down := server.Phase{For: time.Minute, Faults: []server.Fault{{Share: 1, Reply: server.Reply{Status: 429}}}}
		setRules(t, s, server.Rule{Loop: true, Phases: []server.Phase{
			{For: time.Minute, Limits: limits},
			{For: time.Minute, Limits: limits, From: 0.5, To: 0.5},
			down,
			{For: 2 * time.Minute, Limits: limits, From: 0, To: 1},
		}})
		var got []int
		for range 6 {
			n, _ := let(t, s, "m")
			got = append(got, n)
			time.Sleep(time.Minute) // bubble time
		}
		// The recovery has hardly begun in its first minute, and is half way in its second.
		if diff := cmp.Diff([]int{100, 50, 0, 0, 50, 100}, got); diff != "" {
			t.Errorf("calls let in each minute (-want +got):\n%s", diff)
		}
	})
}

func TestRule_RandomThrottles(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) (codes []int) {
		s := newServer(t, nil)
		setRules(t, s, server.Rule{Seed: seed, Phases: []server.Phase{{ThrottleShare: 0.3}}})
		for range 500 {
			codes = append(codes, chat(t, s, "m").Code)
		}
		if got := s.Stats().All.Throttled; got < 100 || got > 200 {
			t.Errorf("%d of 500 throttled, want about 150", got)
		}
		return codes
	}
	if !cmp.Equal(run(1), run(1)) {
		t.Error("one seed gave two sequences")
	}
	if cmp.Equal(run(1), run(2)) {
		t.Error("two seeds gave one sequence")
	}
}

func TestRule_ContextTokens(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	setRules(t, s, onePhase(server.Phase{ContextTokens: 10}))
	got := post(t, s, "/v1/chat/completions", `{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"x"}]}`)
	checkOpenAIError(t, got.Code, got.Body.Bytes(), 400, "invalid_request_error", "messages", "context_length_exceeded", "you requested 11 tokens")
	checkException(t, post(t, s, conversePath("m"), `{"inferenceConfig":{"maxTokens":10},`+converseBody[1:]), 400, "ValidationException", "Input is too long")
	if g := s.Stats().All; g.Calls != 0 || chat(t, s, "m").Code != 200 {
		t.Errorf("counted %+v", g)
	}
}

// Replacing the rules in the middle of calls lets no more in than the new quota.
func TestRule_ReplacedWhileCallsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		rule := func(n int) server.Rule {
			return onePhase(server.Phase{Limits: quota.Limits{Concurrency: n}, Latency: server.Latency{Mean: time.Minute}})
		}
		setRules(t, s, rule(4))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { chat(t, s, "m") })
		}
		synctest.Wait()
		setRules(t, s, rule(2))
		if got := chat(t, s, "m").Code; got != 429 {
			t.Errorf("status %d with 4 in flight of 2", got)
		}
		wg.Wait()
		if q := s.Quotas(); len(q) != 1 || q[0].InFlight != 0 || q[0].Limits.Concurrency != 2 {
			t.Errorf("quotas %+v", q)
		}
	})
}

// A new program starts with all that it gives, whatever the one before had counted; a call that runs
// over from that one gives nothing back to it and takes nothing.
func TestRule_NewRulesStartAfresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, window := range map[string]quota.Window{"bucket": quota.Bucket, "minute": quota.Minute, "sliding": quota.Sliding} {
			s := newServer(t, nil)
			limits := func(tpm float64) server.Phase {
				return server.Phase{
					Limits:  quota.Limits{Requests: quota.Rate{PerMinute: 2, Window: window}, Tokens: quota.Rate{PerMinute: tpm, Window: window}, Burndown: 5},
					Latency: server.Latency{Mean: time.Second},
				}
			}
			setRules(t, s, onePhase(limits(30)))
			running := make(chan int)
			go func() {
				running <- converse(t, s, "m", "r", `{"inferenceConfig":{"maxTokens":20},`+converseBody[1:]).Code
			}()
			synctest.Wait()
			setRules(t, s, onePhase(limits(40)))
			if got := <-running; got != 200 {
				t.Errorf("%s: status %d of the call in flight", name, got)
			}
			if q := s.Quotas(); len(q) != 1 || q[0].InFlight != 0 || q[0].Tokens.Remaining != 40 || q[0].Requests.Remaining != 2 {
				t.Errorf("%s: %+v, want all that the new rule gives", name, q)
			}
			converse(t, s, "m", "r", converseBody)
			if err := s.Load(server.Program{Rules: []server.Rule{onePhase(server.Phase{Limits: quota.Limits{Requests: quota.Rate{PerMinute: 2, Window: window}}})}}); err != nil {
				t.Fatal(err)
			}
			for i, want := range []int{200, 200, 429} {
				if got := converse(t, s, "m", "r", converseBody).Code; got != want {
					t.Errorf("%s: status %d of call %d, want %d", name, got, i+1, want)
				}
			}
		}
	})
}

func TestRule_ThrottledCallTakesNoReply(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	setRules(t, s, onePhase(server.Phase{Limits: quota.Limits{Requests: quota.Rate{PerMinute: 1}}}))
	text := "mine"
	chat(t, s, "m")
	program(t, s, server.Match{}, server.Reply{Text: &text}, server.Reply{Status: 500})
	if got := chat(t, s, "m").Code; got != 429 {
		t.Errorf("status %d, want 429", got)
	}
	s2 := newServer(t, nil)
	setRules(t, s2, onePhase(server.Phase{Limits: quota.Limits{Requests: quota.Rate{PerMinute: 1}}}))
	chat(t, s2, "m")
	program(t, s2, server.Match{}, server.Reply{Status: 500})
	if got := chat(t, s2, "m").Code; got != 500 {
		t.Errorf("status %d, want the error, which is sent at the door", got)
	}
}

// An aborted call gives its slot back and is charged for what had been said.
func TestRule_AbortedCallIsSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setRules(t, s, onePhase(server.Phase{
			Limits:       quota.Limits{Concurrency: 1, Tokens: quota.Rate{PerMinute: 1e6}, Burndown: 5},
			Latency:      server.Latency{Mean: time.Second, Speed: 10},
			OutputTokens: server.Spread{Mean: 1000},
		}))
		for _, path := range []string{conversePath("m"), conversePath("m") + "-stream"} {
			before := s.Stats().All.ChargedTokens
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			do(s, request(ctx, http.MethodPost, path, converseBody))
			cancel()
			calls := s.Calls()
			c := calls[len(calls)-1]
			if c.Outcome != server.Aborted || s.InFlight("") != 0 || c.OutputTokens < 19 || c.OutputTokens > 20 {
				t.Errorf("%s: %s, %d tokens said", path, c.Outcome, c.OutputTokens)
			}
			if charged := s.Stats().All.ChargedTokens - before; charged != int64(1+5*c.OutputTokens) {
				t.Errorf("%s: charged %d", path, charged)
			}
		}
	})
}

func TestRule_Refused(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	phase := func(p server.Phase) server.Rule { return onePhase(p) }
	for want, r := range map[string]server.Rule{
		"phases":                               {},
		"per[0]":                               {Per: []server.Dimension{"hour"}, Phases: []server.Phase{{}}},
		"phases[0].for_ms":                     {Loop: true, Phases: []server.Phase{{}}},
		"phases[0].scale":                      phase(server.Phase{From: 0, To: 1}),
		"phases[0]: concurrency":               phase(server.Phase{Limits: quota.Limits{Concurrency: -1}}),
		"phases[0].throttle_share":             phase(server.Phase{ThrottleShare: 2}),
		"phases[0].faults: the shares":         phase(server.Phase{Faults: []server.Fault{{Share: 0.6}, {Share: 0.6}}}),
		"phases[0].faults[0].fail":             phase(server.Phase{Faults: []server.Fault{{Share: 1, Reply: server.Reply{Fail: "odd"}}}}),
		"phases[0].retry_after.form":           phase(server.Phase{RetryAfter: server.RetryAfter{Form: "odd"}}),
		"phases[0].retry_after.value":          phase(server.Phase{RetryAfter: server.RetryAfter{Form: "date", Value: "a\r\nb"}}),
		"phases[0].latency.speed":              phase(server.Phase{Latency: server.Latency{Speed: -1}}),
		"phases[0].output_tokens.distribution": phase(server.Phase{OutputTokens: server.Spread{Distribution: "odd"}}),
		"phases[0].context_tokens":             phase(server.Phase{ContextTokens: -1}),
		"phases[0].refuse_delay_ms":            phase(server.Phase{RefuseDelay: -1}),
	} {
		if err := s.SetRules(r); err == nil || !strings.Contains(err.Error(), "rules[0]."+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
