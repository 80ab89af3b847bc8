package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	local "github.com/llm-queue/llmq/local/cloud/sqs"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// bubble runs a test on a rig in virtual time.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.server.Close()
		test(t, r)
	})
}

// redriveAll asks for page after page, each with the time that an invocation has.
func redriveAll(t *testing.T, r *rig, ask RedriveRequest) (last Redriven, pages int) {
	t.Helper()
	for pages = 1; ; pages++ {
		out, err := page(t.Context(), r, ask)
		if err != nil {
			t.Fatal(err)
		}
		if out.Done {
			return out, pages
		}
		if pages == 1000 {
			t.Fatal("a redrive that does not end")
		}
		ask.Cursor = out.Cursor
	}
}

func page(ctx context.Context, r *rig, ask RedriveRequest) (Redriven, error) {
	ctx, cancel := context.WithTimeout(ctx, 25*time.Second)
	defer cancel()
	return r.Redrive(ctx, "arn:ops", ask)
}

// B14, S47: a dead letter comes back as a new message: next generation, fresh deadline, the same body, tenant and
// hints, nothing of its death.
func TestRedrive_IsANewMessage(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 1)
		now := time.Now()
		out, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"})
		if out.Moved != 1 || out.Left != 1 || out.Reasons["worker_crash"] != 1 {
			t.Errorf("answer = %+v", out)
		}
		got := r.drain(t, source)
		if len(got) != 1 || len(r.drain(t, dlq)) != 0 {
			t.Fatalf("%d messages came", len(got))
		}
		env, err := llmq.DecodeEnvelope(got[0].Body)
		if err != nil {
			t.Fatal(err)
		}
		if d := env.Deadline.Sub(now); d < 300*time.Second || d > 301*time.Second {
			t.Errorf("deadline in %s, want the lane's time-out", d)
		}
		env.Deadline = time.Time{}
		want := llmq.Envelope{
			ID: "r-0", Op: llmq.OpChat, Model: "chat-a", Lane: llmq.LaneBG, Tenant: "acme", Generation: 1, Params: []byte(`{ "x":"<b>&</b>" }`),
		}
		if diff := cmp.Diff(want, env); diff != "" {
			t.Errorf("envelope (-want +got):\n%s", diff)
		}
		if len(got[0].Attributes[attrRedrive]) != redriveIDChars {
			t.Errorf("redrive id = %q", got[0].Attributes[attrRedrive])
		}
		delete(got[0].Attributes, attrRedrive)
		if diff := cmp.Diff(map[string]string{"llmq_op": "chat"}, got[0].Attributes); diff != "" {
			t.Errorf("hints (-want +got):\n%s", diff)
		}
	})
}

// B14: only the reason that was asked for; what is no request stays.
func TestRedrive_ByReason(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 12)
		r.bury(t, "wrong_queue", 100, 7)
		r.bury(t, "", 200, 3)
		r.send(t, dlq, queue.Outgoing{Body: []byte(`{"v":1,"v":1}`), Attributes: map[string]string{queue.AttrReason: "worker_crash"}})
		out, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg", Reason: "worker_crash", MaxRate: 100})
		want := Redriven{
			Queue: source, Moved: 12, Skipped: 10, Unreadable: 1, Left: 23, Done: true, HiddenFor: 120,
			Reasons: map[string]int{"worker_crash": 13, "wrong_queue": 7, noReason: 3},
		}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
		if n := len(r.drain(t, source)); n != 12 {
			t.Errorf("%d messages came", n)
		}
		time.Sleep(hideFor) // in the bubble
		if n := len(r.drain(t, dlq)); n != 11 {
			t.Errorf("%d dead letters are left, want 11", n)
		}
	})
}

// B14: pages end before their invocation does, hold the rate over all of them, and lose nothing between.
func TestRedrive_PagesHoldTheRate(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 500)
		start := time.Now()
		out, pages := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"}) // 10 a second
		took := time.Since(start)
		if out.Moved != 500 || pages < 3 {
			t.Errorf("moved %d in %d pages", out.Moved, pages)
		}
		if took < 48*time.Second || took > 60*time.Second {
			t.Errorf("500 at 10/s took %s", took)
		}
		if n := len(r.drain(t, source)); n != 500 {
			t.Errorf("%d messages came", n)
		}
	})
}

// B14: a dry run says count and time, sends nothing, and hides nothing.
func TestRedrive_DryRunOnlyLooks(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 25)
		r.bury(t, "wrong_queue", 100, 5)
		for range 2 { // the first hid nothing from the second
			out, err := page(t.Context(), r, RedriveRequest{Model: "chat-a", Lane: "bg", Reason: "worker_crash", DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			want := Redriven{
				Queue: source, DryRun: true, Skipped: 5, Left: 30, Done: true, Matching: 25, Seconds: 3,
				Reasons: map[string]int{"worker_crash": 25, "wrong_queue": 5},
			}
			if diff := cmp.Diff(want, out); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		}
		if n := len(r.drain(t, source)); n != 0 {
			t.Errorf("a dry run sent %d messages", n)
		}
	})
}

func TestRedrive_DryRunReckonsALongQueue(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, dryRunMost+200)
		out, err := page(t.Context(), r, RedriveRequest{Model: "chat-a", Lane: "bg", DryRun: true, MaxRate: 100})
		if err != nil {
			t.Fatal(err)
		}
		if !out.Estimated || out.Matching != dryRunMost+200 || out.Seconds != 12 {
			t.Errorf("answer = %+v", out)
		}
	})
}

// DS: send first, delete then. Whatever is cut off in mid-page, nothing is lost, and what comes twice comes under one id and one
// generation.
func TestRedrive_KilledInMidPageLosesNothing(t *testing.T) {
	t.Parallel()
	for _, f := range []local.Fault{
		{Kind: local.Refuse, Op: "DeleteMessageBatch", Times: 1},
		{Kind: local.LoseAnswer, Op: "DeleteMessageBatch", Times: 1},
		{Kind: local.Hang, Op: "DeleteMessageBatch", Times: 1},
		{Kind: local.LoseAnswer, Op: "SendMessageBatch", Times: 2},
		{Kind: local.Refuse, Op: "SendMessageBatch", Skip: 1, Times: 2},
		{Kind: local.Hang, Op: "SendMessageBatch", Skip: 1, Times: 1},
		{Kind: local.Cut, Op: "ReceiveMessage", Skip: 2, Times: 1},
	} {
		t.Run(f.Kind.String()+" "+f.Op, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				const n = 40
				r.bury(t, "worker_crash", 0, n)
				remove := r.server.Inject(f)
				// The operator asks anew, without the cursor, as after an invocation that died with it.
				for range 10 {
					if out, err := page(t.Context(), r, RedriveRequest{Model: "chat-a", Lane: "bg", MaxRate: 100}); err == nil && out.Done && out.Left == 0 {
						break
					}
					time.Sleep(hideFor) // in the bubble
				}
				remove()
				ids := map[string]int{}
				for _, m := range r.drain(t, source) {
					env, err := llmq.DecodeEnvelope(m.Body)
					if err != nil {
						t.Fatal(err)
					}
					if env.Generation != 1 {
						t.Errorf("%s has generation %d", env.ID, env.Generation)
					}
					ids[env.ID]++
				}
				if len(ids) != n {
					t.Errorf("%d of %d came", len(ids), n)
				}
				if left := len(r.drain(t, dlq)); left != 0 {
					t.Errorf("%d dead letters are left", left)
				}
			})
		})
	}
}

// A killed process does not even get to its delete: the dead letters come back, and are sent again under the same generation.
func TestRedrive_CancelledAfterTheSend(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 10)
		defer r.server.Inject(local.Fault{Kind: local.Hang, Op: "DeleteMessageBatch"})()
		out, err := page(t.Context(), r, RedriveRequest{Model: "chat-a", Lane: "bg"})
		if err != nil || out.Moved != 10 || out.Twice != 10 {
			t.Errorf("answer = %+v, %v; want ten that come up again", out, err)
		}
	})
}

func TestRedrive_RefusesBadInput(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 300)
		first, err := page(t.Context(), r, RedriveRequest{Model: "chat-a", Lane: "bg"})
		if err != nil || first.Cursor == "" {
			t.Fatalf("first page = %+v, %v", first, err)
		}
		for name, tt := range map[string]struct {
			ask   RedriveRequest
			code  llmq.Code
			field string
		}{
			"no model":                {RedriveRequest{Lane: "bg"}, llmq.CodeInvalidRequest, "model"},
			"unknown model":           {RedriveRequest{Model: "nope", Lane: "bg"}, llmq.CodeModelNotFound, "model"},
			"no lane":                 {RedriveRequest{Model: "chat-a"}, llmq.CodeInvalidRequest, "lane"},
			"unknown lane":            {RedriveRequest{Model: "chat-a", Lane: "fast"}, llmq.CodeInvalidRequest, "lane"},
			"a lane without a queue":  {RedriveRequest{Model: "chat-a", Lane: "bulk"}, llmq.CodeInvalidRequest, "lane"},
			"rate too high":           {RedriveRequest{Model: "chat-a", Lane: "bg", MaxRate: 501}, llmq.CodeInvalidRequest, "max_rate"},
			"rate below nothing":      {RedriveRequest{Model: "chat-a", Lane: "bg", MaxRate: -1}, llmq.CodeInvalidRequest, "max_rate"},
			"reason of another shape": {RedriveRequest{Model: "chat-a", Lane: "bg", Reason: "Worker Crash"}, llmq.CodeInvalidRequest, "reason"},
			"reason that is no code":  {RedriveRequest{Model: "chat-a", Lane: "bg", Reason: "nonsense"}, llmq.CodeInvalidRequest, "reason"},
			"cursor that is none":     {RedriveRequest{Model: "chat-a", Lane: "bg", Cursor: "x"}, llmq.CodeInvalidRequest, "cursor"},
			"cursor too long":         {RedriveRequest{Model: "chat-a", Lane: "bg", Cursor: strings.Repeat("A", maxCursorBytes+1)}, llmq.CodeInvalidRequest, "cursor"},
			"cursor of another":       {RedriveRequest{Model: "chat-a", Lane: "bg", Reason: "wrong_queue", Cursor: first.Cursor}, llmq.CodeInvalidRequest, "cursor"},
			"dry run with a cursor":   {RedriveRequest{Model: "chat-a", Lane: "bg", DryRun: true, Cursor: first.Cursor}, llmq.CodeInvalidRequest, "cursor"},
		} {
			_, err := page(t.Context(), r, tt.ask)
			if !errors.Is(err, tt.code) || llmq.AsError(err).Field != tt.field {
				t.Errorf("%s: %v, want %s at %s", name, err, tt.code, tt.field)
			}
		}
	})
}

// B14: a refused reason is told together with those that there are.
func TestRedrive_ListsTheReasons(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		_, err := page(t.Context(), r, RedriveRequest{Model: "chat-a", Lane: "bg", Reason: "nonsense"})
		for _, want := range []string{`"nonsense"`, noReason, string(llmq.CodeWorkerCrash), string(llmq.CodeWrongQueue)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not name %s", err, want)
			}
		}
		for _, reason := range []string{noReason, string(llmq.CodeWorkerCrash)} {
			if _, err := page(t.Context(), r, RedriveRequest{Model: "chat-a", Lane: "bg", Reason: reason}); err != nil {
				t.Errorf("%s: %v", reason, err)
			}
		}
	})
}

// B14: what an earlier look still hides is counted, with the time after which it can be met.
func TestRedrive_TellsOfWhatIsOutOfSight(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "wrong_queue", 0, 9)
		redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"}) // looks at all, and leaves them
		for _, dry := range []bool{true, false} {
			out, err := page(t.Context(), r, RedriveRequest{Model: "chat-a", Lane: "bg", Reason: "wrong_queue", DryRun: dry})
			want := Redriven{Queue: source, DryRun: dry, Left: 9, OutOfSight: 9, HiddenFor: 120, Done: true, Reasons: map[string]int{}}
			if diff := cmp.Diff(want, out); diff != "" || err != nil {
				t.Errorf("dry %t: %v (-want +got):\n%s", dry, err, diff)
			}
		}
		time.Sleep(hideFor) // in the bubble
		if out, _ := redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg", Reason: "wrong_queue"}); out.Moved != 9 || out.OutOfSight != 0 {
			t.Errorf("after that: %+v, want all nine moved", out)
		}
	})
}

// KT7: who did what, and never what a message holds.
func TestRedrive_IsAudited(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 2)
		redriveAll(t, r, RedriveRequest{Model: "chat-a", Lane: "bg"})
		text := r.log.String()
		for _, want := range []string{"msg=operator_verb", "by=arn:ops", "verb=redrive", "model=chat-a", "moved=2"} {
			if !strings.Contains(text, want) {
				t.Errorf("the log lacks %s:\n%s", want, text)
			}
		}
		if strings.Contains(text, "<b>") || strings.Contains(text, "r-0") {
			t.Errorf("the log tells of a message:\n%s", text)
		}
	})
}
