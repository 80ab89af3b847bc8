package server_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/llm-queue/llmq/local/fakellm/quota"
	"github.com/llm-queue/llmq/local/fakellm/server"
)

func benchServer(b *testing.B, rules ...server.Rule) *server.Server {
	b.Helper()
	s, err := server.New(server.Options{APIKeys: []string{apiKey}, CaptureBytes: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	if err := s.SetRules(rules...); err != nil {
		b.Fatal(err)
	}
	return s
}

func limited() server.Rule {
	return server.Rule{Phases: []server.Phase{{
		Limits: quota.Limits{
			Concurrency: 1000, Requests: quota.Rate{PerMinute: 1e9}, Tokens: quota.Rate{PerMinute: 1e12}, Burndown: 5,
		},
		ThrottleShare: 0.02,
	}}}
}

// The handler alone: what a simulation in one process can have.
func BenchmarkCall(b *testing.B) {
	for name, tc := range map[string]struct{ path, body string }{
		"chat":            {"/v1/chat/completions", chatBody("m")},
		"chat stream":     {"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`},
		"converse":        {conversePath("m"), converseBody},
		"converse stream": {conversePath("m") + "-stream", converseBody},
	} {
		b.Run(name, func(b *testing.B) {
			s := benchServer(b, limited())
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					do(s, request(b.Context(), http.MethodPost, tc.path, tc.body))
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

// Over sockets, with a client in the same process.
func BenchmarkSocket(b *testing.B) {
	s := benchServer(b, limited())
	ts := httptest.NewServer(s)
	b.Cleanup(ts.Close)
	ts.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 100 //nolint:forcetypeassert // it is one
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := send(b.Context(), ts, chatBody("m")); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// What 5,000 calls in flight hold, each with its connectionless request.
func BenchmarkMemoryOfCallsInFlight(b *testing.B) {
	for b.Loop() {
		s := benchServer(b)
		if err := s.Program(server.Match{}, server.Reply{Hang: true, Times: 5000}); err != nil {
			b.Fatal(err)
		}
		var before, during runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		ended := make(chan struct{}, 5000)
		for range 5000 {
			go func() {
				do(s, request(b.Context(), http.MethodPost, conversePath("m"), converseBody))
				ended <- struct{}{}
			}()
		}
		if err := s.AwaitInFlight(b.Context(), "m", 5000); err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&during)
		b.ReportMetric(float64(during.HeapAlloc+during.StackInuse-before.HeapAlloc-before.StackInuse)/5000, "B/call")
		s.Release(server.Match{})
		for range 5000 {
			<-ended
		}
	}
}
