package client_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// What is sent, byte for byte: other languages' workers and older releases read it. The
// bubble's clock begins with the year 2000.
func TestDo_SendsThisMessage(t *testing.T) {
	t.Parallel()
	const body = "{ \"model\":\"m\",\n\"x\":\"<y> é &\" , \"nr\":1.0e0}"
	for _, tt := range []struct {
		name   string
		change func(*llmq.Request)
		want   string
	}{
		{
			"everything", func(*llmq.Request) {},
			`{"v":1,"id":"req-1","op":"chat","model":"m","lane":"rt","fallback":"chain","deadline_ms":946684890000,"tenant":"team","kid":"k","user":"u","session":"s","traceparent":"tr","params":` + body + `}`,
		},
		{
			"the least", func(r *llmq.Request) {
				r.KeyID, r.User, r.Session, r.Trace, r.Fallback = "", "", "", "", ""
			},
			`{"v":1,"id":"req-1","op":"chat","model":"m","lane":"rt","deadline_ms":946684890000,"tenant":"team","params":` + body + `}`,
		},
		{
			"a target", func(r *llmq.Request) {
				r.Model.Target, r.Op, r.Fallback = "t", llmq.OpEmbeddings, llmq.FallbackTarget
			},
			`{"v":1,"id":"req-1","op":"embeddings","model":"m@t","lane":"rt","fallback":"target","deadline_ms":946684890000,"tenant":"team","kid":"k","user":"u","session":"s","traceparent":"tr","params":` + body + `}`,
		},
		{
			"a large body", func(r *llmq.Request) { r.Body = []byte(`{"x":"` + strings.Repeat("y", 1000) + `"}`) },
			`{"v":1,"id":"req-1","op":"chat","model":"m","lane":"rt","fallback":"chain","deadline_ms":946684890000,"tenant":"team","kid":"k","user":"u","session":"s","traceparent":"tr","ref":{"key":"off/` +
				llmq.TenantHash("team") + `/` + string(llmq.NewRID("team", "req-1")) + `-d7faf793ef5cb88c","sha256":"` + strings.Repeat("0a", 32) + `","bytes":1008}}`,
		},
		{
			"a body of few characters and many bytes (H05)", func(r *llmq.Request) { r.Body = []byte(`{"x":"` + strings.Repeat("日", 400) + `"}`) },
			`{"v":1,"id":"req-1","op":"chat","model":"m","lane":"rt","fallback":"chain","deadline_ms":946684890000,"tenant":"team","kid":"k","user":"u","session":"s","traceparent":"tr","ref":{"key":"off/` +
				llmq.TenantHash("team") + `/` + string(llmq.NewRID("team", "req-1")) + `-23e7ffd9c1113554","sha256":"` + strings.Repeat("0a", 32) + `","bytes":1208}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, replies(0), func(t *testing.T, r *rig) {
				req := request()
				req.Body = []byte(body)
				tt.change(&req)
				r.wantReply(req)
				if diff := cmp.Diff(tt.want, string(r.sent[0].Body)); diff != "" {
					t.Errorf("message (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// B1: each lane has its queue, and bulk that of bg where the model has none for it, whichever of its names the model is called by.
func TestDo_SendsToTheQueueOfModelAndLane(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		model llmq.ModelRef
		lane  llmq.Lane
		want  string
	}{
		{llmq.ModelRef{Alias: "m"}, llmq.LaneRT, "llm-m-rt"},
		{llmq.ModelRef{Alias: "m"}, llmq.LaneBG, "llm-m"},
		{llmq.ModelRef{Alias: "m"}, llmq.LaneBulk, "llm-m"},
		{llmq.ModelRef{Alias: "m", Target: "t"}, llmq.LaneRT, "llm-m-rt"},
		{llmq.ModelRef{Alias: "gpt-x"}, llmq.LaneRT, "llm-m-rt"},
		{llmq.ModelRef{Alias: "large"}, llmq.LaneBulk, "llm-large-bulk"},
		{llmq.ModelRef{Alias: "large"}, llmq.LaneBG, "llm-large"},
	} {
		t.Run(fmt.Sprint(tt.model, tt.lane), func(t *testing.T) {
			t.Parallel()
			bubble(t, replies(0), func(t *testing.T, r *rig) {
				req := request()
				req.Model, req.Lane = tt.model, tt.lane
				r.wantReply(req)
				s := r.sent[0]
				if string(s.queue) != tt.want || s.Attributes["llmq_lane"] != string(tt.lane) {
					t.Errorf("sent to %s as %s, want %s", s.queue, s.Attributes["llmq_lane"], tt.want)
				}
			})
		})
	}
}

func TestDo_BodyOfExactlyTheLimitGoesInline(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1000, 1001} {
		bubble(t, replies(0), func(t *testing.T, r *rig) {
			req := request()
			req.Body = []byte(`{"x":"` + strings.Repeat("y", n-len(`{"x":""}`)) + `"}`)
			r.wantReply(req)
			if inline := len(r.put) == 0; inline != (n == 1000) {
				t.Errorf("%d bytes inline: %v", n, inline)
			}
		})
	}
}

// What no worker would take is refused before anything is touched, not waited for.
func TestDo_RefusesWhatWouldBeDeadLettered(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		field  string
		change func(*llmq.Request)
	}{
		{"id", func(r *llmq.Request) { r.ID = "" }},
		{"id", func(r *llmq.Request) { r.ID = "a b" }},
		{"id", func(r *llmq.Request) { r.ID = strings.Repeat("x", llmq.MaxIDBytes+1) }},
		{"tenant", func(r *llmq.Request) { r.Tenant = "" }},
		{"tenant", func(r *llmq.Request) { r.Tenant = "Team" }},
		{"lane", func(r *llmq.Request) { r.Lane = "" }},
		{"lane", func(r *llmq.Request) { r.Lane = "fast" }},
		{"deadline", func(r *llmq.Request) { r.Deadline = time.Time{} }},
		{"body", func(r *llmq.Request) { r.Body = nil }},
	} {
		bubble(t, replies(0), func(t *testing.T, r *rig) {
			req := request()
			tt.change(&req)
			if e := r.failure(t.Context(), req, llmq.CodeInvalidRequest); e.Field != tt.field {
				t.Errorf("field %q, want %q", e.Field, tt.field)
			}
			if n := len(r.trips.Seen()); n != 0 {
				t.Errorf("%s: %d round trips, want none", tt.field, n)
			}
			r.want(0, 0)
		})
	}
}

// B8: bg and bulk calls made at once share requests to the queue; an rt call waits for nobody.
func TestDo_BackgroundCallsShareASend(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		for i := range 25 {
			wg.Go(func() {
				req := request()
				req.ID, req.Lane = fmt.Sprint("bg-", i), llmq.LaneBG
				r.wantReply(req)
			})
		}
		wg.Wait()
		if diff := cmp.Diff([]int{10, 10, 5}, r.batches); diff != "" {
			t.Errorf("messages by request: %s", diff)
		}
		began := time.Now()
		r.wantReply(request())
		if took := time.Since(began); took != 0 || len(r.batches) != 3 {
			t.Errorf("the rt call took %s, batches %v", took, r.batches)
		}
	})
}

// A send takes at most half of what is left of the deadline, so that there is time to run.
func TestDo_SendTakesHalfOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, lane := range []llmq.Lane{llmq.LaneRT, llmq.LaneBG} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.sendTakes = time.Hour
			req := request()
			req.Lane = lane
			began := time.Now()
			r.wantError(t.Context(), req, llmq.CodeQueueUnavailable)
			if took := time.Since(began); took != 45*time.Second {
				t.Errorf("%s: given up after %s, want 45s of 90s", lane, took)
			}
		})
	}
}
