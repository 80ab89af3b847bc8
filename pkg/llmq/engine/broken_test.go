package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/engine"
)

// H19: a page, blank lines and what is no JSON are failures of the target. Where another serves, the caller sees nothing of it; where
// none does it is told in our words, and nothing that is no JSON is stored. Blank lines before a reply and a byte order mark are no fault.
func TestRun_BodiesThatAreNoReply(t *testing.T) {
	t.Parallel()
	const page = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center></body>\r\n</html>\r\n"
	good := chatted().body
	for name, tc := range map[string]struct {
		answer answer
		tries  int // at that target; 0: it is a reply
	}{
		"a: a page":                     {answer{status: 502, header: map[string]string{"Content-Type": "text/html"}, body: page}, 3},
		"a: a page that says 200":       {answer{status: 200, header: map[string]string{"Content-Type": "text/html"}, body: page}, 3},
		"b: blank lines and a reply":    {answer{status: 200, body: "\n\n\n\n" + good}, 0},
		"c: blank lines and no more":    {answer{status: 200, body: "\n\n"}, 3},
		"d: a number that JSON lacks":   {answer{status: 200, body: `{"choices":[{"logprobs":{"content":[{"token":"a","logprob":-Infinity}]}}]}`}, 1},
		"e: a byte order mark in front": {answer{status: 200, body: "\xef\xbb\xbf" + good}, 0},
	} {
		for _, spare := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", alone", true: ", with a spare"}[spare], func(t *testing.T) {
				t.Parallel()
				bubble(t, nil, func(t *testing.T, r *rig) {
					lines := []*line{{answers: []answer{tc.answer}}}
					if spare {
						lines = append(lines, &line{answers: []answer{chatted()}})
					}
					r.wired(llmq.WireOpenAI, lines...)
					req := asked(llmq.WireOpenAI)
					v := r.engine.Run(t.Context(), engine.Call{Request: req})
					if got := lines[0].calls(); got != max(1, tc.tries) {
						t.Errorf("%d tries, want %d", got, max(1, tc.tries))
					}
					if spare || tc.tries == 0 {
						wantVerdict(t, v, engine.Stored, "ok")
						if reply := r.stored(req).Reply; reply == nil || strings.TrimSpace(string(reply.Body)) != good || reply.Meta.Fallback != (tc.tries > 0) {
							t.Errorf("stored %+v", reply)
						}
						return
					}
					e := r.wantStored(req, llmq.CodeProviderError)
					if e.Code.Info().Status != 502 || strings.ContainsAny(e.Message, "<>") || len(e.Message) > 300 {
						t.Errorf("the caller is told %d %q", e.Code.Info().Status, e.Message)
					}
				})
			})
		}
	}
}

// H19 b: blank lines that trickle in are no fault, and don't prolong what an attempt may take.
func TestRun_TricklingReplyIsBoundByTheAttempt(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, r *rig) {
		slow, spare := &line{answers: []answer{{status: 200, body: strings.Repeat("\n", 600) + chatted().body, every: time.Second}}}, &line{answers: []answer{chatted()}}
		r.attempt = 5 * time.Second
		r.wired(llmq.WireOpenAI, slow, spare)
		req, start := asked(llmq.WireOpenAI), time.Now()
		wantVerdict(t, r.engine.Run(t.Context(), engine.Call{Request: req}), engine.Stored, "ok")
		if m := r.stored(req).Reply.Meta; m.Target != "1" || time.Since(start) > 40*time.Second {
			t.Errorf("served by %s after %v", m.Target, time.Since(start))
		}
	})
}
