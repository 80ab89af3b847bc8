package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// A6: a job is submitted as a call is: its queue and function are the model, it runs in bulk, and its payload is passed on byte
// for byte, whatever its members are called.
func TestNative_Job(t *testing.T) {
	t.Parallel()
	const payload = `{"stream": "x", "max_tokens": "many",  "file_id": 1.0, "Model": {"N": 1}, "N": "all", "\u0074ools": 7}`
	b := setup(t, nil)
	if w := b.submit(`{"op":"job","model":"reports@monthly","body":` + payload + `}`); w.Code != http.StatusAccepted {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	r := b.calls.requests()[0]
	if diff := cmp.Diff(llmq.ModelRef{Alias: "reports", Target: "monthly"}, r.Model); diff != "" || r.Op != llmq.OpJob || r.Lane != llmq.LaneBulk || string(r.Body) != payload || r.Stream {
		t.Errorf("left was %+v %s", r, diff)
	}
}

// What can't be a job is refused at the door; no wire of models reaches a queue of jobs, and no list of models names it.
func TestNative_JobRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for name, tc := range map[string]struct {
		body, field, says string
		code              llmq.Code
	}{
		"no function":       {`{"op":"job","model":"reports","body":{}}`, "model", "write reports@FUNCTION", llmq.CodeInvalidRequest},
		"no such queue":     {`{"op":"job","model":"report@x","body":{}}`, "model", "did you mean reports?", llmq.CodeModelNotFound},
		"a model":           {`{"op":"job","model":"chat-a","body":{}}`, "model", "does not speak the job wire", llmq.CodeWrongWire},
		"another lane":      {`{"op":"job","model":"reports@x","lane":"rt","body":{}}`, "lane", "run in bulk", llmq.CodeInvalidRequest},
		"a chat with it":    {`{"op":"chat","model":"reports","body":{}}`, "model", "takes as op job", llmq.CodeWrongWire},
		"no object":         {`{"op":"job","model":"reports@x","body":[1]}`, "body", "not a JSON object", llmq.CodeInvalidRequest},
		"headers with them": {`{"op":"job","model":"reports@x","headers":{"X":"y"},"body":{}}`, "headers", "not passed on with job", llmq.CodeInvalidRequest},
	} {
		w := b.submit(tc.body)
		if e := nativeErrorOf(t, w); e.Code != string(tc.code) || e.Field != tc.field || !strings.Contains(e.Message, tc.says) {
			t.Errorf("%s: %d %+v", name, w.Code, e)
		}
	}
	if w := b.send(http.MethodGet, "/v1/models", ""); strings.Contains(w.Body.String(), "reports") {
		t.Errorf("the models are %s", w.Body)
	}
}
