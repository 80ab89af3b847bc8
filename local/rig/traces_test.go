package rig_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// otlp is a collector: it takes OTLP in protobuf over HTTP, or hangs.
type otlp struct {
	*httptest.Server
	hangs bool

	mu    sync.Mutex // guards all below
	calls int
	raw   bytes.Buffer
	spans []span
}

// span is one that came, with its attributes as text.
type span struct {
	trace, id, parent, name, kind, service string
	failed                                 bool
	attrs                                  map[string]string
	began, ended                           uint64
}

func startOTLP(t *testing.T, hangs bool) *otlp {
	t.Helper()
	o := &otlp{hangs: hangs}
	o.Server = httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(o.Close)
	return o
}

func (o *otlp) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	o.mu.Lock()
	o.calls++
	o.raw.Write(body)
	for _, rs := range data.GetResourceSpans() {
		service := ""
		for _, kv := range rs.GetResource().GetAttributes() {
			if kv.GetKey() == "service.name" {
				service = kv.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				o.spans = append(o.spans, read(s, service))
			}
		}
	}
	o.mu.Unlock()
	if o.hangs {
		<-r.Context().Done()
		return
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
	}
}

func read(s *tracepb.Span, service string) span {
	out := span{
		trace: fmt.Sprintf("%x", s.GetTraceId()), id: fmt.Sprintf("%x", s.GetSpanId()), parent: fmt.Sprintf("%x", s.GetParentSpanId()), name: s.GetName(),
		kind: strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_")), service: service,
		failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, attrs: map[string]string{}, began: s.GetStartTimeUnixNano(), ended: s.GetEndTimeUnixNano(),
	}
	for _, kv := range s.GetAttributes() {
		v := kv.GetValue()
		text := v.GetStringValue()
		if text == "" {
			_, text, _ = strings.Cut(strings.ReplaceAll(v.String(), " ", ""), ":")
		}
		out.attrs[kv.GetKey()] = text
	}
	return out
}

// of waits until n spans of a request have come, and returns them in the order of their begin.
func (o *otlp) of(ctx context.Context, t *testing.T, id string, n int) []span {
	t.Helper()
	var got []span
	until(ctx, t, fmt.Sprintf("%d spans of %s", n, id), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		got = nil
		for _, s := range o.spans {
			if s.attrs["llmq.request_id"] == id {
				got = append(got, s)
			}
		}
		return len(got) >= n
	})
	slices.SortStableFunc(got, func(a, b span) int { return int(int64(a.began) - int64(b.began)) })
	return got
}

// tree is how spans hang together, each with what is asked of it.
func tree(spans []span, root string, names ...string) string {
	var b strings.Builder
	var below func(parent, indent string)
	below = func(parent, indent string) {
		for _, s := range spans {
			if s.parent != parent {
				continue
			}
			fmt.Fprintf(&b, "%s%s [%s]", indent, s.name, s.kind)
			for _, name := range names {
				if v, ok := s.attrs[name]; ok {
					fmt.Fprintf(&b, " %s=%s", name, v)
				}
			}
			if s.failed {
				b.WriteString(" failed")
			}
			b.WriteByte('\n')
			below(s.id, indent+"  ")
		}
	}
	below(root, "")
	return b.String()
}

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
	prompt  = "MARKED-PROMPT"
)

// traced is a call at the door of a caller who has a trace of his own, which he does not record.
func traced(ctx context.Context, r *rig.Rig, body string, headers ...string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+r.Key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-"+traceID+"-"+spanID+"-00")
	req.Header.Set("X-LLMQ-User", "MARKED-USER")
	req.Header.Set("X-LLMQ-Session", "MARKED-SESSION")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func body(stream bool) string {
	return fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":%q}]}`, rig.ModelChat, stream, prompt)
}

// E9: one call is one trace, from its caller through the door, the queue and the worker to each attempt, with a retry and a fallback; nothing
// that was said, and no key, is in any byte that is exported, and nothing of the trace goes to the provider.
func TestTraces_OneCallIsOneTrace(t *testing.T) {
	t.Parallel()
	o := startOTLP(t, false)
	r := ownRig(t, rig.Options{Change: func(c *config.Config) {
		c.Traces.Endpoint = o.URL
		c.Timing.RetryBase, c.Timing.RetryAttempts = 100*time.Millisecond, 2
		first := c.Models[0].Targets[0]
		second := first
		second.Name, second.ModelID = "second", "fake-chat-2"
		c.Models[0].Targets = []config.Target{first, second}
	}})
	ctx := within(t, time.Minute)
	if err := r.Fake.Program(server.Match{Model: "fake-chat-1"}, server.Reply{Status: http.StatusInternalServerError, Message: "MARKED-FAILURE " + prompt, Times: 2}); err != nil {
		t.Fatal(err)
	}
	names := []string{"llmq.target", "llmq.attempt", "llmq.fallback", "http.response.status_code", "error.type", "gen_ai.provider.name", "llmq.receive_count", "llmq.outcome"}
	if status, err := traced(ctx, r, body(false), "Idempotency-Key", "call-1"); err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	spans := o.of(ctx, t, "call-1", 6)
	got := tree(spans, spanID, names...)
	t.Logf("the trace of call-1:\n%s", got)
	want := `POST /v1/chat/completions [server] http.response.status_code=200
  send llm-chat-a-rt [producer]
    process llm-chat-a-rt [consumer] llmq.target=chat-a@second llmq.fallback=true llmq.receive_count=1 llmq.outcome=ok
      chat fake-chat-1 [client] llmq.target=chat-a@main llmq.attempt=1 llmq.fallback=false http.response.status_code=500 error.type=server_error gen_ai.provider.name=openai failed
      chat fake-chat-1 [client] llmq.target=chat-a@main llmq.attempt=2 llmq.fallback=false http.response.status_code=500 error.type=server_error gen_ai.provider.name=openai failed
      chat fake-chat-2 [client] llmq.target=chat-a@second llmq.attempt=3 llmq.fallback=true http.response.status_code=200 gen_ai.provider.name=openai
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the trace (-want +got):\n%s", diff)
	}
	for _, s := range spans {
		if s.trace != traceID {
			t.Errorf("%s is part of trace %s", s.name, s.trace)
		}
		if s.ended < s.began {
			t.Errorf("%s ends before it begins", s.name)
		}
	}
	last := spans[len(spans)-1].attrs
	if last["gen_ai.response.model"] != "fake-chat-2" || last["gen_ai.usage.input_tokens"] == "" || last["gen_ai.usage.output_tokens"] == "" || last["server.address"] != "127.0.0.1" {
		t.Errorf("the attempt that served: %v", last)
	}
	if spans[0].service == spans[2].service || !strings.Contains(spans[2].service, "worker") {
		t.Errorf("the door is %s, the worker %s", spans[0].service, spans[2].service)
	}

	// A stream's spans end when it does.
	if status, err := traced(ctx, r, body(true), "Idempotency-Key", "stream-1"); err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	if spans = o.of(ctx, t, "stream-1", 4); spans[3].kind != "client" || spans[3].attrs["llmq.stream"] != "true" || spans[3].attrs["gen_ai.response.model"] != "fake-chat-1" {
		t.Errorf("the stream's trace:\n%s%v", tree(spans, spanID, names...), spans[3].attrs)
	}
	o.mu.Lock()
	exported := o.raw.Bytes()
	o.mu.Unlock()
	for _, secret := range []string{"MARKED", prompt, r.Key, "Bearer"} {
		if bytes.Contains(exported, []byte(secret)) {
			t.Errorf("%.8s… is exported", secret)
		}
	}
	for _, c := range r.Fake.Calls() {
		for name := range c.Header {
			if strings.EqualFold(name, "traceparent") || strings.EqualFold(name, "x-amzn-trace-id") {
				t.Errorf("the provider got %s", name)
			}
		}
	}
}

// E9: a collector that hangs or is not there costs nobody more than the flush's bound, and that once.
func TestTraces_ACollectorThatFailsHurtsNobody(t *testing.T) {
	t.Parallel()
	const calls = 30
	hanging := startOTLP(t, true)
	dead := startOTLP(t, false)
	dead.Close()
	times := map[string]time.Duration{}
	for _, tt := range []struct{ name, url string }{{"off", ""}, {"dead", dead.URL}, {"hanging", hanging.URL}} {
		r := ownRig(t, rig.Options{Change: func(c *config.Config) { c.Traces.Endpoint = tt.url }})
		ctx := within(t, time.Minute)
		var first, worst time.Duration
		var all []time.Duration
		for i := range calls {
			began := time.Now()
			if status, err := traced(ctx, r, body(false)); err != nil || status != http.StatusOK {
				t.Fatalf("%s: call %d: %d, %v", tt.name, i, status, err)
			}
			took := time.Since(began)
			if i == 0 {
				first = took // a cold start, and the one flush that waits
				continue
			}
			worst = max(worst, took)
			all = append(all, took)
		}
		slices.Sort(all)
		times[tt.name] = all[len(all)/2]
		t.Logf("collector %s: first call %s, then median %s, worst %s", tt.name, first.Round(time.Millisecond), times[tt.name].Round(100*time.Microsecond), worst.Round(time.Millisecond))
	}
	for _, name := range []string{"dead", "hanging"} {
		if more := times[name] - times["off"]; more > 100*time.Millisecond { // two cores, and other tests beside
			t.Errorf("with a collector that is %s a call takes %s more", name, more)
		}
	}
	hanging.mu.Lock()
	defer hanging.mu.Unlock()
	if hanging.calls > 4 { // the door's and the worker's processes, each once
		t.Errorf("the hanging collector was asked %d times by %d calls", hanging.calls, calls)
	}
}
