package rig_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/cloud/lambda"
	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// canary is in everything that must not be told: prompts, replies, errors that providers word, keys, users, sessions, headers.
const canary = "CaNaRy"

// talkative is a rig whose functions log at DEBUG, before a provider that goes wrong as the prompt says.
type talkative struct {
	*rig.Rig
	out *lines
}

func newTalkative(t *testing.T) talkative {
	t.Helper()
	provider := httptest.NewServer(misbehave())
	t.Cleanup(provider.Close)
	out := &lines{}
	r, err := rig.Start(within(t, time.Minute), rig.Options{
		Functions: functions, Output: out, Env: []string{"LLMQ_LOG_LEVEL=debug", "LLMQ_RETRY_BASE_SECS=0.05"},
		Change: func(c *config.Config) {
			c.Providers[0].BaseURL = provider.URL + "/v1"
			c.Models[0].Targets[0].Limits.RPM = 6000
			c.Models[0].Targets[0].Limits.TPM = 6000000
			c.Models[0].Targets = append(c.Models[0].Targets, c.Models[0].Targets[0])
			c.Models[0].Targets[1].Name = "second"
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(r); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(out.tail(40))
		}
	})
	return talkative{r, out}
}

// misbehave answers as the prompt says. What it says of errors quotes the prompt and a key, as real providers do.
func misbehave() http.HandlerFunc {
	tried := make(chan string, 100)
	first := func(what string) bool { // whether this is the first call of that
		for range len(tried) {
			if w := <-tried; w == what {
				return false
			}
		}
		tried <- what
		return true
	}
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		says := func(status int, code string) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Secret", canary+"-header")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"message":"%s-error sk-%s and your prompt was %s-prompt","code":%q,"type":%q}}`, canary, canary, canary, code, code)
		}
		_, rest, _ := strings.Cut(string(body), "do:")
		what, _, _ := strings.Cut(rest, ".")
		switch {
		case what == "retry" && first(what):
			says(http.StatusServiceUnavailable, canary)
		case what == "fallback" && first(what):
			says(http.StatusNotFound, "model_not_found")
		case what == "refuse":
			says(http.StatusBadRequest, "invalid_request_error")
		case what == "auth":
			says(http.StatusUnauthorized, "invalid_api_key")
		case what == "down":
			says(http.StatusInternalServerError, "server_error")
		case what == "html":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>"+canary+"-html")
		case what == "hang":
			<-r.Context().Done()
		case strings.Contains(string(body), `"stream":true`):
			w.Header().Set("Content-Type", "text/event-stream")
			chunk := `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"` + canary + `-reply"},"finish_reason":null}]}` + "\n\n"
			fmt.Fprint(w, chunk)
			if what == "broken" {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			fmt.Fprint(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"`+canary+`-reply"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`)
		}
	}
}

// ask makes a call whose prompt is secret.
func (k talkative) ask(t *testing.T, id, what string, stream bool, pad int, more ...string) (status int, reply string) {
	t.Helper()
	header := map[string]string{"Idempotency-Key": id, "X-LLMQ-User": canary + "-user", "X-LLMQ-Session": canary + "-session", "X-LLMQ-Lane": "bg"}
	for i := 0; i < len(more); i += 2 {
		header[more[i]] = more[i+1]
	}
	body := fmt.Sprintf(`{"model":%q,"stream":%v,"user":"%s-enduser","messages":[{"role":"user","content":"%s-prompt do:%s. %s"}]}`, rig.ModelChat, stream, canary, canary, what, strings.Repeat("x", pad))
	resp, raw := send(t, k.Rig, call{body: body, header: header})
	return resp.StatusCode, string(raw)
}

// lines of one request, as JSON.
func (l *lines) of(id string) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for line := range strings.Lines(l.buf.String()) {
		at := strings.Index(line, "] {")
		if at < 0 {
			continue
		}
		var m map[string]any
		if json.Unmarshal([]byte(line[at+2:]), &m) == nil && m["request_id"] == id {
			m["function"] = strings.Fields(strings.TrimPrefix(line, "["))[0]
			out = append(out, m)
		}
	}
	return out
}

// E8: one call is followed by its id, in what the real functions log: the door sends it, the queue carries it, a worker tries it twice, the
// door answers.
func TestTelemetry_OneCallIsFollowedByItsID(t *testing.T) {
	t.Parallel()
	k := newTalkative(t)
	if status, reply := k.ask(t, "follow-me", "retry", false, 0); status != http.StatusOK || !strings.Contains(reply, canary+"-reply") {
		t.Fatalf("%d %s", status, reply)
	}
	var got []map[string]any
	eventually(t, "the last line of the call", func() bool {
		got = k.out.of("follow-me")
		return slices.ContainsFunc(got, func(m map[string]any) bool { return m["msg"] == "call_answered" })
	})
	door, worker := cloud.FunctionEnqueue, cloud.FunctionWorker(llmq.LaneBG)
	var seen []string
	for _, m := range got {
		seen = append(seen, fmt.Sprint(m["function"], " ", m["msg"]))
	}
	want := []string{
		worker + " call_started", worker + " slot_acquired", worker + " attempt_done", worker + " backoff", worker + " slot_acquired", worker + " attempt_done", worker + " call_done",
	}
	if of := slices.DeleteFunc(slices.Clone(seen), func(s string) bool { return strings.HasPrefix(s, door) }); !slices.Equal(of, want) {
		t.Errorf("the worker's lines are %q, want %q", of, want)
	}
	for _, line := range []string{door + " call_sent", door + " call_answered"} {
		if !slices.Contains(seen, line) {
			t.Errorf("no %q in %q", line, seen)
		}
	}
	for _, m := range got {
		for _, field := range map[string][]string{
			"call_sent": {"queue", "outcome", "send_ms"}, "call_started": {"queue_wait_ms", "message_id", "receives"}, "slot_acquired": {"waited_ms", "target"},
			"attempt_done": {"target", "outcome", "provider_ms", "attempts"}, "backoff": {"sleep_secs"}, "call_done": {"outcome", "attempts", "total_ms"}, "call_answered": {"outcome", "attempts", "total_ms", "worker"},
		}[fmt.Sprint(m["msg"])] {
			if _, there := m[field]; !there {
				t.Errorf("no %s in %v", field, m)
			}
		}
	}
}

// E14, SEC22, SEC23: marked secrets go through every path of the real functions, which log at DEBUG; nothing that is told to anybody but the
// caller holds one. What the caller gets shows that they were there.
func TestTelemetry_NoSecretIsTold(t *testing.T) {
	t.Parallel()
	k := newTalkative(t)
	for i, tc := range []struct {
		what   string
		stream bool
		pad    int
		more   []string
		status int
	}{
		{what: "ok", status: 200},
		{what: "ok", more: []string{"X-LLMQ-Lane", "rt"}, status: 200},
		{what: "ok", stream: true, more: []string{"X-LLMQ-Lane", "rt"}, status: 200},
		{what: "broken", stream: true, more: []string{"X-LLMQ-Lane", "rt"}, status: 200},
		{what: "ok", pad: 300 << 10, status: 200}, // by the bucket
		{what: "retry", status: 200},
		{what: "fallback", status: 200},
		{what: "refuse", status: 400},
		{what: "auth", status: 502},
		{what: "down", more: []string{"X-LLMQ-Lane", "rt"}, status: 502},
		{what: "html", status: 502},
		{what: "hang", more: []string{"X-LLMQ-Timeout-Secs", "3"}, status: 504},
		{what: "ok", more: []string{"X-Request-Id", `{"_aws":{"CloudWatchMetrics":[]}}`}, status: 200},
		{what: "ok", more: []string{"Authorization", "Bearer llmq_local_" + canary}, status: 401},
		{what: "ok", more: []string{"Idempotency-Key", `{"_aws":{"Timestamp":1}}`}, status: 400},
		{what: "ok", more: []string{"X-LLMQ-Session", strings.Repeat(canary, 50)}, status: 400},
	} {
		status, reply := k.ask(t, fmt.Sprintf("secret-%d", i), tc.what, tc.stream, tc.pad, tc.more...)
		if status != tc.status || status == 200 && !strings.Contains(reply, canary+"-reply") {
			t.Errorf("%s: %d %.300s, want %d", tc.what, status, reply, tc.status)
		}
	}
	if resp, _ := send(t, k.Rig, call{body: `{"model":"` + canary + `","messages":[{"role":"user","content":"` + canary + `"}],,}`}); resp.StatusCode != 400 {
		t.Errorf("bad JSON: %d", resp.StatusCode)
	}
	if c := tell(t, k.Rig, "POST", "", submission(`a\n{\"_aws\":{}}`, "bg", canary)); c.status != 400 { // SEC23
		t.Errorf("an id with a newline: %d", c.status)
	}
	if c := tell(t, k.Rig, "POST", "", submission("secret-left", "bg", canary+" do:ok.")); c.status != http.StatusAccepted {
		t.Errorf("submitted: %d %s", c.status, c.raw)
	}
	letters := k.deadLetters(t)
	eventually(t, "the submitted call's end", func() bool { return len(k.out.of("secret-left")) >= 4 })
	k.govern(t)
	var status, audit, queues, settings json.RawMessage
	operate(t, k.Rig, http.MethodPost, "/settings/set", map[string]any{"model": rig.ModelChat, "set": map[string]any{"max_concurrency": 9}}, &settings)
	operate(t, k.Rig, http.MethodGet, "/status", nil, &status)
	operate(t, k.Rig, http.MethodGet, "/settings/audit", nil, &audit)
	operate(t, k.Rig, http.MethodGet, "/queues", nil, &queues)
	k.out.mu.Lock()
	log := k.out.buf.String()
	k.out.mu.Unlock()
	if !strings.Contains(log, `"level":"DEBUG"`) || !strings.Contains(log, `"msg":"call_failed"`) || !strings.Contains(log, "dead-lettered") || strings.Contains(log, "panicked") {
		t.Error("the functions did not log what they should have")
	}
	told := map[string]string{
		"log": log, "metrics": k.metrics(t), "status": string(status), "audit": string(audit), "queues": string(queues), "settings": string(settings), "dead letters' attributes": letters,
		"names in the bucket": k.objects(t),
	}
	secrets := map[string]string{"a canary": canary, "the door's key": k.Key, "the admin key": k.AdminKey}
	for _, kv := range k.Environ() {
		if name, v, _ := strings.Cut(kv, "="); strings.Contains(name, "KEY") || strings.Contains(name, "PASSWORD") || strings.Contains(name, "PEPPER") {
			secrets[name] = v
		}
	}
	if len(secrets) < 6 {
		t.Errorf("only %d secrets are looked for", len(secrets))
	}
	for where, text := range told {
		if text == "" {
			t.Errorf("%s: nothing to look at", where)
		}
		for what, secret := range secrets {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s is in the %s: …%s…", what, where, text[max(0, at-200):min(len(text), at+60)])
			}
		}
	}
	for line := range strings.Lines(log) { // SEC23: no metric is anybody's but ours
		at := strings.Index(line, `"_aws":`)
		if at >= 0 && !regexp.MustCompile(`^\[\S+ \S+\] \{"_aws":\{"Timestamp":\d{13},"CloudWatchMetrics":\[\{"Namespace":"llmq/local",`).MatchString(line) {
			t.Errorf("a line that CloudWatch may take for metrics: %s", line)
		}
	}
}

// deadLetters puts wrong messages onto a queue, and returns the attributes of what becomes of them.
func (k talkative) deadLetters(t *testing.T) string {
	t.Helper()
	ctx, url := within(t, time.Minute), k.Config.Queues.URLBase+"/llm-"+rig.ModelChat
	api := k.Client(cloud.Producer)
	bad := []string{
		canary + " is no JSON", `{"v":1,"id":"bad-1","op":"chat","model":"chat-a","surplus":1,"params":{"messages":[{"role":"user","content":"` + canary + `"}]}}`,
		`{"v":1,"id":"bad\n{\"_aws\":{}}","op":"chat","model":"chat-a","params":{"messages":[]}}`, `{"v":1,"id":"bad-2","op":"chat","model":"chat-a","lane":"nope","params":{"messages":[{"role":"user","content":"` + canary + `"}]}}`,
	}
	for _, body := range bad {
		if _, err := api.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(body)}); err != nil {
			t.Fatal(err)
		}
	}
	dead, said, n := url+"-dlq", "", 0
	for n < len(bad) {
		out, err := api.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &dead, MaxNumberOfMessages: 10, WaitTimeSeconds: 5, MessageAttributeNames: []string{"All"}})
		if err != nil {
			t.Fatalf("after %d dead letters: %v", n, err)
		}
		for _, m := range out.Messages {
			n++
			for name, a := range m.MessageAttributes {
				said += name + "=" + aws.ToString(a.StringValue) + "\n"
			}
		}
	}
	return said
}

// govern has the governor's minute come.
func (k talkative) govern(t *testing.T) {
	t.Helper()
	const event = `{"version":"0","id":"1","detail-type":"Scheduled Event","source":"aws.scheduler","detail":"{}"}`
	if res, err := k.Lambda.Invoke(within(t, 20*time.Second), cloud.FunctionGovernor, []byte(event), lambda.InvokeOptions{}); err != nil || res.FunctionError != "" {
		t.Fatalf("governor: %+v, %v", res, err)
	}
}

// metrics is the page for Prometheus.
func (k talkative) metrics(t *testing.T) string {
	t.Helper()
	return page(t, k.MetricsURL)
}

// objects lists the data bucket.
func (k talkative) objects(t *testing.T) string {
	t.Helper()
	return page(t, k.Config.Storage.Endpoint+"/"+k.Config.Storage.Bucket+"?list-type=2")
}

func page(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t, 10*time.Second), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v", url, resp.StatusCode, err)
	}
	return string(text)
}

// E7: each metric is told by the real functions, with its labels; those that only a fault makes are told by tests of what counts them.
func TestTelemetry_EveryMetricIsTold(t *testing.T) {
	t.Parallel()
	k := newTalkative(t)
	if status, reply := k.ask(t, "m-1", "fallback", false, 0); status != http.StatusOK {
		t.Fatalf("%d %s", status, reply)
	}
	if status, reply := k.ask(t, "m-2", "ok", false, 0, "X-LLMQ-Lane", "rt"); status != http.StatusOK {
		t.Fatalf("%d %s", status, reply)
	}
	k.ask(t, "m-3", "hang", false, 0, "X-LLMQ-Timeout-Secs", "2")
	k.deadLetters(t)
	k.govern(t)
	want := []string{
		`llmq_inflight{model="chat-a",target="main"} 0`, `llmq_breaker_open{model="chat-a",target="second"} 0`,
		`llmq_rate_used{kind="calls",model="chat-a",target="main"} \d+`, `llmq_rate_used{kind="tokens",model="chat-a",target="main"} \d+`, `llmq_rate_remaining{kind="calls",model="chat-a",target="main"} \d+`,
		`llmq_sqs_received_total{lane="bg",model="chat-a"} \d+`, `llmq_sqs_sent_total{lane="bg",model="chat-a"} 2`, `llmq_sqs_acked_total{lane="bg",model="chat-a"} \d+`,
		`llmq_sqs_wait_seconds_count{lane="bg",model="chat-a"} \d+`, `llmq_queue_depth{kind="waiting",queue="llm-chat-a"} 0`, `llmq_queue_depth{kind="received",queue="llm-emb-a-rt"} 0`,
		`llmq_queue_oldest_seconds{queue="llm-chat-a"} \S+`, `llmq_fallback_total{model="chat-a",step="chat-a@second"} 1`, `llmq_dead_letters_total{code="bad_envelope"} \d+`,
	}
	var missing []string
	defer func() {
		if t.Failed() {
			t.Logf("missing %q", missing)
		}
	}()
	eventually(t, "all metrics", func() bool {
		page := k.metrics(t)
		missing = slices.DeleteFunc(slices.Clone(want), func(w string) bool {
			return regexp.MustCompile(`(?m)^` + strings.NewReplacer("{", `\{`, "}", `\}`).Replace(w) + `$`).MatchString(page)
		})
		return len(missing) == 0
	})
	// Where calls are released, expire and run at the door is worker's TestHandle_CountsWhatCameAndWhatBecameOfIt and client's direct_test.go.
	all := k.metrics(t) + " llmq_sqs_released_total llmq_sqs_expired_total llmq_direct_total"
	for _, in := range telemetry.Metrics() {
		if !in.Rare && !strings.Contains(all, string(in.Name)) {
			t.Errorf("no %s", in.Name)
		}
	}
}
