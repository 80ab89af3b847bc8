package sdkcompat

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/client/clienttest"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// start is what a program does by wiring.Open(ctx, os.Environ(), "team-a", slog.Default()): here queue, worker and
// provider are of this process. The provider says the model that it was asked for.
func start() *clienttest.Program {
	program, err := clienttest.Start(func(_ context.Context, r provider.Request, emit provider.Emit) (*provider.Response, error) {
		switch {
		case r.Op == llmq.OpChat && emit != nil:
			for _, word := range []string{"I am ", r.ModelID} {
				emit([]byte(`data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"`+word+`"}}]}`+"\n\n"), true)
			}
			return &provider.Response{Status: 200, ContentType: "text/event-stream"}, nil
		case emit != nil:
			for _, word := range []string{"I am ", r.ModelID} {
				emit([]byte(frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"`+word+`"}}`)), true)
			}
			emit([]byte(frame("messageStop", `{"stopReason":"end_turn"}`)), true)
			return &provider.Response{Status: 200, ContentType: "application/vnd.amazon.eventstream"}, nil
		case r.Op == llmq.OpChat:
			return reply(`{"object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"I am ` + r.ModelID + `"}}]}`)
		default:
			return reply(`{"output":{"message":{"role":"assistant","content":[{"text":"I am ` + r.ModelID + `"}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3},"metrics":{"latencyMs":7}}`)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	return program
}

func reply(body string) (*provider.Response, error) {
	return &provider.Response{Status: 200, ContentType: "application/json", Body: []byte(body)}, nil
}

// A12: an openai-go client as it is, with another HTTP client. Host and key mean nothing.
func Example_openAI() {
	llm := start()
	defer llm.Close()

	ai := openai.NewClient(option.WithHTTPClient(llm.HTTPClient()), option.WithAPIKey("none"))
	var resp *http.Response
	got, err := ai.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{
		Model: "chat-a", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Who are you?")},
	}, option.WithHeader("X-LLMQ-Lane", "bg"), option.WithResponseInto(&resp))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.Choices[0].Message.Content)
	fmt.Println(resp.Header.Get("X-LLMQ-Lane"), resp.Header.Get("X-LLMQ-Target"), resp.Header.Get("X-LLMQ-Model-Id"))
	// Output:
	// I am chat-a-main
	// bg main chat-a-main
}

// A11, A12: streams flow as they come.
func Example_openAIStream() {
	llm := start()
	defer llm.Close()

	ai := openai.NewClient(option.WithHTTPClient(llm.HTTPClient()), option.WithAPIKey("none"))
	stream := ai.Chat.Completions.NewStreaming(context.Background(), openai.ChatCompletionNewParams{
		Model: "chat-a@spare", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Who are you?")},
	})
	defer stream.Close()
	for stream.Next() {
		fmt.Printf("%q\n", stream.Current().Choices[0].Delta.Content)
	}
	fmt.Println(stream.Err())
	// Output:
	// "I am "
	// "chat-a-spare"
	// <nil>
}

// A4, A12: errors are those of the SDK; what can't go well is not repeated.
func Example_openAIErrors() {
	llm := start()
	defer llm.Close()

	ai := openai.NewClient(option.WithHTTPClient(llm.HTTPClient()), option.WithAPIKey("none"))
	_, err := ai.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{Model: "chat-b", Messages: []openai.ChatCompletionMessageParamUnion{}})
	if e, ok := errors.AsType[*openai.Error](err); ok {
		fmt.Println(e.StatusCode, e.Code, e.Response.Header.Get("X-Should-Retry"))
	}
	// Output:
	// 404 model_not_found false
}

// bedrock is a Bedrock client as it is, with another HTTP client. It signs its requests with whatever credentials it has,
// and nobody reads them.
func bedrock(llm *clienttest.Program) *bedrockruntime.Client {
	return bedrockruntime.New(bedrockruntime.Options{
		Region: "eu-central-1", HTTPClient: llm.HTTPClient(), Credentials: credentials.NewStaticCredentialsProvider("none", "none", ""),
	})
}

func question() []types.Message {
	return []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: "Who are you?"}}}}
}

// A12: Converse through the queue. A call is steered by headers, and tells how it was served by those of its answer.
func Example_bedrock() {
	llm := start()
	defer llm.Close()

	out, err := bedrock(llm).Converse(context.Background(), &bedrockruntime.ConverseInput{ModelId: aws.String("conv-a"), Messages: question()},
		bedrockruntime.WithAPIOptions(smithyhttp.SetHeaderValue("X-LLMQ-Lane", "bulk")))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Output.(*types.ConverseOutputMemberMessage).Value.Content[0].(*types.ContentBlockMemberText).Value)
	head := awsmiddleware.GetRawResponse(out.ResultMetadata).(*smithyhttp.Response).Header
	fmt.Println(head.Get("X-LLMQ-Lane"), head.Get("X-LLMQ-Target"), head.Get("X-LLMQ-Model-Id"))
	// Output:
	// I am conv-a-main
	// bulk main conv-a-main
}

// A11, A12: ConverseStream through the queue.
func Example_bedrockStream() {
	llm := start()
	defer llm.Close()

	out, err := bedrock(llm).ConverseStream(context.Background(), &bedrockruntime.ConverseStreamInput{ModelId: aws.String("conv-a"), Messages: question()})
	if err != nil {
		log.Fatal(err)
	}
	stream := out.GetStream()
	defer stream.Close()
	for event := range stream.Events() {
		switch e := event.(type) {
		case *types.ConverseStreamOutputMemberContentBlockDelta:
			fmt.Printf("%q\n", e.Value.Delta.(*types.ContentBlockDeltaMemberText).Value)
		case *types.ConverseStreamOutputMemberMessageStop:
			fmt.Println(e.Value.StopReason)
		}
	}
	fmt.Println(stream.Err())
	// Output:
	// "I am "
	// "conv-a-main"
	// end_turn
	// <nil>
}
