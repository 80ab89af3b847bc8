package keys_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keys"
)

// The names are what access rules are written for (SECURITY-DESIGN VK1), and what
// running deployments have stored: another form is a migration.
func TestSpace_Names(t *testing.T) {
	t.Parallel()
	s := keys.New("prod-eu")
	rid := llmq.NewRID("team-a", "req-1")
	tail := "6blxzankcxhrp6mb:{" + string(rid) + "}"
	want := keys.Call{
		Submission: "llmq:prod-eu:sub:" + tail, Claim: "llmq:prod-eu:clm:" + tail,
		Result: "llmq:prod-eu:res:" + tail, Stream: "llmq:prod-eu:st:" + tail, Wake: "llmq:prod-eu:wake:" + tail,
	}
	if diff := cmp.Diff(want, s.Call("team-a", rid)); diff != "" {
		t.Errorf("names of a call (-want +got):\n%s", diff)
	}
	if got, want := s.Body(llmq.TenantHash("team-a"), rid), "llmq:prod-eu:off:"+tail; got != want {
		t.Errorf("a request's body is %s, want %s", got, want)
	}
	if got, want := s.Stop("w1"), "llmq:prod-eu:stop:w1"; got != want {
		t.Errorf("a worker's channel is %s, want %s", got, want)
	}
	head := "llmq:prod-eu:cap:{cap}:chat-a@apac:"
	target := keys.Target{State: head + "state", RT: head + "rt", BG: head + "bg", Bulk: head + "bulk", Waiting: head + "waiting"}
	if diff := cmp.Diff(target, s.Target(llmq.Target{Model: "chat-a", Name: "apac"})); diff != "" {
		t.Errorf("names of a target (-want +got):\n%s", diff)
	}
	provider := keys.Provider{State: "llmq:prod-eu:cap:{cap}:@bedrock:state", Slots: "llmq:prod-eu:cap:{cap}:@bedrock:slots"}
	if diff := cmp.Diff(provider, s.Provider("bedrock")); diff != "" {
		t.Errorf("names of a provider (-want +got):\n%s", diff)
	}
	failover := keys.Failover{
		Direct: "llmq:prod-eu:cap:{cap}:chat-a:direct", Silent: "llmq:prod-eu:cap:{cap}:chat-a:silent", Probe: "llmq:prod-eu:cap:{cap}:chat-a:probe",
	}
	if diff := cmp.Diff(failover, s.Failover("chat-a")); diff != "" {
		t.Errorf("names of a failover (-want +got):\n%s", diff)
	}
	fc := keys.Forecast{Snapshot: "llmq:prod-eu:fc:chat-a", Learned: "llmq:prod-eu:fc:chat-a@learned"}
	if diff := cmp.Diff(fc, s.Forecast("chat-a")); diff != "" {
		t.Errorf("names of a forecast (-want +got):\n%s", diff)
	}
	if got, want := s.Rate("0123456789"), "llmq:prod-eu:rate:{0123456789}"; got != want {
		t.Errorf("the calls of a key are %s, want %s", got, want)
	}
	if got := s.Epoch(); got != "llmq:prod-eu:cap:{cap}:epoch" {
		t.Errorf("the epoch is %s", got)
	}
	callers := keys.Callers{Alive: "llmq:prod-eu:cap:{cap}:callers", Heard: "llmq:prod-eu:cap:{cap}:heard"}
	if diff := cmp.Diff(callers, s.Callers()); diff != "" {
		t.Errorf("names of the callers (-want +got):\n%s", diff)
	}
	if got := s.Schema(); got != "llmq:prod-eu:cfg:schema" {
		t.Errorf("the schema is %s", got)
	}
}

var tag = regexp.MustCompile(`\{([^}]+)\}`)

// A cluster hashes what stands in the first braces: one request's keys must share a slot,
// whatever its caller called it.
func TestSpace_OneTagEach(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"r", "{evil}", "a}b{c", strings.Repeat("x", 128)} {
		rid := llmq.NewRID("t", id)
		c := keys.New("e").Call("t", rid)
		for _, k := range []string{c.Submission, c.Claim, c.Result, c.Wake} {
			if m := tag.FindAllStringSubmatch(k, -1); len(m) != 1 || m[0][1] != string(rid) {
				t.Errorf("id %q: the tags of %s are %v", id, k, m)
			}
			if strings.Contains(k, id) && len(id) > 1 {
				t.Errorf("the caller's own text %q stands in %s", id, k)
			}
		}
	}
}

func TestSpace_KeepsEnvironmentsTenantsAndRequestsApart(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, env := range []string{"dev", "prod"} {
		for _, tenant := range []string{"a", "b"} {
			for _, id := range []string{"1", "2"} {
				c := keys.New(env).Call(tenant, llmq.NewRID(tenant, id))
				for _, k := range []string{c.Submission, c.Claim, c.Result, c.Wake} {
					if seen[k] {
						t.Errorf("%s stands for two things", k)
					}
					seen[k] = true
				}
			}
		}
	}
}
