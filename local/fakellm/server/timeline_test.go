package server_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/quota"
	"github.com/llm-queue/llmq/local/fakellm/server"
)

func TestTimeline_TellsEachSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setRules(t, s, onePhase(server.Phase{Limits: quota.Limits{Concurrency: 2}, Latency: server.Latency{Mean: 2500 * time.Millisecond}}))
		start := time.Now()
		var wg sync.WaitGroup
		for _, model := range []string{"m", "m", "m", "n"} {
			wg.Go(func() { chat(t, s, model) })
			synctest.Wait()
		}
		time.Sleep(time.Second) // bubble time
		program(t, s, server.Match{}, server.Reply{Status: 500})
		chat(t, s, "m")
		wg.Wait()
		at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
		want := []server.Second{
			{At: at(0), Calls: 3, Admitted: 2, Throttled: 1, Peak: 2},
			{At: at(1), Calls: 1, Failed: 1},
			{At: at(2), Good: 2, InputTokens: 2, OutputTokens: 4},
		}
		if diff := cmp.Diff(want, s.Timeline("m")); diff != "" {
			t.Errorf("m (-want +got):\n%s", diff)
		}
		if all := s.Timeline(""); len(all) != 3 || all[0].Calls != 4 || all[0].Peak != 3 || all[2].Good != 3 {
			t.Errorf("all: %+v", all)
		}
		got := decode[map[string][]map[string]any](t, admin(t, s, http.MethodGet, "/timeline?model=n", "").Body.Bytes())["seconds"]
		if len(got) != 2 || got[0]["admitted"] != 1.0 || got[1]["good"] != 1.0 {
			t.Errorf("n: %v", got)
		}
		if s.ResetCounters(); s.Timeline("m") != nil {
			t.Error("there after a reset")
		}
	})
}
