package admin

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// killer stands for workers that a message dies at whenever it comes: it is back in the dead-letter queue within
// milliseconds, with its hints as a worker keeps them or with none. It ends with the returned function, which tells how
// many deaths there were.
func (r *rig) killer(t *testing.T, reason string, hints bool) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, deaths := make(chan struct{}), 0
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			msgs, err := r.queue.Receive(ctx, source, queue.Fetch{Max: 10, Hide: time.Minute, Wait: time.Second})
			if err != nil {
				continue // the context's end
			}
			for _, m := range msgs {
				attrs := map[string]string{}
				if hints {
					maps.Copy(attrs, m.Attributes)
				}
				attrs[queue.AttrReason] = reason
				deaths++
				if err := r.queue.Send(ctx, dlq, queue.Outgoing{Body: m.Body, Attributes: attrs}); err != nil {
					t.Errorf("send: %v", err)
				}
				for _, err := range r.queue.Delete(ctx, source, []string{m.Receipt}) {
					if err != nil {
						t.Errorf("delete: %v", err)
					}
				}
			}
		}
	}()
	return func() int { cancel(); <-ended; return deaths }
}

// A message that dies at once, again and again, is sent once by a redrive: it comes back while the page still runs.
func TestRedrive_SendsAPoisonedMessageOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 1)
		stop := r.killer(t, "worker_crash", true)
		out, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"})
		if deaths := stop(); out.Moved != 1 || out.CameBack != 1 || deaths != 1 || !out.Done {
			t.Errorf("answer = %+v after %d deaths, want one moved that came back", out, deaths)
		}
		again, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"})
		if time.Sleep(hideFor); again.Moved != 0 { // in the bubble: it was hidden by the first
			t.Errorf("moved %d that were hidden", again.Moved)
		}
		if next, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"}); next.Moved != 1 || next.CameBack != 0 {
			t.Errorf("a new redrive = %+v, want it sent once more", next)
		}
	})
}

// The same over pages: the cursor knows which redrive it is of.
func TestRedrive_PoisonIsKnownOverPages(t *testing.T) {
	t.Parallel()
	for name, hints := range map[string]bool{"by its attribute": true, "by its time": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				const n = 500
				r.bury(t, "worker_crash", 0, n)
				stop := r.killer(t, "worker_crash", hints)
				out, pages := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"})
				deaths := stop()
				// What dies within the margin of the clocks, and has lost its attributes, may be sent once more.
				most := n
				if !hints {
					most += int(clockMargin.Seconds()) * defaultRate * 2
				}
				if pages < 3 || out.Moved < n || out.Moved > most || deaths != out.Moved || out.CameBack == 0 {
					t.Errorf("%d pages moved %d of %d, %d died, %d came back", pages, out.Moved, n, deaths, out.CameBack)
				}
			})
		})
	}
}

// What can't but die again stays, and the answer says how many and why; who asks for the reason gets it sent.
func TestRedrive_LeavesWhatItCannotMend(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 2)
		r.bury(t, "wrong_queue", 10, 3)
		r.bury(t, "idempotency_mismatch", 20, 1)
		dry, err := page(t.Context(), r, RedriveRequest{Queue: source, DryRun: true})
		if err != nil || dry.Matching != 2 {
			t.Errorf("dry run = %+v, %v; want two that would be sent", dry, err)
		}
		out, _ := redriveAll(t, r, RedriveRequest{Queue: dlq})
		want := Redriven{
			Queue: source, Moved: 2, Left: 6, Done: true, HiddenFor: 120, Hopeless: map[string]int{"wrong_queue": 3, "idempotency_mismatch": 1},
			Reasons: map[string]int{"worker_crash": 2, "wrong_queue": 3, "idempotency_mismatch": 1},
		}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
		time.Sleep(hideFor) // in the bubble
		if out, _ := redriveAll(t, r, RedriveRequest{Queue: source, Reason: "wrong_queue"}); out.Moved != 3 || out.Skipped != 1 {
			t.Errorf("answer = %+v, want those of the reason sent", out)
		}
	})
}

// A message that is full of attributes gives up one of them for the redrive's id.
func TestRedrive_TenAttributesStayTen(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		body, err := llmq.Envelope{ID: "r-0", Op: llmq.OpChat, Model: "chat-a", Lane: llmq.LaneBG, Tenant: "acme", Deadline: time.UnixMilli(1000), Params: []byte(`{}`)}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		attrs := map[string]string{}
		for i := range mostAttributes {
			attrs["hint"+strings.Repeat("x", i)] = "v"
		}
		if err := r.as("enqueue").Send(t.Context(), dlq, queue.Outgoing{Body: body, Attributes: attrs}); err != nil { // as SQS moves it
			t.Fatal(err)
		}
		if out, _ := redriveAll(t, r, RedriveRequest{Queue: source}); out.Moved != 1 {
			t.Errorf("answer = %+v", out)
		}
		if got := r.drain(t, source); len(got) != 1 || len(got[0].Attributes) != mostAttributes || got[0].Attributes[attrRedrive] == "" {
			t.Errorf("came = %+v", got)
		}
	})
}

func TestPick_QueueOrModelAndLane(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		for _, tt := range []struct {
			queue queue.Name
			model string
			lane  llmq.Lane
			code  llmq.Code // "" is found
		}{
			{"", "chat-a", "bg", ""},
			{source, "", "", ""},
			{dlq, "", "", ""},
			{source, "chat-a", "bg", ""},
			{source, "chat-a", "rt", llmq.CodeInvalidRequest},
			{source, "chat-b", "", llmq.CodeInvalidRequest},
			{"llm-nope", "", "", llmq.CodeInvalidRequest},
			{"", "", "", llmq.CodeInvalidRequest},
		} {
			p, err := r.pick(tt.queue, tt.model, tt.lane)
			if tt.code == "" && (err != nil || p.queue != source) || tt.code != "" && llmq.AsError(err).Code != tt.code {
				t.Errorf("%q %q %q: %s, %v", tt.queue, tt.model, tt.lane, p.queue, err)
			}
		}
	})
}
