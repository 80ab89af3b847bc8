package client_test

import (
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func TestDo_LargeBodyGoesAside(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		req := request()
		req.Body = []byte(`{"model":"m","x":"` + strings.Repeat("y", 1000) + `"}`)
		r.wantReply(req)
		env, err := llmq.DecodeEnvelope(r.sent[0].Body)
		if err != nil || env.Ref == nil || len(env.Params) != 0 || len(r.sent[0].Body) > 1000 {
			t.Fatalf("envelope %+v, %v", env, err)
		}
		if want := req.BodyKey(req.Body); env.Ref.Key != want || !strings.HasPrefix(want, "off/"+llmq.TenantHash("team")+"/"+string(req.RID())+"-") || string(r.put[want]) != string(req.Body) {
			t.Errorf("body lies at %s", env.Ref.Key)
		}
	})
}

// A body that the bucket does not take in time: nothing was sent, so the caller is not told
// that something goes on, and may try again.
func TestDo_BodyStoreThatHangsIsUnavailableAndNothingIsSent(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.putHang = true
		req := request()
		req.Body = []byte(`{"model":"chat-a","messages":"` + strings.Repeat("x", 2000) + `"}`)
		e := r.failure(t.Context(), req, llmq.CodeQueueUnavailable)
		if strings.Contains(e.Message, "goes on") || len(r.sent) != 0 {
			t.Errorf("error %q, %d messages sent", e.Message, len(r.sent))
		}
	})
}

func TestDo_LargeBodyThatCannotBePutIsNotSent(t *testing.T) {
	t.Parallel()
	bubble(t, replies(0), func(t *testing.T, r *rig) {
		r.putErr = llmq.Errorf(llmq.CodeQueueUnavailable, "the body store can't be reached")
		req := request()
		req.Body = []byte(`{"x":"` + strings.Repeat("y", 1000) + `"}`)
		r.wantError(t.Context(), req, llmq.CodeQueueUnavailable)
		r.want(0, 0)
	})
}
