package admin

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// B14: dead letters are shown with reason, attempts, last class and id, and stay where they are for a redrive at once. What can't be read, or is
// a stranger's, tells only why it is there.
func TestDead_ShowsWhyAndLeavesThem(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		now := time.Now()
		r.bury(t, "worker_crash", 0, 1)
		r.bury(t, "wrong_queue", 1, 1)
		r.bury(t, "", 2, 1)
		r.send(t, dlq, queue.Outgoing{Body: []byte(`{`), Attributes: map[string]string{
			queue.AttrTenant: "acme", queue.AttrReason: "bad_envelope", queue.AttrError: "no", queue.AttrAttempts: "3", queue.AttrClass: "timeout",
		}})
		if err := r.as("stranger").Send(t.Context(), dlq, queue.Outgoing{Body: []byte(`{}`), Attributes: map[string]string{queue.AttrReason: "<b>", queue.AttrAttempts: "many", queue.AttrClass: "<i>"}}); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the first look has given them back
			got, err := r.Dead(t.Context(), "arn:ops", DeadRequest{Model: "chat-a", Lane: "bg"})
			if err != nil {
				t.Fatal(err)
			}
			want := DeadLetters{Queue: source, Left: 5, Letters: []DeadLetter{
				{ID: "r-0", Tenant: "acme", Reason: "worker_crash", Error: "it went wrong", Died: now},
				{ID: "r-1", Tenant: "acme", Reason: "wrong_queue", Error: "it went wrong", Hopeless: true, Died: now},
				{ID: "r-2", Tenant: "acme", Reason: "none", Died: now},
				{Reason: "bad_envelope", Error: "no", Attempts: 3, LastClass: "timeout", Hopeless: true, Died: now},
				{Reason: "none", Died: now},
			}}
			byReason := cmpopts.SortSlices(func(a, b DeadLetter) bool { return a.Reason+a.ID < b.Reason+b.ID })
			if diff := cmp.Diff(want, got, byReason, cmpopts.EquateApproxTime(time.Second)); diff != "" {
				t.Errorf("dead letters (-want +got):\n%s", diff)
			}
		}
		if out, _ := redriveAll(t, r, RedriveRequest{Queue: dlq}); out.Moved != 2 {
			t.Errorf("a redrive right after it: %+v", out)
		}
	})
}

func TestDead_IsBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 30)
		for limit, want := range map[int]int{0: 20, 7: 7, 100: 30} {
			got, err := r.Dead(t.Context(), "arn:ops", DeadRequest{Queue: dlq, Limit: limit})
			if err != nil || len(got.Letters) != want || got.Left != 30 {
				t.Errorf("limit %d: %d of %d letters, %v", limit, len(got.Letters), got.Left, err)
			}
		}
		for _, ask := range []DeadRequest{{Queue: dlq, Limit: 101}, {Queue: dlq, Limit: -1}, {Queue: "llm-chat-b"}, {Model: "chat-a"}} {
			if _, err := r.Dead(t.Context(), "arn:ops", ask); !errors.Is(err, llmq.CodeInvalidRequest) {
				t.Errorf("%+v: %v", ask, err)
			}
		}
	})
}

// A redrive leaves what it did not send out of sight for two minutes; the status counts it all the same.
func TestStatus_CountsHiddenDeadLetters(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "wrong_queue", 0, 3)
		redriveAll(t, r, RedriveRequest{Queue: dlq})
		q := QueueStatus{Queue: source}
		if err := r.readQueue(t.Context(), &q); err != nil || q.DeadLetters != 3 {
			t.Errorf("%d dead letters, %v; want 3", q.DeadLetters, err)
		}
	})
}
