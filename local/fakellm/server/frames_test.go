package server_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

type frame struct{ Kind, Name, Payload string }

// frames decodes an event stream, whose checksums the decoder checks.
func frames(t *testing.T, body []byte) []frame {
	t.Helper()
	var all []frame
	reader, decoder := bytes.NewReader(body), eventstream.NewDecoder()
	for {
		m, err := decoder.Decode(reader, nil)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("frame %d: %v", len(all), err)
		}
		f := frame{Kind: m.Headers.Get(":message-type").String(), Payload: string(m.Payload)}
		f.Name = m.Headers.Get(":" + f.Kind + "-type").String()
		if m.Headers.Get(":content-type").String() != "application/json" {
			t.Errorf("frame %d has headers %v", len(all), m.Headers)
		}
		all = append(all, f)
	}
}

func converseStream(t *testing.T, s http.Handler, model string) []byte {
	t.Helper()
	got := post(t, s, conversePath(model)+"-stream", converseBody)
	if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "application/vnd.amazon.eventstream" || got.Header().Get("X-Amzn-Requestid") == "" {
		t.Fatalf("%d %v %q", got.Code, got.Header(), got.Body)
	}
	return got.Body.Bytes()
}

func TestConverseStream_Frames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setLatency(t, s, server.Latency{Mean: time.Second, Speed: 2})
		want := []frame{
			{"event", "messageStart", `{"role":"assistant"}`},
			{"event", "contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"[m] "}}`},
			{"event", "contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"hi"}}`},
			{"event", "contentBlockStop", `{"contentBlockIndex":0}`},
			{"event", "messageStop", `{"stopReason":"end_turn"}`},
			{"event", "metadata", `{"metrics":{"latencyMs":2000},"usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}`},
		}
		if diff := cmp.Diff(want, frames(t, converseStream(t, s, "m"))); diff != "" {
			t.Errorf("frames (-want +got):\n%s", diff)
		}
	})
}

func TestConverseStream_ToolUse(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{ToolCalls: []server.ToolCall{{ID: "t1", Name: "run", Arguments: `{"a":1}`}}, Times: 2})
	want := []frame{
		{"event", "messageStart", `{"role":"assistant"}`},
		{"event", "contentBlockStart", `{"contentBlockIndex":0,"start":{"toolUse":{"name":"run","toolUseId":"t1"}}}`},
		{"event", "contentBlockDelta", `{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{\"a\""}}}`},
		{"event", "contentBlockDelta", `{"contentBlockIndex":0,"delta":{"toolUse":{"input":":1}"}}}`},
		{"event", "contentBlockStop", `{"contentBlockIndex":0}`},
		{"event", "messageStop", `{"stopReason":"tool_use"}`},
	}
	got := frames(t, converseStream(t, s, "m"))
	if diff := cmp.Diff(want, got[:len(got)-1]); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
	whole := post(t, s, conversePath("m"), converseBody).Body.String()
	if !strings.Contains(whole, `"content":[{"toolUse":{"toolUseId":"t1","name":"run","input":{"a":1}}}]`) {
		t.Errorf("not as a stream: %s", whole)
	}
}

// H24: a throttle in the middle of a stream, byte for byte as the case has it.
func TestH24_ThrottleInTheMiddleOfAStream(t *testing.T) {
	t.Parallel()
	start := "000000760000005296d5fade0b3a6576656e742d7479706507000c6d65737361676553746172740d3a636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576656e747b22726f6c65223a22617373697374616e74227d6fa8c599"
	delta := "000000950000005789cbb35e0b3a6576656e742d74797065070011636f6e74656e74426c6f636b44656c74610d3a636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576656e747b22636f6e74656e74426c6f636b496e646578223a302c2264656c7461223a7b2274657874223a2248656c227d7d6413a776"
	exception := "00000090000000618e91a9b70f3a657863657074696f6e2d747970650700137468726f74746c696e67457863657074696f6e0d3a636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d74797065070009657863657074696f6e7b226d657373616765223a22546f6f206d616e79207265717565737473227de67f8005"
	text := "Hel"
	for _, tc := range []struct {
		name  string
		after int
		want  string
	}{
		{"a", 2, start + delta + exception},
		{"b", 1, start + exception},
	} {
		s := newServer(t, nil)
		program(t, s, server.Match{}, server.Reply{
			Text: &text, Fail: server.FailError, Code: "ThrottlingException", Message: "Too many requests", After: tc.after,
		})
		got := hex.EncodeToString(converseStream(t, s, "conv-a"))
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if c := s.Calls()[0]; c.Outcome != server.Broken || c.Status != 200 || c.Fail != server.FailError {
			t.Errorf("%s: logged %+v", tc.name, c)
		}
	}
}

// An error before the stream begins is no stream.
func TestStream_ErrorInPlaceOfAStream(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{Status: 429, Times: 3})
	checkException(t, post(t, s, conversePath("m")+"-stream", converseBody), 429, "ThrottlingException", "")
	checkException(t, post(t, s, "/model/m/invoke-with-response-stream", anthropicBody), 429, "ThrottlingException", "")
	got := post(t, s, "/v1/chat/completions", streamBody)
	checkOpenAIError(t, got.Code, got.Body.Bytes(), 429, "requests", "", "rate_limit_exceeded", "")
	if got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("content type %q", got.Header().Get("Content-Type"))
	}
}

const anthropicBody = `{"anthropic_version":"bedrock-2023-05-31","max_tokens":100,"system":[{"type":"text","text":"kind"}],` +
	`"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":[{"type":"text","text":"hi"}]}]}`

func TestInvoke_Anthropic(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	got := post(t, s, "/model/m/invoke", anthropicBody)
	body := decode[map[string]any](t, got.Body.Bytes())
	delete(body, "id")
	want := decode[map[string]any](t, []byte(`{"model":"m","type":"message","role":"assistant","content":[{"type":"text","text":"[m] hi"}],
		"stop_reason":"end_turn","stop_sequence":null,
		"usage":{"input_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2}}`))
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if in, out := got.Header().Get("X-Amzn-Bedrock-Input-Token-Count"), got.Header().Get("X-Amzn-Bedrock-Output-Token-Count"); in != "2" || out != "2" {
		t.Errorf("headers: %s tokens of input, %s of output", in, out)
	}
}

func TestInvokeStream_Anthropic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setLatency(t, s, server.Latency{Mean: time.Second, Speed: 2})
		got := post(t, s, "/model/m/invoke-with-response-stream", anthropicBody)
		var events []string
		for _, f := range frames(t, got.Body.Bytes()) {
			chunk := decode[struct{ Bytes string }](t, []byte(f.Payload))
			event, err := base64.StdEncoding.DecodeString(chunk.Bytes)
			if err != nil || f.Name != "chunk" {
				t.Fatalf("frame %+v: %v", f, err)
			}
			events = append(events, string(event))
		}
		if !strings.HasPrefix(events[0], `{"type":"message_start","message":{"model":"m","id":"msg_bdrk_`) {
			t.Errorf("first event %s", events[0])
		}
		want := []string{
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"[m] "}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}`,
			`{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":2,"outputTokenCount":2,"invocationLatency":2000,"firstByteLatency":1000}}`,
		}
		if diff := cmp.Diff(want, events[1:]); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestInvoke_TitanEmbeddings(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	type body struct {
		Embedding        []float32
		EmbeddingsByType struct {
			Float  []float32
			Binary []int
		}
		Tokens int `json:"inputTextTokenCount"`
	}
	plain := decode[body](t, post(t, s, "/model/titan/invoke", `{"inputText":"hello"}`).Body.Bytes())
	if len(plain.Embedding) != 1024 || plain.Tokens != 2 || !cmp.Equal(plain.Embedding, plain.EmbeddingsByType.Float) {
		t.Errorf("%d dimensions, %d tokens", len(plain.Embedding), plain.Tokens)
	}
	binary := decode[body](t, post(t, s, "/model/titan/invoke", `{"inputText":"hello","dimensions":256,"normalize":true,"embeddingTypes":["binary"]}`).Body.Bytes())
	if binary.Embedding != nil || len(binary.EmbeddingsByType.Binary) != 256 {
		t.Errorf("binary: %+v", binary)
	}
}

func TestCountTokens_CountsAsTheCallWould(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{Status: 500})
	for body, want := range map[string]string{
		`{"input":{"converse":` + converseBody + `}}`:                                                           `{"inputTokens":1}`,
		`{"input":{"invokeModel":{"body":"` + base64.StdEncoding.EncodeToString([]byte(anthropicBody)) + `"}}}`: `{"inputTokens":2}`,
	} {
		if got := post(t, s, "/model/m/count-tokens", body); got.Body.String() != want {
			t.Errorf("%s: %d %s", body, got.Code, got.Body)
		}
	}
	if s.Stats().All.Calls != 0 {
		t.Error("counting counted as calls")
	}
}
