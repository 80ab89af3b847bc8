package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/queue"
)

// B12, S40: a purge asks for the name twice, counts what was there, and says when SQS refuses the next.
func TestPurge_NeedsTheNameAndAMinute(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bury(t, "worker_crash", 0, 3)
		for name, tt := range map[string]struct {
			ask   PurgeRequest
			field string
		}{
			"no queue":          {PurgeRequest{}, "queue"},
			"a stranger's":      {PurgeRequest{Queue: "other", Confirm: "other"}, "queue"},
			"not confirmed":     {PurgeRequest{Queue: dlq}, "confirm"},
			"confirmed another": {PurgeRequest{Queue: dlq, Confirm: source}, "confirm"},
		} {
			_, err := r.Purge(t.Context(), "arn:ops", tt.ask)
			if !errors.Is(err, llmq.CodeInvalidRequest) || llmq.AsError(err).Field != tt.field {
				t.Errorf("%s: %v, want a fault of %s", name, err, tt.field)
			}
		}
		sure := PurgeRequest{Queue: dlq, Confirm: dlq}
		got, err := r.Purge(t.Context(), "arn:ops", sure)
		if err != nil || got.Messages != 3 {
			t.Errorf("purge = %+v, %v", got, err)
		}
		_, err = r.Purge(t.Context(), "arn:ops", sure)
		if e := llmq.AsError(err); !errors.Is(err, llmq.CodeRateLimited) || e.RetryAfter != time.Minute || !strings.Contains(e.Message, "60 s") {
			t.Errorf("purge again = %v", err)
		}
		time.Sleep(61 * time.Second) // in the bubble
		if _, err := r.Purge(t.Context(), "arn:ops", sure); err != nil {
			t.Errorf("purge after a minute = %v", err)
		}
		if n := strings.Count(r.log.String(), "verb=purge"); n != 7 {
			t.Errorf("%d of 7 purges are in the log, refused ones included", n)
		}
	})
}

// B12: pause and resume ask once, ask nothing of a source that is there, and wait a while for one that is being changed.
func TestPause_AsksForWhatIsMissing(t *testing.T) {
	t.Parallel()
	busy := fmt.Errorf("change: %w", queue.ErrBusy)
	for _, tt := range []struct {
		name   string
		state  queue.SourceState
		resume bool
		fail   []error
		want   queue.SourceState
		code   llmq.Code
		calls  []string
	}{
		{"pause", queue.SourceEnabled, false, nil, queue.SourceDisabling, "", []string{"enable u false"}},
		{"pause a paused one", queue.SourceDisabled, false, nil, queue.SourceDisabled, "", nil},
		{"pause one on its way", queue.SourceDisabling, false, nil, queue.SourceDisabling, "", nil},
		{"resume", queue.SourceDisabled, true, nil, queue.SourceEnabling, "", []string{"enable u true"}},
		{"resume a running one", queue.SourceEnabled, true, nil, queue.SourceEnabled, "", nil},
		{"the governor is at it", queue.SourceEnabled, false, []error{busy, busy}, queue.SourceDisabling, "", slices.Repeat([]string{"enable u false"}, 3)},
		{"busy for long", queue.SourceEnabled, false, slices.Repeat([]error{busy}, 9), "", llmq.CodeQueueUnavailable, slices.Repeat([]string{"enable u false"}, 5)},
		{"throttled for long", queue.SourceEnabled, false, slices.Repeat([]error{queue.ErrThrottled}, 9), "", llmq.CodeQueueUnavailable, slices.Repeat([]string{"enable u false"}, 5)},
		{"gone meanwhile", queue.SourceEnabled, false, []error{queue.ErrNoSource}, "", llmq.CodeConfiguration, []string{"enable u false"}},
		{"refused", queue.SourceEnabled, false, []error{errors.New("access denied")}, "", llmq.CodeQueueUnavailable, []string{"enable u false"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				r.sources.list = map[string][]queue.Source{"worker-bg": {{ID: "other", Queue: "llm-other"}, {ID: "u", Queue: source, State: tt.state}}}
				r.sources.fail = tt.fail
				verb := r.Pause
				if tt.resume {
					verb = r.Resume
				}
				got, err := verb(t.Context(), "arn:ops", SwitchRequest{Model: "chat-a", Lane: "bg"})
				if tt.code != "" && !errors.Is(err, tt.code) || tt.code == "" && err != nil {
					t.Errorf("error = %v, want %q", err, tt.code)
				}
				if got.State != tt.want {
					t.Errorf("state = %q, want %q", got.State, tt.want)
				}
				calls := slices.DeleteFunc(r.sources.calls, func(c string) bool { return strings.HasPrefix(c, "list ") })
				if diff := cmp.Diff(tt.calls, calls, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("changes asked for (-want +got):\n%s", diff)
				}
				if !strings.Contains(r.log.String(), "by=arn:ops") {
					t.Error("the log does not tell of it")
				}
			})
		})
	}
}

// A lane whose calls use another's queue can't be paused alone, and the answer says what can.
func TestPause_NamesTheQueueThatIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.server.Close()
		_, err := r.Pause(t.Context(), "arn:ops", SwitchRequest{Model: "chat-a", Lane: "bulk"})
		if !errors.Is(err, llmq.CodeInvalidRequest) || !strings.Contains(err.Error(), "bg queue") {
			t.Errorf("error = %v", err)
		}
	})
}
