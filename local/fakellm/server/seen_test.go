package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

func TestRepeats_AreCountedAmongWhatIsAdmitted(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{Status: 503})
	send := func(text, key string) {
		r := request(t.Context(), http.MethodPost, "/v1/chat/completions", fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, text))
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		do(s, r)
	}
	send("a", "") // refused at the door, so its repeat is the first that is paid for
	send("a", "k1")
	send("b", "k1")
	send("a", "k2")
	g := s.Stats().Models["m"]
	if g.Calls != 4 || g.Repeats != 1 || g.RepeatedKeys != 1 || g.Failed != 1 {
		t.Errorf("counted %+v", g)
	}
	if calls := s.Calls(); calls[2].Repeat || !calls[3].Repeat {
		t.Error("the log names the wrong call")
	}
}

func TestRegion_FromTheHostsName(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *server.Options) { o.Hosts = []string{"bedrock-runtime.eu-west-3.amazonaws.com"} })
	for _, tc := range []struct {
		name, host, auth, region string
		status                   int
	}{
		{"bearer", "bedrock-runtime.us-west-2.localhost:1234", "Bearer " + apiKey, "us-west-2", 200},
		{"bearer, an allowed host", "bedrock-runtime.eu-west-3.amazonaws.com", "Bearer " + apiKey, "eu-west-3", 200},
		{"signature", "bedrock-runtime.us-west-2.localhost:1234", sigV4Header(accessKey, "us-west-2", "bedrock"), "us-west-2", 200},
		{"signature for elsewhere", "bedrock-runtime.us-west-2.localhost:1234", sigV4Header(accessKey, "us-east-1", "bedrock"), "", 403},
		{"another host", "bedrock-runtime.us-west-2.amazonaws.com", "Bearer " + apiKey, "", 403},
		{"another service", "sqs.us-west-2.localhost", "Bearer " + apiKey, "", 403},
	} {
		r := request(t.Context(), http.MethodPost, conversePath("m"), converseBody)
		r.Host = tc.host
		r.Header.Set("Authorization", tc.auth)
		got := do(s, r)
		calls := s.Calls()
		if got.Code != tc.status || got.Code == 200 && calls[len(calls)-1].Region != tc.region {
			t.Errorf("%s: %d %s", tc.name, got.Code, got.Body)
		}
	}
}
