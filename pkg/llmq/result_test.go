package llmq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func meta() llmq.Meta {
	return llmq.Meta{
		RequestID: "req-1", Model: "chat-a", Target: "main", Provider: "openai", ModelID: "gpt-x", Lane: llmq.LaneRT, Fallback: true,
		Attempts: 2, Takeovers: 1, QueueWait: 1500 * time.Millisecond, Provided: 2 * time.Second, Worker: "w1",
	}
}

func reply() llmq.Result {
	return llmq.Result{RID: llmq.NewRID("team-a", "req-1"), Tenant: "team-a", BodyHash: "q83v", Reply: &llmq.Reply{
		Status: 201, ContentType: "application/json", Body: []byte("{ \"a\" : \"<b>&\u2028\uFFFE\",\n\t\"n\":1.0 }"), Meta: meta(),
	}}
}

func failure() llmq.Result {
	e := llmq.Errorf(llmq.CodeRateLimited, "chat-a@main: <slow down> & wait").At("model").After(2500 * time.Millisecond)
	e.Meta = meta()
	return llmq.Result{RID: llmq.NewRID("team-a", "req-1"), Tenant: "team-a", Err: e}
}

func TestResult_GoldenAndBack(t *testing.T) {
	t.Parallel()
	ref := &llmq.Ref{Key: "res/aaaa/b", SHA256: strings.Repeat("0a", 32), Bytes: 4711}
	aside := reply()
	aside.Reply.Body = nil
	for _, tc := range []struct {
		name string
		in   llmq.Result
		ref  *llmq.Ref
		want llmq.Result
	}{
		{"result_reply.json", reply(), nil, reply()},
		{"result_error.json", failure(), nil, failure()},
		{"result_ref.json", reply(), ref, aside},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b, err := llmq.EncodeResult(tc.in, tc.ref)
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			golden(t, tc.name, b)
			got, gotRef, err := llmq.DecodeResult(b, tc.in.RID, tc.in.Tenant)
			if err != nil {
				t.Fatalf("decode: %v", err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.ref, gotRef); diff != "" {
				t.Errorf("ref (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(meta(), got.Meta()); diff != "" {
				t.Errorf("meta (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodeResult_NeedsAReplyOrAnError(t *testing.T) {
	t.Parallel()
	both := reply()
	both.Err = failure().Err
	for name, r := range map[string]llmq.Result{"neither": {RID: "r", Tenant: "t"}, "both": both} {
		if b, err := llmq.EncodeResult(r, nil); err == nil {
			t.Errorf("%s: encoded as %s", name, b)
		}
	}
}

// KT6: a stored result is compared with whose it should be before anything of it is used.
func TestDecodeResult_RefusesAnothersAndWhatIsNone(t *testing.T) {
	t.Parallel()
	b, err := llmq.EncodeResult(reply(), nil)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	own := llmq.NewRID("team-a", "req-1")
	for _, tc := range []struct {
		name   string
		stored []byte
		rid    llmq.RID
		tenant string
	}{
		{"another request's", b, llmq.NewRID("team-a", "req-2"), "team-a"},
		{"another tenant's", b, own, "team-b"},
		{"same id, another tenant's", b, llmq.NewRID("team-b", "req-1"), "team-b"},
		{"newer", []byte(strings.Replace(string(b), `"v":1`, `"v":2`, 1)), own, "team-a"},
		{"without a version", []byte(strings.Replace(string(b), `"v":1,`, "", 1)), own, "team-a"},
		{"without reply or error", []byte(strings.Replace(string(b), `"status":201,`, "", 1)), own, "team-a"},
		{"no JSON", []byte("OK"), own, "team-a"},
		{"cut short", b[:len(b)-5], own, "team-a"},
		{"empty", nil, own, "team-a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, ref, err := llmq.DecodeResult(tc.stored, tc.rid, tc.tenant)
			if err == nil || got.Reply != nil || got.Err != nil || ref != nil {
				t.Errorf("got %+v, %v, %v; want an error and nothing else", got, ref, err)
			}
			if err != nil && strings.Contains(err.Error(), "<b>") {
				t.Errorf("the error quotes the body: %v", err)
			}
		})
	}
}

func TestMeta_JSONIsThatOfResults(t *testing.T) {
	t.Parallel()
	b, err := meta().MarshalJSON()
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	var back llmq.Meta
	if err := back.UnmarshalJSON(b); err != nil {
		t.Fatalf("unmarshal: %v", err)
	}
	if diff := cmp.Diff(meta(), back); diff != "" {
		t.Errorf("round trip (-want +got):\n%s", diff)
	}
	if err := back.UnmarshalJSON([]byte("[]")); err == nil {
		t.Error("a list passed for meta")
	}
}

func TestError_IsAndAsSeeThroughWraps(t *testing.T) {
	t.Parallel()
	cause := errors.New("socket closed")
	base := llmq.Errorf(llmq.CodeRateLimited, "slow %s", "down").At("model").After(time.Second).Because(cause)
	wrapped := errors.Join(errors.New("other"), wrap{wrap{base}})
	if !errors.Is(wrapped, llmq.CodeRateLimited) || errors.Is(wrapped, llmq.CodeTimeout) || !errors.Is(wrapped, cause) {
		t.Errorf("errors.Is does not see the code and the cause, or sees others: %v", wrapped)
	}
	if got, ok := errors.AsType[*llmq.Error](wrapped); !ok || got != base {
		t.Errorf("AsType = %v, want the error itself", got)
	}
	if llmq.AsError(wrapped) != base {
		t.Error("AsError lost the error")
	}
	if got, want := base.Error(), "rate_limited: slow down: socket closed"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
	if e := llmq.AsError(cause); e.Code != llmq.CodeInternal || !errors.Is(e, cause) || strings.Contains(e.Message, "socket") {
		t.Errorf("AsError of a foreign error = %v; want internal_error that keeps the cause for itself", e)
	}
	if llmq.AsError(nil) != nil {
		t.Error("AsError(nil) is an error")
	}
}

type wrap struct{ error }

func (w wrap) Unwrap() error { return w.error }
