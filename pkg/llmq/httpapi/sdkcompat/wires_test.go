package sdkcompat

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func event(name, rest string) string {
	return "event: " + name + "\ndata: {\"type\":\"" + name + "\"" + rest + "}\n\n"
}

// A8: OpenAI's SDK creates responses.
func TestOpenAISDK_Responses(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) {
		return &llmq.Reply{Status: 200, Body: []byte(`{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hello","annotations":[]}]}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}`)}, nil
	})
	client := openAIClient(serveTLS(t, b), testSecret)
	out, err := client.Responses.New(t.Context(), responses.ResponseNewParams{Model: "chat-a", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}})
	if err != nil || out.OutputText() != "hello" || out.Usage.TotalTokens != 3 {
		t.Fatalf("got %+v, %v", out, err)
	}
	if r := b.requests()[0]; r.Op != llmq.OpResponses {
		t.Errorf("handed over %+v", r)
	}
	_, err = client.Responses.New(t.Context(), responses.ResponseNewParams{Model: "chat-a", Background: openai.Bool(true), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}})
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.Param != "background" || e.Code != "unsupported_feature" || len(b.requests()) != 1 {
		t.Errorf("background: %v", err)
	}
}

// A8, A11, A22: it reads their events to the end, and raises a stream that broke.
func TestOpenAISDK_StreamsResponses(t *testing.T) {
	t.Parallel()
	created, delta := event("response.created", `,"sequence_number":0,"response":{"id":"resp_1","status":"in_progress"}`), event("response.output_text.delta", `,"sequence_number":1,"delta":"hello"`)
	for name, tc := range map[string]struct {
		events     []string
		end        error
		last, says string
	}{
		"whole":        {[]string{created, delta, delta, event("response.completed", `,"sequence_number":3,"response":{"id":"resp_1","status":"completed"}`)}, io.EOF, "response.completed", ""},
		"cut short":    {[]string{created, delta, delta, event("response.incomplete", `,"sequence_number":3,"response":{"id":"resp_1","status":"incomplete"}`)}, io.EOF, "response.incomplete", ""},
		"it failed":    {[]string{created, delta, delta, event("response.failed", `,"sequence_number":3,"response":{"id":"resp_1","status":"failed"}`)}, io.EOF, "response.failed", ""},
		"it is broken": {[]string{created, delta, delta}, broke(), "response.output_text.delta", "the reply broke off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.events, b.end = tc.events, tc.end
			client := openAIClient(serveTLS(t, b), testSecret)
			s := client.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{Model: "chat-a", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}})
			defer s.Close()
			text, last := "", ""
			for s.Next() {
				e := s.Current()
				last = e.Type
				if e.Type == "response.output_text.delta" {
					text += e.Delta
				}
			}
			if text != "hellohello" || last != tc.last {
				t.Errorf("text %q, last %q", text, last)
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

// A8: Bedrock's SDK invokes by alias and by ARN; the vendor's bytes go both ways as they are.
func TestBedrockSDK_Invokes(t *testing.T) {
	t.Parallel()
	const vendors, answer = ` {"anthropic_version":"bedrock-2023-05-31", "max_tokens":10,"temperature":1.0e0}`, `{ "content":[{"type":"text","text":"hello"}] }`
	b := setup(t, func(context.Context, llmq.Request) (*llmq.Reply, error) {
		return &llmq.Reply{Status: 200, ContentType: "application/json", Body: []byte(answer)}, nil
	})
	client := bedrockClient(serveTLS(t, b), testSecret)
	media := aws.String("application/json")
	for _, in := range []*bedrockruntime.InvokeModelInput{
		{ModelId: aws.String("raw-a"), ContentType: media, Accept: media},
		{ModelId: aws.String(rawARN)}, // as most callers have it: the SDK then says application/octet-stream
	} {
		id := aws.ToString(in.ModelId)
		in.Body = []byte(vendors)
		out, err := client.InvokeModel(t.Context(), in)
		if err != nil || string(out.Body) != answer || aws.ToString(out.ContentType) != "application/json" {
			t.Fatalf("%s: %+v, %v", id, out, err)
		}
	}
	for _, r := range b.requests() {
		if r.Op != llmq.OpInvoke || string(r.Body) != vendors || r.Stream {
			t.Errorf("handed over %+v", r)
		}
	}
	_, err := client.InvokeModel(t.Context(), &bedrockruntime.InvokeModelInput{ModelId: aws.String("conv-a"), Body: []byte(vendors), ContentType: aws.String("application/json")})
	if e, ok := errors.AsType[*types.ValidationException](err); !ok || !strings.Contains(e.ErrorMessage(), "call it at POST /model/conv-a/converse") {
		t.Errorf("wrong wire: %v", err)
	}
}

// The same while it comes, with the exceptions that it knows.
func TestBedrockSDK_StreamsInvocations(t *testing.T) {
	t.Parallel()
	chunk := frame("chunk", `{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(`{"type":"x"}`))+`"}`)
	for name, tc := range map[string]struct {
		end error
		is  func(error) bool
	}{
		"whole":     {io.EOF, func(err error) bool { return err == nil }},
		"broken":    {broke(), is[*types.ModelStreamErrorException]},
		"throttled": {llmq.Errorf(llmq.CodeRateLimited, "slow down"), is[*types.ThrottlingException]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.events, b.end = []string{chunk, chunk}, tc.end
			out, err := bedrockClient(serveTLS(t, b), testSecret).InvokeModelWithResponseStream(t.Context(), &bedrockruntime.InvokeModelWithResponseStreamInput{
				ModelId: aws.String(rawARN), Body: []byte(`{}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			s := out.GetStream()
			defer s.Close()
			said := ""
			for e := range s.Events() {
				if c, ok := e.(*types.ResponseStreamMemberChunk); ok {
					said += string(c.Value.Bytes)
				}
			}
			if said != `{"type":"x"}{"type":"x"}` || !tc.is(s.Err()) || aws.ToString(out.ContentType) != "application/json" {
				t.Errorf("said %q of %s, %v", said, aws.ToString(out.ContentType), s.Err())
			}
		})
	}
}
