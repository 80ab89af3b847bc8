package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/auth/bearer"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
)

// steered sets a header of one call.
func steered(name, value string) func(*bedrockruntime.Options) {
	return bedrockruntime.WithAPIOptions(smithyhttp.SetHeaderValue(name, value))
}

// bedrockChecks are those of bedrockruntime: with a bearer token at an endpoint, or signed and without one, as behind a drop-in.
func bedrockChecks(w *world, h *http.Client, endpoint, key string) []check {
	o := bedrockruntime.Options{Region: "us-east-1", HTTPClient: h}
	if endpoint != "" {
		o.BaseEndpoint = aws.String(endpoint)
		o.BearerAuthTokenProvider = bearer.StaticTokenProvider{Token: bearer.Token{Value: key}}
		o.AuthSchemePreference = []string{"httpBearerAuth"}
	} else {
		o.Credentials = credentials.NewStaticCredentialsProvider("none", "none", "")
	}
	c := bedrockruntime.New(o)
	asks := func(text, model string) *bedrockruntime.ConverseInput {
		return &bedrockruntime.ConverseInput{
			ModelId:  aws.String(model),
			Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: text}}}},
		}
	}
	says := func(out *bedrockruntime.ConverseOutput) string {
		if m, ok := out.Output.(*types.ConverseOutputMemberMessage); ok {
			if t, ok := m.Value.Content[0].(*types.ContentBlockMemberText); ok {
				return t.Value
			}
		}
		return fmt.Sprintf("%T", out.Output)
	}
	stream := func(ctx context.Context, text string) (said string, tokens int32, err error) {
		in := asks(text, rig.ModelConverse)
		out, err := c.ConverseStream(ctx, &bedrockruntime.ConverseStreamInput{ModelId: in.ModelId, Messages: in.Messages})
		if err != nil {
			return "", 0, err
		}
		s := out.GetStream()
		defer s.Close()
		for event := range s.Events() {
			switch e := event.(type) {
			case *types.ConverseStreamOutputMemberContentBlockDelta:
				if t, ok := e.Value.Delta.(*types.ContentBlockDeltaMemberText); ok {
					said += t.Value
				}
			case *types.ConverseStreamOutputMemberMetadata:
				tokens = aws.ToInt32(e.Value.Usage.TotalTokens)
			}
		}
		return said, tokens, s.Err()
	}
	checks := []check{
		{"converse", func(ctx context.Context) (string, error) {
			var is wants
			for _, model := range []string{rig.ModelConverse, rig.ModelConverse + "@main", "fake.converse-v1:0"} {
				out, err := c.Converse(ctx, asks("café ☕", model), steered("X-LLMQ-Lane", "bg"))
				if err != nil {
					return "", err
				}
				is.equal("text", says(out), "[fake.converse-v1:0] café ☕")
				is.equal("usage", aws.ToInt32(out.Usage.TotalTokens) > 0, true)
				if resp, ok := awsmiddleware.GetRawResponse(out.ResultMetadata).(*smithyhttp.Response); ok {
					is.equal("lane", resp.Header.Get("X-LLMQ-Lane"), "bg")
				}
			}
			return "", is.err()
		}},
		{"tools", func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, server.Reply{ToolCalls: []server.ToolCall{{Name: "weather", Arguments: `{"city":"Ulm"}`}}}); err != nil {
				return "", err
			}
			in := asks("Weather?", rig.ModelConverse)
			in.ToolConfig = &types.ToolConfiguration{Tools: []types.Tool{&types.ToolMemberToolSpec{Value: types.ToolSpecification{
				Name: aws.String("weather"), InputSchema: &types.ToolInputSchemaMemberJson{Value: document.NewLazyDocument(map[string]any{"type": "object"})},
			}}}}
			out, err := c.Converse(ctx, in)
			if err != nil {
				return "", err
			}
			m, ok := out.Output.(*types.ConverseOutputMemberMessage)
			if !ok {
				return "", fmt.Errorf("output is a %T", out.Output)
			}
			var is wants
			is.equal("stop", out.StopReason, types.StopReasonToolUse)
			use, ok := m.Value.Content[0].(*types.ContentBlockMemberToolUse)
			if !ok {
				return "", fmt.Errorf("content is a %T", m.Value.Content[0])
			}
			in.Messages = append(in.Messages, m.Value, types.Message{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberToolResult{Value: types.ToolResultBlock{
				ToolUseId: use.Value.ToolUseId, Content: []types.ToolResultContentBlock{&types.ToolResultContentBlockMemberText{Value: "7 °C"}},
			}}}})
			if out, err = c.Converse(ctx, in); err != nil {
				return "", err
			}
			is.equal("stop", out.StopReason, types.StopReasonEndTurn)
			return "", is.err()
		}},
		{"body of 4 MiB", func(ctx context.Context) (string, error) {
			in := asks("short", rig.ModelConverse)
			in.System = []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: strings.Repeat("x", fourMiB-200)}}
			out, err := c.Converse(ctx, in)
			if err != nil {
				return "", err
			}
			var is wants
			is.equal("text", says(out), "[fake.converse-v1:0] short")
			return "", is.err()
		}},
		{"stream with usage", func(ctx context.Context) (string, error) {
			said, tokens, err := stream(ctx, "one two three")
			var is wants
			is.equal("text", said, "[fake.converse-v1:0] one two three")
			is.equal("usage", tokens > 0, true)
			return "", errors.Join(err, is.err())
		}},
		{"stream that breaks", func(ctx context.Context) (string, error) {
			text := "a text that is long enough to be cut in its middle"
			if err := w.Replies(ctx, server.Reply{Fail: server.FailReset, After: 4, Text: &text}); err != nil {
				return "", err
			}
			said, _, err := stream(ctx, "x")
			var is wants
			is.equal("a part came", said != "", true)
			return "", errors.Join(is.err(), w.bedrockError(err, "ModelStreamErrorException", 1))
		}},
		{"invoke", func(ctx context.Context) (string, error) {
			out, err := c.InvokeModel(ctx, &bedrockruntime.InvokeModelInput{ // without a ContentType, as most callers have it
				ModelId: aws.String(rig.ModelConverse),
				Body:    []byte(`{"anthropic_version":"bedrock-2023-05-31","max_tokens":50,"messages":[{"role":"user","content":"hello"}]}`),
			})
			if err != nil {
				return "", err
			}
			var is wants
			is.equal("the reply repeats what it was told", strings.Contains(string(out.Body), "[fake.converse-v1:0] hello"), true)
			return "", is.err()
		}},
		{"error: unknown model", func(ctx context.Context) (string, error) {
			_, err := c.Converse(ctx, asks("x", "conv-b"))
			return "", w.bedrockError(err, "ResourceNotFoundException", 0)
		}},
		{"error: wrong wire", func(ctx context.Context) (string, error) {
			_, err := c.Converse(ctx, asks("x", rig.ModelChat))
			return "", w.bedrockError(err, "ValidationException", 0)
		}},
		{"error: deadline", func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, server.Reply{Hang: true}); err != nil {
				return "", err
			}
			_, err := c.Converse(ctx, asks("slow", rig.ModelConverse), steered("X-LLMQ-Timeout-Secs", "2"))
			return "", w.bedrockError(err, "ModelTimeoutException", 1)
		}},
		{"cancelled context", func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, server.Reply{Delay: 2500 * time.Millisecond}); err != nil {
				return "", err
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				_ = w.Fake.AwaitInFlight(ctx, "fake.converse-v1:0", 1) // the check's own bound ends it otherwise
				cancel()
			}()
			_, err := c.Converse(ctx, asks("slow", rig.ModelConverse))
			var is wants
			is.equal("it is the context's error", errors.Is(err, context.Canceled), true)
			is.equal("calls", w.Calls(), 1)
			return fmt.Sprintf("%.100v", err), is.err()
		}},
	}
	for _, f := range []struct {
		name  string
		reply server.Reply
		code  string
		calls int
	}{
		{"provider refuses", server.Reply{Code: "ValidationException"}, "ValidationException", 1},
		{"provider: no access", server.Reply{Code: "AccessDeniedException"}, "ModelErrorException", 1},
		{"provider fails", server.Reply{Status: 500, Times: 20}, "ModelErrorException", 3},
	} {
		checks = append(checks, check{"error: " + f.name, func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, f.reply); err != nil {
				return "", err
			}
			_, err := c.Converse(ctx, asks(f.name, rig.ModelConverse))
			return fmt.Sprintf("%d sent to the provider", f.calls), w.bedrockError(err, f.code, f.calls)
		}})
	}
	return append(checks, check{"own retries: a throttle", func(ctx context.Context) (string, error) {
		if err := w.Replies(ctx, throttle()); err != nil {
			return "", err
		}
		began := time.Now()
		_, err := c.Converse(ctx, asks("throttled", rig.ModelConverse), steered("X-LLMQ-Timeout-Secs", "2"))
		return fmt.Sprintf("sent 3 times in %.0f s", time.Since(began).Seconds()), w.bedrockError(err, "ThrottlingException", 3)
	}})
}

// bedrockError compares the SDK's error, and how often the provider was called over it.
func (w *world) bedrockError(err error, code string, calls int) error {
	e, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return fmt.Errorf("error = %w, want one of the service's", err)
	}
	var is wants
	is.equal("code", e.ErrorCode(), code)
	is.equal("calls of the provider", w.Calls(), calls)
	return is.err()
}
