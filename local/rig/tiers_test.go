package rig_test

import (
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// D12, H23, H25: what a provider gets of lanes, of blank turns and of token numbers, and what it answers, through queue and worker.
func TestBodies_OfLanesBlankTurnsAndTokenNumbers(t *testing.T) {
	t.Parallel()
	r := ownRig(t, rig.Options{Change: func(c *config.Config) {
		for i := range c.Models {
			switch c.Models[i].Alias {
			case rig.ModelChat:
				c.Models[i].Targets[0].ServiceTiers = []llmq.Tier{"priority", "default", "flex"}
			case rig.ModelConverse:
				c.Models[i].Targets[0].ServiceTiers = []llmq.Tier{"priority", "flex"}
			}
		}
	}})
	const chat, converse = `{"model":"chat-a","messages":[{"role":"user","content":"hi"}]}`, `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`
	for _, tt := range []struct{ lane, path, body, member, want string }{
		{"rt", "", chat, "service_tier", "priority"},
		{"bg", "", chat, "service_tier", "default"},
		{"bulk", "", chat, "service_tier", "flex"},
		{"rt", "", `{"service_tier":"auto",` + chat[1:], "service_tier", "priority"}, // SEC12: whatever the caller asks for
		{"rt", "/model/conv-a/converse", converse, "serviceTier.type", "priority"},
		{"bg", "/model/conv-a/converse", converse, "serviceTier.type", ""}, // its tier is not listed
		{"bulk", "/model/conv-a/converse", converse, "serviceTier.type", "flex"},
	} {
		before := len(r.Fake.Calls())
		resp, reply := send(t, r, call{path: tt.path, body: tt.body, header: map[string]string{"X-LLMQ-Lane": tt.lane}})
		calls := r.Fake.Calls()[before:]
		if resp.StatusCode != http.StatusOK || len(calls) != 1 {
			t.Fatalf("%s %s: %d %s after %d calls", tt.lane, tt.path, resp.StatusCode, reply, len(calls))
		}
		if got := gjson.GetBytes(calls[0].Body, tt.member).String(); got != tt.want {
			t.Errorf("%s %s: the provider is asked for the tier %q, want %q, by\n%s", tt.lane, tt.path, got, tt.want, calls[0].Body)
		}
	}

	const turns = `"messages":[{"role":"user","content":[{"text":"run it"}]},{"role":"assistant","content":[{"toolUse":{"toolUseId":"t1","name":"run","input":{}}}]},` +
		`{"role":"user","content":[{"toolResult":{"toolUseId":"t1","content":[{"text":""}]}},`
	for _, tt := range []struct {
		name, path, body string
		status           int
		vectors          int64
	}{
		{"H23 a", "/model/conv-a/converse", `{"system":[{"text":""}],` + turns + `{"text":"  \n"},{"text":"and?"}]}]}`, http.StatusBadRequest, 0},
		{"H23 b", "/model/conv-a/converse", `{` + turns + `{"text":"and?"}]}]}`, http.StatusOK, 0},
		{"H25 a", "/v1/embeddings", `{"model":"emb-a","input":[1820,1053,382]}`, http.StatusOK, 1},
		{"H25 b", "/v1/embeddings", `{"model":"emb-a","input":[[1820,1053],[382]]}`, http.StatusOK, 2},
	} {
		before := len(r.Fake.Calls())
		resp, reply := send(t, r, call{path: tt.path, body: tt.body, header: map[string]string{"X-LLMQ-Lane": "bg"}})
		calls := r.Fake.Calls()[before:]
		if resp.StatusCode != tt.status || len(calls) != 1 {
			t.Fatalf("%s: %d %s after %d calls, want %d after one", tt.name, resp.StatusCode, reply, len(calls), tt.status)
		}
		same := string(calls[0].Body) == tt.body
		if tt.vectors > 0 {
			same = gjson.GetBytes(calls[0].Body, "input").Raw == gjson.Get(tt.body, "input").Raw
		}
		if !same {
			t.Errorf("%s: the provider got\n%s\nwant\n%s", tt.name, calls[0].Body, tt.body)
		}
		if got := gjson.GetBytes(reply, "data.#").Int(); got != tt.vectors {
			t.Errorf("%s: %d vectors, want %d", tt.name, got, tt.vectors)
		}
		for i := range tt.vectors {
			if got := gjson.GetBytes(reply, "data").Array()[i].Get("index").Int(); got != i {
				t.Errorf("%s: vector %d has the index %d", tt.name, i, got)
			}
		}
	}

	// H23 c: what was said blank goes to a chat as it is, and to Converse not at all: nothing is made of it on the way.
	const blank = `"messages":[{"role":"system","content":""},{"role":"user","content":"hi"},{"role":"assistant","content":""},{"role":"user","content":"and?"}]}`
	before := len(r.Fake.Calls())
	if resp, reply := send(t, r, call{body: `{"model":"conv-a",` + blank}); resp.StatusCode != http.StatusBadRequest || gjson.GetBytes(reply, "error.code").Str != "wrong_wire" || len(r.Fake.Calls()) != before {
		t.Errorf("H23 c, conv-a: %d %s after %d calls", resp.StatusCode, reply, len(r.Fake.Calls())-before)
	}
	resp, reply := send(t, r, call{body: `{"model":"chat-a",` + blank, header: map[string]string{"X-LLMQ-Lane": "bg"}})
	calls := r.Fake.Calls()[before:]
	if resp.StatusCode != http.StatusOK || len(calls) != 1 || gjson.GetBytes(calls[0].Body, "messages").Raw != gjson.Get("{"+blank, "messages").Raw {
		t.Errorf("H23 c, chat-a: %d %s, the provider got %+v", resp.StatusCode, reply, calls)
	}
}
