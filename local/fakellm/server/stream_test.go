package server_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

// sseEvents splits a stream into the data of its events.
func sseEvents(t *testing.T, stream string) []string {
	t.Helper()
	rest, found := strings.CutSuffix(stream, "\n\n")
	if !found {
		t.Fatalf("the stream does not end with an empty line: %q", stream)
	}
	var events []string
	for each := range strings.SplitSeq(rest, "\n\n") {
		lines := strings.Split(each, "\n")
		data, found := strings.CutPrefix(lines[len(lines)-1], "data: ")
		if !found {
			t.Fatalf("event %q has no data", each)
		}
		events = append(events, data)
	}
	return events
}

// canonical takes from a JSON event what differs each time.
func canonical(t *testing.T, event string) string {
	t.Helper()
	if event == "[DONE]" {
		return event
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(event), &members); err != nil {
		t.Fatalf("event %q: %v", event, err)
	}
	for _, name := range []string{"id", "created", "object", "model", "service_tier", "system_fingerprint"} {
		if members[name] == nil {
			t.Errorf("event %q has no %s", event, name)
		}
		delete(members, name)
	}
	out, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func chatStream(t *testing.T, s http.Handler, text, more string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	got := post(t, s, "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":`+string(quoted)+`}]`+more+`}`)
	if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "text/event-stream; charset=utf-8" || got.Header().Get("X-Request-Id") == "" {
		t.Fatalf("%d %v %s", got.Code, got.Header(), got.Body)
	}
	return got.Body.String()
}

func TestChatStream_Chunks(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	choice := func(delta, finish, usage string) string {
		return `{"choices":[{"delta":` + delta + `,"finish_reason":` + finish + `,"index":0,"logprobs":null}]` + usage + `}`
	}
	for _, tc := range []struct {
		name, options, usage string
		last                 []string
	}{
		{"plain", ``, ``, []string{"[DONE]"}},
		{"with usage", `,"stream_options":{"include_usage":true}`, `,"usage":null`, []string{
			`{"choices":[],"usage":{"completion_tokens":3,"completion_tokens_details":{"accepted_prediction_tokens":0,"audio_tokens":0,` +
				`"reasoning_tokens":0,"rejected_prediction_tokens":0},"prompt_tokens":2,"prompt_tokens_details":{"audio_tokens":0,"cached_tokens":0},"total_tokens":5}}`,
			"[DONE]",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, event := range sseEvents(t, chatStream(t, s, "hello", tc.options)) {
				got = append(got, canonical(t, event))
			}
			want := append([]string{
				choice(`{"content":"","refusal":null,"role":"assistant"}`, "null", tc.usage),
				choice(`{"content":"[m] "}`, "null", tc.usage),
				choice(`{"content":"hell"}`, "null", tc.usage),
				choice(`{"content":"o"}`, "null", tc.usage),
				choice(`{}`, `"stop"`, tc.usage),
			}, tc.last...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChatStream_ToolCallComesInPieces(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{ToolCalls: []server.ToolCall{{ID: "c1", Name: "run", Arguments: `{"city":"Ulm"}`}}})
	type chunk struct {
		Choices []struct {
			Delta struct {
				Role      string
				Content   *string
				ToolCalls []struct {
					Index    *int
					ID, Type string
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			Finish string `json:"finish_reason"`
		}
	}
	events := sseEvents(t, chatStream(t, s, "x", ""))
	arguments, pieces := "", 0
	for i, event := range events[1 : len(events)-2] {
		call := decode[chunk](t, []byte(event)).Choices[0].Delta.ToolCalls[0]
		if *call.Index != 0 || (i == 0) != (call.ID == "c1" && call.Type == "function" && call.Function.Name == "run") {
			t.Errorf("event %d is %s", i, event)
		}
		arguments += call.Function.Arguments
		pieces++
	}
	if arguments != `{"city":"Ulm"}` || pieces < 3 {
		t.Errorf("arguments %q in %d pieces", arguments, pieces)
	}
	if last := decode[chunk](t, []byte(events[len(events)-2])); last.Choices[0].Finish != "tool_calls" {
		t.Errorf("finish %q", last.Choices[0].Finish)
	}
}

func TestChat_ToolCalls(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{ToolCalls: []server.ToolCall{{ID: "c1", Name: "run", Arguments: `{}`}}})
	got := chat(t, s, "m").Body.String()
	want := `"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",` +
		`"function":{"name":"run","arguments":"{}"}}],"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"tool_calls"}]`
	if !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
}

func TestResponses_Shape(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for input, want := range map[string]string{
		`"hello"`: "[m] hello",
		`[{"role":"user","content":[{"type":"input_text","text":"hel"},{"type":"input_text","text":"lo"}]}]`:                               "[m] hello",
		`[{"type":"message","role":"user","content":"a"},{"type":"function_call_output","output":"b"},{"role":"developer","content":"c"}]`: "[m] a",
	} {
		got := decode[map[string]any](t, post(t, s, "/v1/responses", `{"model":"m","input":`+input+`,"instructions":"be kind"}`).Body.Bytes())
		output, _ := json.Marshal(got["output"])
		if got["object"] != "response" || got["status"] != "completed" || got["error"] != nil || got["instructions"] != "be kind" ||
			!strings.Contains(string(output), `"text":"`+want+`","type":"output_text"`) {
			t.Errorf("%s: got %v", input, got)
		}
	}
	cut := decode[map[string]any](t, post(t, s, "/v1/responses", `{"model":"m","input":"hello","max_output_tokens":1}`).Body.Bytes())
	if diff := cmp.Diff(map[string]any{"reason": "max_output_tokens"}, cut["incomplete_details"]); diff != "" || cut["status"] != "incomplete" {
		t.Errorf("status %v, details (-want +got):\n%s", cut["status"], diff)
	}
}

func TestResponsesStream_EventsAreTypedAndNumbered(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{Model: "tools"}, server.Reply{ToolCalls: []server.ToolCall{{Name: "run", Arguments: `{"a":1}`}}})
	for model, want := range map[string][]string{
		"m": {
			"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
			"response.output_text.delta", "response.output_text.delta", "response.output_text.done", "response.content_part.done",
			"response.output_item.done", "response.completed",
		},
		"tools": {
			"response.created", "response.in_progress", "response.output_item.added",
			"response.function_call_arguments.delta", "response.function_call_arguments.delta", "response.function_call_arguments.done",
			"response.output_item.done", "response.completed",
		},
	} {
		body := post(t, s, "/v1/responses", `{"model":"`+model+`","input":"hi","stream":true}`).Body.String()
		var got []string
		for i, event := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
			name, data, _ := strings.Cut(strings.TrimPrefix(event, "event: "), "\n")
			members := decode[struct {
				Type     string
				Sequence int `json:"sequence_number"`
			}](t, []byte(strings.TrimPrefix(data, "data: ")))
			if members.Type != name || members.Sequence != i {
				t.Errorf("event %d: %s", i, event)
			}
			got = append(got, name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", model, diff)
		}
	}
}

// The time of a stream is spread over its events, and the call is logged before the last of them.
func TestStream_TakesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setLatency(t, s, server.Latency{Mean: 2 * time.Second, Speed: 10, InputSpeed: 1})
		start := time.Now()
		w := &timedWriter{header: http.Header{}, start: start}
		s.ServeHTTP(w, request(t.Context(), http.MethodPost, "/v1/chat/completions",
			`{"model":"m","stream":true,"messages":[{"role":"user","content":"12345678"}]}`))
		// Two tokens of input at one a second, then "[m] ", "1234", "5678" at ten a second.
		var want []time.Duration
		for _, tenths := range []int{40, 41, 42, 43, 43, 43} {
			want = append(want, time.Duration(tenths)*100*time.Millisecond)
		}
		if diff := cmp.Diff(want, w.at); diff != "" {
			t.Errorf("times of the events (-want +got):\n%s", diff)
		}
		c := s.Calls()[0]
		if c.FirstByte != 4*time.Second || c.Duration != 4300*time.Millisecond || c.Events != 6 || c.OutputTokens != 3 || !c.Stream {
			t.Errorf("logged %+v", c)
		}
		got := chat(t, s, "m") // the same when it is no stream
		if took := time.Since(start) - 4300*time.Millisecond; got.Code != 200 || took != 3200*time.Millisecond {
			t.Errorf("took %v, want 2 s, 1 s for a token of input, 0.2 s for two of output", took)
		}
	})
}

// The choices of an answer are said side by side, streamed or not.
func TestStream_ChoicesTakeNoLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setLatency(t, s, server.Latency{Speed: 10})
		for _, more := range []string{``, `,"n":2`, `,"n":2,"stream":true`} {
			start := time.Now()
			post(t, s, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"1234"}]`+more+`}`)
			if took := time.Since(start); took != 200*time.Millisecond {
				t.Errorf("%s took %v", more, took)
			}
		}
	})
}

// timedWriter notes when something is written.
type timedWriter struct {
	header http.Header
	start  time.Time
	at     []time.Duration
	body   bytes.Buffer
}

func (w *timedWriter) Header() http.Header { return w.header }
func (w *timedWriter) WriteHeader(int)     {}
func (w *timedWriter) Flush()              {}
func (w *timedWriter) Write(p []byte) (int, error) {
	w.at = append(w.at, time.Since(w.start))
	return w.body.Write(p)
}

// H21 a: characters that are cut between writes arrive whole, for the bytes are the same.
func TestH21_CharacterCutInTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		raw := [][]byte{
			[]byte("data: {\"id\":\"g1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xe6\x97"),
			[]byte("\xa5\xe6\x9c\xac \xf0\x9f"),
			[]byte("\x9a\x80\"},\"finish_reason\":null}]}\n\ndata: {\"id\":\"g1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"),
		}
		text := "日本 🚀"
		program(t, s, server.Match{}, server.Reply{Chunks: raw}, server.Reply{Text: &text, Fail: server.FailSplitUTF8})
		w := &timedWriter{header: http.Header{}, start: time.Now()}
		body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`
		s.ServeHTTP(w, request(t.Context(), http.MethodPost, "/v1/chat/completions", body))
		if diff := cmp.Diff(string(bytes.Join(raw, nil)), w.body.String()); diff != "" || len(w.at) != len(raw) {
			t.Errorf("%d writes (-want +got):\n%s", len(w.at), diff)
		}
		if got := w.header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
			t.Errorf("content type %q", got)
		}

		split := &splitWriter{}
		s.ServeHTTP(split, request(t.Context(), http.MethodPost, "/v1/chat/completions", body))
		got := ""
		events := sseEvents(t, string(bytes.Join(split.writes, nil)))
		for _, event := range events[:len(events)-1] {
			got += decode[struct {
				Choices []struct{ Delta struct{ Content string } }
			}](t, []byte(event)).Choices[0].Delta.Content
		}
		if got != text || split.cut < 2 {
			t.Errorf("text %q, with %d characters cut between writes", got, split.cut)
		}
	})
}

// splitWriter counts the writes that end within a character.
type splitWriter struct {
	header http.Header
	writes [][]byte
	cut    int
}

func (w *splitWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}
func (w *splitWriter) WriteHeader(int) {}
func (w *splitWriter) Flush()          {}
func (w *splitWriter) Write(p []byte) (int, error) {
	w.writes = append(w.writes, bytes.Clone(p))
	if bytes.ContainsRune(p, '\uFFFD') {
		w.cut++
	}
	return len(p), nil
}

// H21 b: one data line with two million characters of a tool's arguments.
func TestH21_LineTooLong(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{Fail: server.FailHugeLine})
	longest := ""
	for _, event := range sseEvents(t, chatStream(t, s, "x", "")) {
		if len(event) > len(longest) {
			longest = event
		}
	}
	quoted, err := json.Marshal(`"` + strings.Repeat("y", 2_000_000) + `"`)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(longest, `"tool_calls":[{"index":0,"function":{"arguments":`+string(quoted)+`}}]`) {
		t.Errorf("the longest event has %d bytes", len(longest))
	}
}
