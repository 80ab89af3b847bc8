package sdkcompat

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/llm-queue/llmq/pkg/llmq"
)

const (
	helloChunk = `data: {"id":"g1","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}` + "\n\n"
	stopChunk  = `data: {"id":"g1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
)

func broke() *llmq.Error { return llmq.Errorf(llmq.CodeStreamBroken, "the reply broke off") }

// A11, A22: OpenAI's SDK reads a stream to its end, and raises one that broke as an error, once.
func TestOpenAISDK_Streams(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events []string
		end    error
		says   string
	}{
		"whole":  {[]string{helloChunk, helloChunk, stopChunk}, io.EOF, ""},
		"broken": {[]string{helloChunk, helloChunk}, broke(), "the reply broke off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.events, b.end = tc.events, tc.end
			srv := serveTLS(t, b)
			client := openai.NewClient(option.WithBaseURL(srv.URL+"/v1"), option.WithAPIKey(testSecret), option.WithHTTPClient(srv.Client()))
			s := client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
				Model: "chat-a", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
			})
			defer s.Close()
			text, finish := "", ""
			for s.Next() {
				c := s.Current().Choices[0]
				text, finish = text+c.Delta.Content, finish+c.FinishReason
			}
			if text != "hellohello" || (finish == "stop") != (tc.says == "") {
				t.Errorf("text %q, finish %q", text, finish)
			}
			if (s.Err() == nil) != (tc.says == "") || tc.says != "" && !strings.Contains(s.Err().Error(), tc.says) {
				t.Errorf("error %v, want %q", s.Err(), tc.says)
			}
			if n := len(b.requests()); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// frame is an event as Bedrock frames it.
func frame(name, payload string) string {
	m := eventstream.Message{Payload: []byte(payload)}
	m.Headers.Set(":message-type", eventstream.StringValue("event"))
	m.Headers.Set(":event-type", eventstream.StringValue(name))
	m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
	var out bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&out, m); err != nil {
		panic(err) // short strings can be framed
	}
	return out.String()
}

// The same of Bedrock's SDK, with the exceptions that it knows.
func TestBedrockSDK_Streams(t *testing.T) {
	t.Parallel()
	text := frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"hello"}}`)
	stop := frame("messageStop", `{"stopReason":"end_turn"}`)
	for name, tc := range map[string]struct {
		events []string
		end    error
		is     func(error) bool
	}{
		"whole":  {[]string{text, text, stop}, io.EOF, func(err error) bool { return err == nil }},
		"broken": {[]string{text, text}, broke(), is[*types.ModelStreamErrorException]},
		"throttled": {
			[]string{text, text}, llmq.Errorf(llmq.CodeRateLimited, "slow down"), is[*types.ThrottlingException],
		},
		"a fault of ours": {[]string{text, text}, llmq.Errorf(llmq.CodeInternal, "it failed"), is[*types.InternalServerException]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.events, b.end = tc.events, tc.end
			out, err := bedrockClient(serveTLS(t, b), testSecret).ConverseStream(t.Context(), &bedrockruntime.ConverseStreamInput{
				ModelId:  aws.String(testARN),
				Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: "hi"}}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			s := out.GetStream()
			defer s.Close()
			said, stopped := "", false
			for e := range s.Events() {
				switch e := e.(type) {
				case *types.ConverseStreamOutputMemberContentBlockDelta:
					if d, ok := e.Value.Delta.(*types.ContentBlockDeltaMemberText); ok {
						said += d.Value
					}
				case *types.ConverseStreamOutputMemberMessageStop:
					stopped = true
				}
			}
			if said != "hellohello" || stopped != (name == "whole") || !tc.is(s.Err()) {
				t.Errorf("said %q, stopped %t, %v", said, stopped, s.Err())
			}
			if n := len(b.requests()); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}
