package server_test

import (
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-queue/llmq/local/fakellm/quota"
	"github.com/llm-queue/llmq/local/fakellm/server"
)

// saturate asks a model for some minutes, every half second until it is refused, and says how many calls
// came to a good end within that time and how many were refused.
func saturate(t *testing.T, s *server.Server, model string, minutes int) (good, throttled int) {
	t.Helper()
	var wg sync.WaitGroup
	body := `{"inferenceConfig":{"maxTokens":10240},` + converseBody[1:]
	for range minutes * 120 {
		for refused := false; !refused; {
			before := s.Stats().Models[model]
			wg.Go(func() { converse(t, s, model, "us-east-1", body) })
			synctest.Wait() // let in, refused or ended
			after := s.Stats().Models[model]
			refused = after.Throttled+after.Failed > before.Throttled+before.Failed
		}
		time.Sleep(500 * time.Millisecond) // bubble time
	}
	g := s.Stats().Models[model]
	wg.Wait()
	return g.Good, g.Throttled
}

// G4: fakellm is each of the providers that the learned limit is judged against, and gives who asks
// all the time what the quota is and no more.
func TestLimiterProviders(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/limiter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	program, err := server.ParseProgram(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		model   string
		minutes int
		want    int // good calls, to within 2 %
	}{
		{"concurrency-50", 2, 50 * 24}, // who asks each half second has 50 calls each five seconds
		{"bucket-10-percent", 2, 60 + 1198},
		{"bucket-1-second", 2, 10 + 1198},
		{"bucket-60-rpm", 2, 6 + 120},
		{"calendar-minute", 2, 600 + 600 + 600}, // the provider's clock is ahead
		{"sliding-minute", 2, 600 + 600},
		{"sliding-refused-count", 2, 600 + 600 - 120}, // who keeps asking pays for it
		{"tpm-burndown-5", 2, 3 * 1_200_000 / (1 + 5*2500)},
		{"tpm-by-minute", 2, 3 * 800_000 / (1 + 2500)}, // in the last of a minute, in a whole one and in the next
		{"mixed", 2, 100 + 1200},
		{"random-2-percent", 2, 60 + 1198},
		{"halves-and-returns", 3, 10 + 600 + 300 + 600},
		{"foreign-consumer", 2, 10 + 2*(450+90)},
		{"outage-by-429", 5, 50*12 + 50*55*24/100 + 50*12},
		{"outage-by-5xx", 5, 50*12 + 50*55*24/100 + 50*12},
		{"retry-after-true", 2, 60 + 1198},
		{"retry-after-30-seconds", 2, 50 * 24},
	} {
		t.Run(tc.model, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, func(o *server.Options) { o.LogCalls = 1 })
				if err := s.Load(program); err != nil {
					t.Fatal(err)
				}
				good, throttled := saturate(t, s, tc.model, tc.minutes)
				t.Logf("%d good, %d throttled", good, throttled)
				if good < tc.want*98/100-1 || good > tc.want*102/100+1 {
					t.Errorf("%d good calls, want about %d", good, tc.want)
				}
			})
		})
	}
}

// Whatever comes when, no more calls run than the quota has, and no more begin in a calendar
// minute; as the call log tells it.
func TestServer_NeverAboveItsQuotas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		concurrency, rpm := rapid.IntRange(1, 6).Draw(rt, "concurrency"), rapid.IntRange(1, 40).Draw(rt, "rpm")
		gaps := rapid.SliceOfN(rapid.IntRange(0, 4000), 1, 100).Draw(rt, "gaps_ms")
		latency := rapid.IntRange(0, 5000).Draw(rt, "latency_ms")
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nil)
			setRules(t, s, server.Rule{Phases: []server.Phase{{
				Limits:  quota.Limits{Concurrency: concurrency, Requests: quota.Rate{PerMinute: float64(rpm), Window: quota.Minute}},
				Latency: server.Latency{Distribution: server.Uniform, Max: time.Duration(latency) * time.Millisecond},
			}}})
			var wg sync.WaitGroup
			for _, gap := range gaps {
				time.Sleep(time.Duration(gap) * time.Millisecond) // bubble time
				wg.Go(func() { chat(t, s, "m") })
			}
			wg.Wait()
			minutes, admitted := map[time.Time]int{}, 0
			for _, c := range s.Calls() {
				if c.Status == http.StatusOK {
					minutes[c.At.Truncate(time.Minute)]++
					admitted++
				}
			}
			for minute, n := range minutes {
				if n > rpm {
					rt.Fatalf("%d calls in minute %v, quota %d", n, minute, rpm)
				}
			}
			if g := s.Stats().All; g.Peak > concurrency || g.InFlight != 0 || g.Admitted != admitted || admitted == 0 || g.Admitted+g.Throttled != len(gaps) {
				rt.Fatalf("counted %+v of %d calls, %d in the log", g, len(gaps), admitted)
			}
		})
	})
}
