package server_test

import (
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

func setLatency(t *testing.T, s *server.Server, l server.Latency) {
	t.Helper()
	if err := s.SetLatency(l); err != nil {
		t.Fatalf("set latency: %v", err)
	}
}

// took makes n calls, one after the other, and returns how long each took. Use it in a bubble.
func took(t *testing.T, s *server.Server, n int) []time.Duration {
	t.Helper()
	all := make([]time.Duration, 0, n)
	for range n {
		start := time.Now()
		if got := chat(t, s, "m"); got.Code != http.StatusOK {
			t.Fatalf("status %d", got.Code)
		}
		all = append(all, time.Since(start))
	}
	return all
}

func TestLatency_FixedIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setLatency(t, s, server.Latency{Mean: 2 * time.Second})
		if got := took(t, s, 1)[0]; got != 2*time.Second {
			t.Errorf("took %v, want 2s", got)
		}
		if call := s.Calls()[0]; call.Duration != 2*time.Second {
			t.Errorf("logged %v, want 2s", call.Duration)
		}
		got := post(t, s, conversePath("m"), converseBody)
		metrics := decode[struct{ Metrics struct{ LatencyMs int } }](t, got.Body.Bytes())
		if metrics.Metrics.LatencyMs != 2000 {
			t.Errorf("latencyMs %d, want 2000", metrics.Metrics.LatencyMs)
		}
	})
}

func TestLatency_DelayTakesItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setLatency(t, s, server.Latency{Mean: time.Minute})
		program(t, s, server.Match{}, server.Reply{Delay: time.Second})
		if diff := cmp.Diff([]time.Duration{time.Second, time.Minute}, took(t, s, 2)); diff != "" {
			t.Errorf("times (-want +got):\n%s", diff)
		}
	})
}

func TestLatency_Distributions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name            string
		latency         server.Latency
		mean, deviation time.Duration // of many, to within 10 %
		least, most     time.Duration
	}{
		{
			"uniform",
			server.Latency{Distribution: server.Uniform, Min: time.Second, Max: 3 * time.Second},
			2 * time.Second, 577 * time.Millisecond, time.Second, 3 * time.Second,
		},
		{
			"normal",
			server.Latency{Distribution: server.Normal, Mean: 10 * time.Second, Deviation: time.Second},
			10 * time.Second, time.Second, 0, time.Hour,
		},
		{
			"lognormal",
			server.Latency{Distribution: server.Lognormal, Mean: 2 * time.Second, Deviation: time.Second},
			2 * time.Second, time.Second, 1, time.Hour,
		},
		{
			"no spread",
			server.Latency{Distribution: server.Lognormal, Mean: 2 * time.Second},
			2 * time.Second, 0, 2*time.Second - time.Microsecond, 2*time.Second + time.Microsecond,
		},
		{
			"cut",
			server.Latency{Distribution: server.Normal, Mean: time.Second, Deviation: time.Hour, Min: time.Second, Max: time.Second},
			time.Second, 0, time.Second, time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				tc.latency.Seed = 1
				setLatency(t, s, tc.latency)
				const n = 1000
				all := took(t, s, n)
				var sum, square float64
				for _, d := range all {
					if d < tc.least || d > tc.most {
						t.Fatalf("took %v, want %v to %v", d, tc.least, tc.most)
					}
					sum += d.Seconds()
				}
				for _, d := range all {
					square += (d.Seconds() - sum/n) * (d.Seconds() - sum/n)
				}
				deviation := math.Sqrt(square / n)
				if math.Abs(sum/n-tc.mean.Seconds()) > 0.1*tc.mean.Seconds() ||
					math.Abs(deviation-tc.deviation.Seconds()) > 0.1*tc.deviation.Seconds()+1e-6 {
					t.Errorf("mean %.3f s, deviation %.3f s; want %v, %v", sum/n, deviation, tc.mean, tc.deviation)
				}
			})
		})
	}
}

func TestLatency_SeedRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run := func(seed uint64) []time.Duration {
			s := newServer(t, nil)
			setLatency(t, s, server.Latency{Distribution: server.Lognormal, Mean: time.Second, Deviation: time.Second, Seed: seed})
			return took(t, s, 20)
		}
		if diff := cmp.Diff(run(7), run(7)); diff != "" {
			t.Errorf("the same seed (-first +second):\n%s", diff)
		}
		if cmp.Equal(run(7), run(8)) {
			t.Error("two seeds gave the same latencies")
		}
	})
}

func TestLatency_Refused(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for name, l := range map[string]server.Latency{
		"unknown":          {Distribution: "pareto"},
		"negative":         {Mean: -1},
		"too long":         {Mean: 2 * time.Hour},
		"uniform reversed": {Distribution: server.Uniform, Min: 2, Max: 1},
		"normal reversed":  {Distribution: server.Normal, Min: 2, Max: 1},
		"lognormal of 0":   {Distribution: server.Lognormal, Deviation: 1},
	} {
		if err := s.SetLatency(l); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}
