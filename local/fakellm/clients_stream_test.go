package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

func chatParams() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:         "m",
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.UserMessage("日本 🚀")},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
}

// G4, H21: the client puts together what came in pieces, however the bytes were cut.
func TestClients_OpenAIStream(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := openAIClient(serveTLS(t, s))
	program(t, s, server.Match{}, server.Reply{}, server.Reply{Fail: server.FailSplitUTF8, Pause: 1})
	for range 2 {
		stream := c.Chat.Completions.NewStreaming(t.Context(), chatParams())
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			all.AddChunk(stream.Current())
		}
		if err := errors.Join(stream.Err(), stream.Close()); err != nil {
			t.Fatal(err)
		}
		if len(all.Choices) != 1 || all.Choices[0].Message.Content != "[m] 日本 🚀" || all.Choices[0].FinishReason != "stop" || all.Usage.TotalTokens != 7 {
			t.Errorf("got %+v", all.ChatCompletion)
		}
	}
}

// H21 b: two million characters in one event.
func TestClients_OpenAIStreamOfOneHugeToolCall(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := openAIClient(serveTLS(t, s))
	program(t, s, server.Match{}, server.Reply{Fail: server.FailHugeLine})
	stream := c.Chat.Completions.NewStreaming(t.Context(), chatParams())
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		all.AddChunk(stream.Current())
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		t.Fatal(err)
	}
	if calls := all.Choices[0].Message.ToolCalls; len(calls) != 1 || len(calls[0].Function.Arguments) != 2_000_002 || all.Choices[0].FinishReason != "tool_calls" {
		t.Errorf("%d calls, %s", len(calls), all.Choices[0].FinishReason)
	}
}

func TestClients_OpenAIStreamThatBreaks(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := openAIClient(serveTLS(t, s))
	for name, tc := range map[string]struct {
		reply server.Reply
		want  string // of the error; empty is none
	}{
		"error":     {server.Reply{Fail: server.FailError, Status: 503, After: 2}, "overloaded"},
		"close":     {server.Reply{Fail: server.FailClose, After: 2}, "unexpected EOF"},
		"truncated": {server.Reply{Fail: server.FailTruncate}, ""}, // which is why the end marker must be looked for
	} {
		program(t, s, server.Match{}, tc.reply)
		stream := c.Chat.Completions.NewStreaming(t.Context(), chatParams())
		text, finish := "", ""
		for stream.Next() {
			if chunk := stream.Current(); len(chunk.Choices) > 0 {
				text += chunk.Choices[0].Delta.Content
				finish += chunk.Choices[0].FinishReason
			}
		}
		err := stream.Err()
		_ = stream.Close()
		if !strings.HasPrefix(text, "[m] ") || finish != "" || tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: text %q, finish %q, %v", name, text, finish, err)
		}
	}
}

func TestClients_OpenAIEmbeddingsBase64(t *testing.T) {
	t.Parallel()
	c := openAIClient(serveTLS(t, newServer(t)))
	params := openai.EmbeddingNewParams{
		Model: openai.EmbeddingModelTextEmbedding3Large, Dimensions: openai.Int(3),
		Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("a")},
	}
	plain, err := c.Embeddings.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	params.EncodingFormat = openai.EmbeddingNewParamsEncodingFormatBase64
	packed, err := c.Embeddings.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	var item struct{ Embedding string }
	if err := json.Unmarshal([]byte(packed.Data[0].RawJSON()), &item); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(item.Embedding)
	if err != nil || len(raw) != 12 {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	for i, want := range plain.Data[0].Embedding {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); got != float32(want) {
			t.Errorf("number %d is %v, want %v", i, got, want)
		}
	}
}

func TestClients_OpenAIOneModel(t *testing.T) {
	t.Parallel()
	c := openAIClient(serveTLS(t, newServer(t, "a", "b")))
	got, err := c.Models.Get(t.Context(), "b")
	if err != nil || got.ID != "b" {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = c.Models.Get(t.Context(), "c")
	if apiErr, ok := errors.AsType[*openai.Error](err); !ok || apiErr.StatusCode != 404 || apiErr.Code != "model_not_found" {
		t.Errorf("got %v", err)
	}
}

func responseParams() responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}}
}

func TestClients_OpenAIResponses(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := openAIClient(serveTLS(t, s))
	got, err := c.Responses.New(t.Context(), responseParams())
	if err != nil {
		t.Fatal(err)
	}
	if got.OutputText() != "[m] hello" || got.Status != "completed" || got.Usage.TotalTokens != 5 {
		t.Errorf("got %s", got.RawJSON())
	}
	program(t, s, server.Match{}, server.Reply{ToolCalls: []server.ToolCall{{ID: "c1", Name: "run", Arguments: `{"a":1}`}}})
	got, err = c.Responses.New(t.Context(), responseParams())
	if err != nil {
		t.Fatal(err)
	}
	if call := got.Output[0].AsFunctionCall(); call.Name != "run" || call.Arguments != `{"a":1}` || call.CallID != "c1" {
		t.Errorf("got %s", got.RawJSON())
	}
}

func TestClients_OpenAIResponsesStream(t *testing.T) {
	t.Parallel()
	c := openAIClient(serveTLS(t, newServer(t)))
	stream := c.Responses.NewStreaming(t.Context(), responseParams())
	text, last := "", ""
	for stream.Next() {
		event := stream.Current()
		if event.Type == "response.output_text.delta" {
			text += event.Delta
		}
		if last = event.Type; last == "response.completed" && event.Response.OutputText() != "[m] hello" {
			t.Errorf("completed with %s", event.RawJSON())
		}
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil || text != "[m] hello" || last != "response.completed" {
		t.Errorf("text %q, last event %s, %v", text, last, err)
	}
}

func converseStreamInput() *bedrockruntime.ConverseStreamInput {
	in := converseInput()
	return &bedrockruntime.ConverseStreamInput{ModelId: in.ModelId, Messages: in.Messages}
}

func TestClients_BedrockConverseStream(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	out, err := bedrockClient(serveTLS(t, s), withSignature).ConverseStream(t.Context(), converseStreamInput())
	if err != nil {
		t.Fatal(err)
	}
	stream := out.GetStream()
	text, kinds := "", map[string]int{}
	for event := range stream.Events() {
		kinds[fmt.Sprintf("%T", event)]++
		switch e := event.(type) {
		case *types.ConverseStreamOutputMemberContentBlockDelta:
			delta, ok := e.Value.Delta.(*types.ContentBlockDeltaMemberText)
			if !ok {
				t.Fatalf("delta is a %T", e.Value.Delta)
			}
			text += delta.Value
		case *types.ConverseStreamOutputMemberMetadata:
			if aws.ToInt32(e.Value.Usage.InputTokens) != 2 || e.Value.Metrics == nil {
				t.Errorf("metadata %+v", e.Value)
			}
		}
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil || text != "["+arn+"] hello" || len(kinds) != 5 {
		t.Errorf("text %q, kinds %v, %v", text, kinds, err)
	}
	if c := s.Calls()[0]; c.Region != "eu-west-3" || !c.Stream || c.Model != arn {
		t.Errorf("logged %+v", c)
	}
}

// H24: the exception in the middle of a stream is the typed error, after the text that came.
func TestH24_ClientGetsTheTypedError(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := bedrockClient(serveTLS(t, s), withSignature)
	text := "Hel"
	for _, tc := range []struct {
		code  string
		after int
		want  string
		is    func(error) bool
	}{
		{"ThrottlingException", 2, "Hel", isA[*types.ThrottlingException]},
		{"ThrottlingException", 1, "", isA[*types.ThrottlingException]},
		{"ModelStreamErrorException", 2, "Hel", isA[*types.ModelStreamErrorException]},
		{"InternalServerException", 2, "Hel", isA[*types.InternalServerException]},
		{"ServiceUnavailableException", 2, "Hel", isA[*types.ServiceUnavailableException]},
		{"ValidationException", 2, "Hel", isA[*types.ValidationException]},
	} {
		program(t, s, server.Match{}, server.Reply{Text: &text, Fail: server.FailError, Code: tc.code, After: tc.after})
		out, err := c.ConverseStream(t.Context(), converseStreamInput())
		if err != nil {
			t.Fatal(err)
		}
		stream, got := out.GetStream(), ""
		for event := range stream.Events() {
			if e, ok := event.(*types.ConverseStreamOutputMemberContentBlockDelta); ok {
				if delta, ok := e.Value.Delta.(*types.ContentBlockDeltaMemberText); ok {
					got += delta.Value
				}
			}
			if _, ok := event.(*types.ConverseStreamOutputMemberMessageStop); ok {
				t.Error("it stopped as if it were whole")
			}
		}
		if err := stream.Err(); !tc.is(err) || got != tc.want {
			t.Errorf("%s: text %q, %v", tc.code, got, err)
		}
		_ = stream.Close()
	}
}

const claudeBody = `{"anthropic_version":"bedrock-2023-05-31","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`

func TestClients_BedrockInvokeModel(t *testing.T) {
	t.Parallel()
	c := bedrockClient(serveTLS(t, newServer(t)), withSignature)
	out, err := c.InvokeModel(t.Context(), &bedrockruntime.InvokeModelInput{
		ModelId: aws.String("us.anthropic.claude-x"), Body: []byte(claudeBody), ContentType: aws.String("application/json"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out.Body, []byte(`"content":[{"type":"text","text":"[us.anthropic.claude-x] hello"}]`)) || aws.ToString(out.ContentType) != "application/json" {
		t.Errorf("got %s", out.Body)
	}
	out, err = c.InvokeModel(t.Context(), &bedrockruntime.InvokeModelInput{
		ModelId: aws.String("amazon.titan-embed-text-v2:0"), Body: []byte(`{"inputText":"hello","dimensions":256}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var embedding struct{ Embedding []float32 }
	if err := json.Unmarshal(out.Body, &embedding); err != nil || len(embedding.Embedding) != 256 {
		t.Errorf("%d numbers, %v", len(embedding.Embedding), err)
	}
}

func TestClients_BedrockInvokeModelWithResponseStream(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := bedrockClient(serveTLS(t, s), withSignature)
	program(t, s, server.Match{}, server.Reply{}, server.Reply{Fail: server.FailError, Code: "ModelTimeoutException"})
	for _, isGood := range []func(error) bool{func(err error) bool { return err == nil }, isA[*types.ModelTimeoutException]} {
		out, err := c.InvokeModelWithResponseStream(t.Context(), &bedrockruntime.InvokeModelWithResponseStreamInput{
			ModelId: aws.String(arn), Body: []byte(claudeBody),
		})
		if err != nil {
			t.Fatal(err)
		}
		stream := out.GetStream()
		var kinds []string
		for event := range stream.Events() {
			chunk, ok := event.(*types.ResponseStreamMemberChunk)
			if !ok {
				t.Fatalf("event is a %T", event)
			}
			var typed struct{ Type string }
			if err := json.Unmarshal(chunk.Value.Bytes, &typed); err != nil {
				t.Fatal(err)
			}
			if len(kinds) == 0 || kinds[len(kinds)-1] != typed.Type {
				kinds = append(kinds, typed.Type)
			}
		}
		err = stream.Err()
		_ = stream.Close()
		whole := cmp.Equal(kinds, []string{
			"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
		})
		if !isGood(err) || whole != (err == nil) {
			t.Errorf("kinds %v, %v", kinds, err)
		}
	}
}

func TestClients_BedrockCountTokens(t *testing.T) {
	t.Parallel()
	c := bedrockClient(serveTLS(t, newServer(t)), withSignature)
	got, err := c.CountTokens(t.Context(), &bedrockruntime.CountTokensInput{
		ModelId: aws.String(arn),
		Input:   &types.CountTokensInputMemberConverse{Value: types.ConverseTokensRequest{Messages: converseInput().Messages}},
	})
	if err != nil || aws.ToInt32(got.InputTokens) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}
