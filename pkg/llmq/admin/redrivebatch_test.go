package admin

import (
	"context"
	"strings"
	"testing"
	"time"

	local "github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
	"github.com/llm-queue/llmq/pkg/llmq/queue/sqs"
)

// B14: ten dead letters are one request to the queue; no send of a single one is needed.
func TestRedrive_SendsInBatches(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 30)
		defer r.server.Inject(local.Fault{Kind: local.Refuse, Op: "SendMessage"})()
		if out, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg", MaxRate: 100}); out.Moved != 30 || out.Failed != 0 {
			t.Errorf("answer = %+v, want all moved", out)
		}
	})
}

// choosy is a queue that does not take the first message of a request.
type choosy struct{ queue.Operator }

func (c choosy) SendAll(ctx context.Context, q queue.Name, ms []queue.Outgoing) []error {
	refused := []error{llmq.Errorf(llmq.CodeQueueUnavailable, "the queue did not take it").Because(queue.ErrRefused)}
	return append(refused, c.Operator.SendAll(ctx, q, ms[1:])...)
}

// B14: of a request that the queue takes in part, what was taken is deleted and counted as moved, and the rest is left.
func TestRedrive_PartlyTakenBatchIsToldApart(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 10)
		r.deps.Queue = choosy{r.queue}
		out, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"})
		sent := len(r.drain(t, source))
		time.Sleep(hideFor) // in the bubble
		if left := len(r.drain(t, dlq)); out.Moved != 9 || out.Failed != 1 || sent != 9 || left != 1 {
			t.Errorf("answer = %+v, %d came and %d are left; want 9 moved and 1 left", out, sent, left)
		}
	})
}

// B14: a dead letter of the largest size is sent again as any other. Where what a redrive adds no longer fits, to the byte, its
// body is put aside.
func TestRedrive_LargestDeadLetterIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		over  int // of what is sent again, beyond what fits; below 0 the dead letter itself is as large as can be
		aside bool
	}{"what just fits": {0, false}, "a byte more": {1, true}, "the largest message": {-1, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				env := llmq.Envelope{ID: "r-0", Op: llmq.OpChat, Model: "chat-a", Params: []byte(`{"x":""}`)}
				body := encoded(t, env)
				again := env
				again.Tenant, again.Generation, again.Deadline = "billing", 1, time.Now().Add(300*time.Second)
				added := queue.Outgoing{Body: encoded(t, again), Attributes: map[string]string{attrRedrive: strings.Repeat("i", redriveIDChars)}}
				room := sqs.MaxMessageBytes - added.Size() + tt.over
				if tt.over < 0 {
					room = sqs.MaxMessageBytes - len(body)
				}
				env.Params = []byte(`{"x":"` + strings.Repeat("x", room) + `"}`)
				if err := r.as("billing").Send(t.Context(), dlq, queue.Outgoing{Body: encoded(t, env)}); err != nil {
					t.Fatal(err)
				}
				out, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"})
				came := r.drain(t, source)
				if out.Moved != 1 || len(came) != 1 || came[0].Attributes[attrRedrive] == "" {
					t.Fatalf("answer = %+v, %d came", out, len(came))
				}
				got, err := llmq.DecodeEnvelope(came[0].Body)
				if err != nil || (got.Ref != nil) != tt.aside || got.Generation != 1 || got.Tenant != "billing" {
					t.Errorf("put aside: %t; %.200s, %v", got.Ref != nil, came[0].Body, err)
				}
				if key := (llmq.Request{ID: "r-0", Tenant: "billing"}).BodyKey(env.Params); tt.aside && r.bodies[key] != string(env.Params) {
					t.Errorf("%d bodies, none as it was", len(r.bodies))
				}
			})
		})
	}
}

func encoded(t *testing.T, env llmq.Envelope) []byte {
	t.Helper()
	body, err := env.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return body
}
