package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client"
	"github.com/llm-queue/llmq/pkg/llmq/internal/luascript/luatest"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// withProgram tests a program's client, whose messages nobody handles.
func withProgram(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	timeouts := map[llmq.Lane]client.Timeouts{}
	for _, l := range llmq.Lanes() {
		timeouts[l] = client.Timeouts{Default: l.DefaultTimeout(), Max: l.MaxTimeout()}
	}
	synctest.Test(t, func(t *testing.T) {
		test(t, newRigWith(t, luatest.Pipe(t, llmqtest.NewMiniredis(t)), client.Config{
			Names: queue.Names{Prefix: "llm"}, Catalogue: catalogue(), InlineMaxBytes: 1000,
			Program: client.Program{Tenant: "team", Timeouts: timeouts, HashID: func(id string) string { return strings.ToUpper(id) }},
		}, nil))
	})
}

var chatBody = []byte(`{"model":"m","messages":[]}`)

// A2: a call says what it wants; what it doesn't say is its lane's, its context's or a new id.
func TestNewRequest_TakesWhatTheCallSays(t *testing.T) {
	t.Parallel()
	withProgram(t, func(t *testing.T, r *rig) {
		now := time.Now()
		ctx := llmq.WithSession(llmq.WithUser(t.Context(), "ann"), "s1")
		soon, cancel := context.WithDeadline(ctx, now.Add(7*time.Second))
		defer cancel()
		for _, tc := range []struct {
			name string
			ctx  context.Context
			o    client.Options
			want string // lane, fallback, time left, user, session
		}{
			{"nothing", t.Context(), client.Options{}, "rt chain 1m30s  "},
			{"context", ctx, client.Options{}, "rt chain 1m30s ANN S1"},
			{"the call goes first", ctx, client.Options{User: "bob", Session: "s2"}, "rt chain 1m30s BOB S2"},
			{"lane", ctx, client.Options{Lane: llmq.LaneBulk, Fallback: llmq.FallbackTarget}, "bulk target 15m0s ANN S1"},
			{"timeout", ctx, client.Options{Lane: llmq.LaneBG, Timeout: time.Hour}, "bg chain 1h0m0s ANN S1"},
			{"deadline", ctx, client.Options{Deadline: now.Add(time.Minute)}, "rt chain 1m0s ANN S1"},
			{"context that ends before", soon, client.Options{Timeout: time.Minute}, "rt chain 7s ANN S1"},
			{"context that ends after", soon, client.Options{Timeout: time.Second}, "rt chain 1s ANN S1"},
		} {
			got, err := r.NewRequest(tc.ctx, llmq.OpChat, "", chatBody, tc.o)
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
				continue
			}
			said := strings.Join([]string{string(got.Lane), string(got.Fallback), got.Deadline.Sub(now).String(), got.User, got.Session}, " ")
			if said != tc.want || got.Tenant != "team" || got.Model.Alias != "m" || string(got.Body) != string(chatBody) {
				t.Errorf("%s: %q, want %q; all of it: %+v", tc.name, said, tc.want, got)
			}
			if !got.OneOff || llmq.CheckID("id", got.ID) != nil {
				t.Errorf("%s: its id %q is not one that was made for it", tc.name, got.ID)
			}
		}
	})
}

// A3: what can't work is refused before anything is sent or written.
func TestNewRequest_RefusesWhatCantWork(t *testing.T) {
	t.Parallel()
	withProgram(t, func(t *testing.T, r *rig) {
		for _, tc := range []struct {
			name, model, body string
			op                llmq.Op
			o                 client.Options
			want              llmq.Code
		}{
			{"unknown model", "", `{"model":"nobody"}`, llmq.OpChat, client.Options{}, llmq.CodeModelNotFound},
			{"unknown target", "", `{"model":"m@nowhere"}`, llmq.OpChat, client.Options{}, llmq.CodeModelNotFound},
			{"no model", "", `{}`, llmq.OpChat, client.Options{}, llmq.CodeInvalidRequest},
			{"a model that is no text", "", `{"model":{}}`, llmq.OpChat, client.Options{}, llmq.CodeInvalidRequest},
			{"unknown op", "m", `{}`, "sing", client.Options{}, llmq.CodeWrongWire},
			{"no JSON", "", `{"model":"m"`, llmq.OpChat, client.Options{}, llmq.CodeInvalidJSON},
			{"unknown lane", "", `{"model":"m"}`, llmq.OpChat, client.Options{Lane: "fast"}, llmq.CodeInvalidRequest},
			{"unknown policy", "", `{"model":"m"}`, llmq.OpChat, client.Options{Fallback: "any"}, llmq.CodeInvalidRequest},
			{"too long", "", `{"model":"m"}`, llmq.OpChat, client.Options{Timeout: 301 * time.Second}, llmq.CodeInvalidRequest},
			{"a negative time", "", `{"model":"m"}`, llmq.OpChat, client.Options{Timeout: -time.Second}, llmq.CodeInvalidRequest},
			{"two ends", "", `{"model":"m"}`, llmq.OpChat, client.Options{Timeout: time.Second, Deadline: time.Now().Add(time.Minute)}, llmq.CodeInvalidRequest},
			{"a long user", "", `{"model":"m"}`, llmq.OpChat, client.Options{User: strings.Repeat("u", 257)}, llmq.CodeInvalidRequest},
		} {
			_, err := r.NewRequest(t.Context(), tc.op, tc.model, []byte(tc.body), tc.o)
			if e, ok := errors.AsType[*llmq.Error](err); !ok || e.Code != tc.want {
				t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
			}
		}
		if _, err := r.Chat(t.Context(), []byte(`{"model":"m","stream":true}`), client.Options{}); !errors.Is(err, llmq.CodeInvalidRequest) {
			t.Errorf("a stream as a whole: %v", err)
		}
		if _, err := r.ChatStream(t.Context(), chatBody, client.Options{}); !errors.Is(err, llmq.CodeInvalidRequest) {
			t.Errorf("a whole as a stream: %v", err)
		}
		if len(r.sent) != 0 {
			t.Errorf("%d messages were sent", len(r.sent))
		}
	})
}

// MS3: what a worker would refuse of a producer is refused before it is sent, by name.
func TestDo_ProgramSendsNoHeaders(t *testing.T) {
	t.Parallel()
	withProgram(t, func(t *testing.T, r *rig) {
		req := llmq.Request{
			ID: "req-1", Tenant: "team", Op: llmq.OpInvoke, Model: llmq.ModelRef{Alias: "m"}, Lane: llmq.LaneRT, Deadline: time.Now().Add(time.Minute),
			Body: []byte(`{}`), Headers: map[string]string{"X-Amzn-Bedrock-Service-Tier": "priority"},
		}
		_, err := r.Do(t.Context(), req)
		req.Op, req.Stream = llmq.OpInvokeStream, true
		_, streamErr := r.Stream(t.Context(), req)
		for _, err := range []error{err, streamErr} {
			if e := llmq.AsError(err); e == nil || e.Code != llmq.CodeUnsupported || e.Field != "X-Amzn-Bedrock-Service-Tier" || !strings.Contains(e.Message, "over HTTPS") {
				t.Errorf("err = %v, want it to name the header and the way that takes it", err)
			}
		}
		if len(r.sent) != 0 {
			t.Errorf("%d messages were sent", len(r.sent))
		}
	})
}

// A door's client has no calls of its own, and says so.
func TestNewRequest_NeedsAProgram(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		if _, err := r.Chat(t.Context(), chatBody, client.Options{}); !errors.Is(err, llmq.CodeConfiguration) {
			t.Errorf("err = %v", err)
		}
	})
}
