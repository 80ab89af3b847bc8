package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

func admin(t *testing.T, s http.Handler, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	return do(s, request(t.Context(), method, "/_admin"+path, body))
}

func TestAdmin_WantsItsOwnKey(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	off := newServer(t, func(o *server.Options) { o.AdminKey = "" })
	for _, tc := range []struct {
		name, header string
		s            http.Handler
		want         int
	}{
		{"right", "Bearer " + adminKey, s, 200},
		{"none", "", s, 401},
		{"an API key", "Bearer " + apiKey, s, 401},
		{"turned off", "Bearer ", off, 401},
		{"turned off, any key", "Bearer x", off, 401},
	} {
		r := request(t.Context(), http.MethodGet, "/_admin/stats", "")
		r.Header.Del("Authorization")
		if tc.header != "" {
			r.Header.Set("Authorization", tc.header)
		}
		if got := do(tc.s, r); got.Code != tc.want {
			t.Errorf("%s: status %d, want %d", tc.name, got.Code, tc.want)
		}
	}
}

func TestAdmin_Refuses(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for _, tc := range []struct {
		method, path, body string
		status             int
		message            string
	}{
		{"GET", "", "", 404, "no such path"},
		{"GET", "/other", "", 404, "no such path in the admin API, which has GET /_admin/calls, PUT /_admin/latency, PUT /_admin/program, "},
		{"GET", "/latency", "", 405, "PUT"},
		{"PUT", "/latency", "", 400, "empty"},
		{"PUT", "/latency", `{"mean_ms":-1}`, 400, "mean_ms"},
		{"PUT", "/latency", `{"mean_ms":1e300,"max_ms":-2}`, 400, "max_ms"},
		{"PUT", "/latency", `{"distribution":"odd"}`, 400, "odd"},
		{"PUT", "/latency", `{"meanms":1}`, 400, "meanms"},
		{"PUT", "/latency", `{} {}`, 400, "document"},
		{"PUT", "/latency", "mean_ms: 5\nspeed: -1", 400, "line 2:1: speed: -1"},
		{"PUT", "/latency", "{\"mean_ms\":5,\n\"speed\":-1}", 400, "line 2:1: speed: -1"},
		{"PUT", "/latency", "{\"mean_ms\":5,\n\t\"speed\":-1}", 400, "speed: -1"},
		{"PUT", "/latency", "mean_ms: 5\nspead: 1", 400, "line 2:1: spead: there is no such field"},
		{"PUT", "/rules", "rules:\n  - phases: []", 400, "line 2:5: rules[0].phases: want 1"},
		{"POST", "/programs", `{"model":"m"}`, 400, "replies"},
		{"POST", "/programs", `{"replies":[{"status":99}]}`, 400, "99"},
		{"POST", "/programs", `{"replies":[{"delay_ms":4000000}]}`, 400, "replies[0].delay_ms"},
		{"POST", "/programs", `{"replies":[{"body":"a","body_base64":"YQ=="}]}`, 400, "want one of them"},
		{"POST", "/reset", `{"x":1}`, 400, "x"},
		{"GET", "/calls?after=x", "", 400, "after"},
		{"GET", "/calls?limit=-1", "", 400, "limit"},
		{"GET", "/calls?limit=0", "", 400, "limit"},
		{"GET", "/calls?limit=1001", "", 400, "limit"},
	} {
		got := admin(t, s, tc.method, tc.path, tc.body)
		message := decode[map[string]string](t, got.Body.Bytes())["error"]
		if got.Code != tc.status || !strings.Contains(message, tc.message) {
			t.Errorf("%s %s %s: %d %q, want %d with %q", tc.method, tc.path, tc.body, got.Code, message, tc.status, tc.message)
		}
	}
}

func TestAdmin_ProgramsAndLatency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		if got := admin(t, s, "PUT", "/latency", `{"distribution":"fixed","mean_ms":1500.5}`); got.Code != 200 {
			t.Fatalf("latency: %s", got.Body)
		}
		got := admin(t, s, "POST", "/programs", `{"model":"m","replies":[
			{"status":201,"headers":{"x-more":"1"},"body":"text"},
			{"body_base64":"AAE=","delay_ms":10},
			{"code":"insufficient_quota","message":"no money"},
			{"reset":true}]}`)
		if got.Code != 200 || got.Body.String() != `{"queued":4}` {
			t.Fatalf("programs: %d %s", got.Code, got.Body)
		}
		start := time.Now()
		if got := chat(t, s, "m"); got.Code != 201 || got.Body.String() != "text" || got.Header().Get("X-More") != "1" {
			t.Errorf("first: %d %v %s", got.Code, got.Header(), got.Body)
		}
		if d := time.Since(start); d != 1500500*time.Microsecond {
			t.Errorf("took %v, want 1.5005s", d)
		}
		start = time.Now()
		if got := chat(t, s, "m"); got.Code != 200 || got.Body.String() != "\x00\x01" || time.Since(start) != 10*time.Millisecond {
			t.Errorf("second: %d %q after %v", got.Code, got.Body, time.Since(start))
		}
		third := chat(t, s, "m")
		checkOpenAIError(t, third.Code, third.Body.Bytes(), 429, "insufficient_quota", "", "insufficient_quota", "no money")
		if got := chat(t, s, "m"); got != nil {
			t.Errorf("fourth: %d, want no answer", got.Code)
		}
	})
}

func TestAdmin_BodiesAreYAMLOrJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ method, path, yaml, json string }{
		{"PUT", "/program", "rules:\n  - phases: [{rpm: 2}]\n", `{"rules":[{"phases":[{"rpm":2}]}]}`},
		{"PUT", "/rules", "rules:\n  - phases: [{rpm: 2}]\n", "{\"rules\":\n\t[{\"phases\":[{\"rpm\":2}]}]}"},
		{"PUT", "/latency", "mean_ms: 1\nspeed: 80\n", `{"mean_ms":1,"speed":80}`},
		{"POST", "/programs", "model: m\nreplies:\n  - text: ok\n", `{"model":"m","replies":[{"text":"\ud83d\ude00"}]}`},
		{"POST", "/release", "model: m\n", `{"model":"m"}`},
		{"POST", "/reset", "counters: true\n", `{"counters":true}`},
	} {
		for _, body := range []string{tc.yaml, tc.json} {
			if got := admin(t, newServer(t, nil), tc.method, tc.path, body); got.Code != 200 {
				t.Errorf("%s %s %s: %d %s", tc.method, tc.path, body, got.Code, got.Body)
			}
		}
	}
}

func TestAdmin_ReleaseAndStats(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	admin(t, s, "POST", "/programs", `{"replies":[{"hang":true,"times":2}]}`)
	ended := make(chan int, 2)
	for range 2 {
		go func() { ended <- chat(t, s, "m").Code }()
	}
	if err := s.AwaitInFlight(t.Context(), "m", 2); err != nil {
		t.Fatal(err)
	}
	if got := admin(t, s, "POST", "/release", `{"model":"other"}`).Body.String(); got != `{"released":0}` {
		t.Errorf("release of another model: %s", got)
	}
	if got := admin(t, s, "POST", "/release", "").Body.String(); got != `{"released":2}` {
		t.Errorf("release: %s", got)
	}
	for range 2 {
		if got := <-ended; got != 200 {
			t.Errorf("status %d", got)
		}
	}
	type gauge struct {
		Calls, Peak, Admitted, Good, Repeats int
		InFlight                             int     `json:"in_flight"`
		GoodPerSecond                        float64 `json:"good_per_second"`
	}
	stats := decode[struct {
		Since                 time.Time
		All                   gauge
		Models, Regions, Keys map[string]gauge
	}](t, admin(t, s, "GET", "/stats", "").Body.Bytes())
	want := stats.All // the goodput depends on the clock
	want.Calls, want.Peak, want.Admitted, want.Good, want.Repeats, want.InFlight = 2, 2, 2, 2, 1, 0
	if stats.All != want || stats.All.GoodPerSecond <= 0 || stats.Since.IsZero() {
		t.Errorf("stats %+v", stats)
	}
	if diff := cmp.Diff(map[string]gauge{"m": want}, stats.Models); diff != "" || len(stats.Regions) != 0 {
		t.Errorf("models (-want +got):\n%s\nregions %v", diff, stats.Regions)
	}
	if diff := cmp.Diff(map[string]gauge{server.KeyHash(apiKey): want}, stats.Keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if got := admin(t, s, "POST", "/reset", ""); got.Code != 200 || s.Stats().All.Calls != 0 {
		t.Errorf("reset: %d, %+v", got.Code, s.Stats().All)
	}
}

func TestAdmin_CallsPage(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for _, model := range []string{"a", "b", "a", "b", "a"} {
		chat(t, s, model)
	}
	type call struct {
		Seq        int
		Model      string
		BodyBase64 []byte `json:"body_base64"`
		KeyHash    string `json:"key_hash"`
		Headers    http.Header
	}
	for query, want := range map[string][]int{
		"":                         {1, 2, 3, 4, 5},
		"?limit=2":                 {1, 2},
		"?after=3":                 {4, 5},
		"?model=a&after=1&limit=1": {3},
		"?model=c":                 nil,
		"?region=us-east-1":        nil, // a bearer token has none
	} {
		var got []int
		body := admin(t, s, "GET", "/calls"+query, "").Body.Bytes()
		for _, c := range decode[map[string][]call](t, body)["calls"] {
			got = append(got, c.Seq)
			if string(c.BodyBase64) != chatBody(c.Model) || c.KeyHash != server.KeyHash(apiKey) {
				t.Errorf("call %+v", c)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
		if strings.Contains(string(body), apiKey) {
			t.Error("the log shows a key")
		}
	}
}
