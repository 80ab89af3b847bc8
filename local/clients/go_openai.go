package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/local/rig"
)

// fourMiB is the largest body that the door takes.
const fourMiB = 4 << 20

// openAIChecks are those of openai-go. Behind a door there are keys, which a drop-in has not.
func openAIChecks(w *world, h *http.Client, base, key string, keys bool) []check {
	ai := openai.NewClient(option.WithHTTPClient(h), option.WithBaseURL(base), option.WithAPIKey(key))
	says := func(text string) openai.ChatCompletionNewParams {
		return openai.ChatCompletionNewParams{Model: rig.ModelChat, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
	}
	weather := []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "weather", Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}}},
	})}
	call := server.ToolCall{Name: "weather", Arguments: `{"city":"Ulm"}`}
	checks := []check{
		{"chat", func(ctx context.Context) (string, error) {
			var resp *http.Response
			got, err := ai.Chat.Completions.New(ctx, says("café ☕ <b>&</b>"), option.WithResponseInto(&resp), option.WithHeader("X-LLMQ-Lane", "bg"))
			if err != nil {
				return "", err
			}
			var is wants
			is.equal("content", got.Choices[0].Message.Content, "[fake-chat-1] café ☕ <b>&</b>")
			is.equal("usage", got.Usage.TotalTokens > 0, true)
			is.equal("lane", resp.Header.Get("X-LLMQ-Lane"), "bg")
			is.equal("target", resp.Header.Get("X-LLMQ-Target"), "main")
			return "", is.err()
		}},
		{"models", func(ctx context.Context) (string, error) {
			var ids []string
			pages := ai.Models.ListAutoPaging(ctx)
			for pages.Next() {
				ids = append(ids, pages.Current().ID)
			}
			var is wants
			is.equal("ids", strings.Join(ids, " "), "chat-a emb-a conv-a")
			return "", errors.Join(pages.Err(), is.err())
		}},
		{"tools", func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, server.Reply{ToolCalls: []server.ToolCall{call}}); err != nil {
				return "", err
			}
			p := says("Weather?")
			p.Tools = weather
			asked, err := ai.Chat.Completions.New(ctx, p)
			if err != nil {
				return "", err
			}
			m := asked.Choices[0].Message
			var is wants
			is.equal("arguments", m.ToolCalls[0].Function.Arguments, call.Arguments)
			p.Messages = append(p.Messages, m.ToParam(), openai.ToolMessage("7 °C", m.ToolCalls[0].ID))
			told, err := ai.Chat.Completions.New(ctx, p)
			if err != nil {
				return "", err
			}
			is.equal("finish", told.Choices[0].FinishReason, "stop")
			return "", is.err()
		}},
		{"JSON schema", func(ctx context.Context) (string, error) {
			text := `{"city":"Ulm","degrees":7}`
			if err := w.Replies(ctx, server.Reply{Text: &text}); err != nil {
				return "", err
			}
			p := says("As JSON")
			p.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{
				Name: "place", Strict: param.NewOpt(true), Schema: map[string]any{"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}}},
			}}
			got, err := ai.Chat.Completions.New(ctx, p)
			if err != nil {
				return "", err
			}
			var place struct{ Degrees int }
			err = json.Unmarshal([]byte(got.Choices[0].Message.Content), &place)
			var is wants
			is.equal("degrees", place.Degrees, 7)
			return "", errors.Join(err, is.err())
		}},
		{"body of 4 MiB", func(ctx context.Context) (string, error) {
			p := says("short")
			p.Messages = append(p.Messages, openai.SystemMessage(""))
			empty, err := json.Marshal(p)
			if err != nil {
				return "", err
			}
			p.Messages[1] = openai.SystemMessage(strings.Repeat("x", fourMiB-len(empty)))
			if _, err := ai.Chat.Completions.New(ctx, p); err != nil {
				return "", err
			}
			p.Messages[1] = openai.SystemMessage(strings.Repeat("x", fourMiB-len(empty)+1))
			_, err = ai.Chat.Completions.New(ctx, p)
			return "", w.sameError(err, http.StatusRequestEntityTooLarge, "request_too_large", "false", 1)
		}},
		{"stream with usage", func(ctx context.Context) (string, error) {
			p := says("one two three")
			p.StreamOptions.IncludeUsage = param.NewOpt(true)
			s := ai.Chat.Completions.NewStreaming(ctx, p)
			defer s.Close()
			text, tokens := "", int64(0)
			for s.Next() {
				for _, c := range s.Current().Choices {
					text += c.Delta.Content
				}
				tokens += s.Current().Usage.TotalTokens
			}
			var is wants
			is.equal("text", text, "[fake-chat-1] one two three")
			is.equal("usage", tokens > 0, true)
			return "", errors.Join(s.Err(), is.err())
		}},
		{"stream that breaks", func(ctx context.Context) (string, error) {
			text := "a text that is long enough to be cut in its middle"
			if err := w.Replies(ctx, server.Reply{Fail: server.FailError, After: 4, Text: &text}); err != nil {
				return "", err
			}
			s := ai.Chat.Completions.NewStreaming(ctx, says("x"))
			defer s.Close()
			chunks := 0
			for s.Next() {
				chunks++
			}
			var is wants
			is.equal("chunks came before", chunks > 0, true)
			is.equal("an error came", s.Err() != nil, true)
			return fmt.Sprintf("%.120v", s.Err()), is.err()
		}},
		{"responses", func(ctx context.Context) (string, error) {
			got, err := ai.Responses.New(ctx, responses.ResponseNewParams{Model: rig.ModelChat, Store: param.NewOpt(false), Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("hello")}})
			if err != nil {
				return "", err
			}
			var is wants
			is.equal("text", got.OutputText(), "[fake-chat-1] hello")
			return "", is.err()
		}},
		{"embeddings, floats and base64", func(ctx context.Context) (string, error) {
			p := openai.EmbeddingNewParams{Model: rig.ModelEmbed, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two"}}}
			floats, err := ai.Embeddings.New(ctx, p)
			if err != nil {
				return "", err
			}
			p.EncodingFormat = openai.EmbeddingNewParamsEncodingFormatBase64
			var raw *http.Response
			_, err = ai.Embeddings.New(ctx, p, option.WithResponseInto(&raw)) // the client has no type for base64, and says so
			var is wants
			is.equal("numbers", len(floats.Data[1].Embedding) > 0, true)
			is.equal("status", raw != nil && raw.StatusCode == http.StatusOK, true)
			return fmt.Sprintf("%d numbers; base64: %.100v", len(floats.Data[1].Embedding), err), is.err()
		}},
		{"error: deadline", func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, server.Reply{Hang: true}); err != nil {
				return "", err
			}
			_, err := ai.Chat.Completions.New(ctx, says("slow"), option.WithHeader("X-LLMQ-Timeout-Secs", "2"))
			e, _ := errors.AsType[*openai.Error](err)
			code := ""
			if e != nil {
				code = e.Code
			}
			return code, w.sameError(err, http.StatusGatewayTimeout, code, "false", 1)
		}},
		{"cancelled context", func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, server.Reply{Delay: 2500 * time.Millisecond}); err != nil {
				return "", err
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				_ = w.Fake.AwaitInFlight(ctx, "fake-chat-1", 1) // the check's own bound ends it otherwise
				cancel()
			}()
			_, err := ai.Chat.Completions.New(ctx, says("slow"))
			var is wants
			is.equal("it is the context's error", errors.Is(err, context.Canceled), true)
			is.equal("calls", w.Calls(), 1)
			return "", is.err()
		}},
		{"own retries: a throttle", func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, throttle()); err != nil {
				return "", err
			}
			began := time.Now()
			_, err := ai.Chat.Completions.New(ctx, says("throttled"), option.WithHeader("X-LLMQ-Timeout-Secs", "2"))
			return fmt.Sprintf("sent 3 times in %.0f s", time.Since(began).Seconds()), w.sameError(err, http.StatusTooManyRequests, "rate_limited", "true", 3)
		}},
	}
	for _, f := range []struct {
		name, model string
		status      int
		code        string
	}{{"unknown model", "chat-b", 404, "model_not_found"}, {"wrong wire", rig.ModelConverse, 400, "wrong_wire"}} {
		checks = append(checks, check{"error: " + f.name, func(ctx context.Context) (string, error) {
			p := says("x")
			p.Model = f.model
			_, err := ai.Chat.Completions.New(ctx, p)
			return "", w.sameError(err, f.status, f.code, "false", 0)
		}})
	}
	for _, f := range []struct {
		name   string
		reply  server.Reply
		status int
		code   string
		calls  int
	}{
		{"provider refuses", server.Reply{Status: 400}, 400, "provider_rejected", 1},
		{"provider: no access", server.Reply{Status: 401}, 502, "provider_auth_failed", 1},
		{"provider: no money", server.Reply{Code: "insufficient_quota"}, 429, "insufficient_quota", 1},
		{"provider fails", server.Reply{Status: 500, Times: 20}, 502, "provider_error", 3},
	} {
		checks = append(checks, check{"error: " + f.name, func(ctx context.Context) (string, error) {
			if err := w.Replies(ctx, f.reply); err != nil {
				return "", err
			}
			_, err := ai.Chat.Completions.New(ctx, says(f.name))
			return fmt.Sprintf("%d sent to the provider", f.calls), w.sameError(err, f.status, f.code, "false", f.calls)
		}})
	}
	if keys {
		checks = append(checks, check{"error: wrong key", func(ctx context.Context) (string, error) {
			_, err := ai.Chat.Completions.New(ctx, says("x"), option.WithAPIKey("llmq_local_none"))
			return "", w.sameError(err, http.StatusUnauthorized, "invalid_api_key", "false", 0)
		}})
	}
	return last(checks, "own retries: a throttle")
}

// throttle is a provider's that asks for a longer wait than the calls of the checks have: llmq doesn't wait for it, and the client does.
func throttle() server.Reply {
	return server.Reply{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3"}}, Times: 50}
}

// last puts a check behind the others, which it would make wait.
func last(checks []check, name string) []check {
	slices.SortStableFunc(checks, func(a, b check) int {
		switch {
		case a.name == name:
			return 1
		case b.name == name:
			return -1
		}
		return 0
	})
	return checks
}

// sameError compares openai-go's error, and how often the provider was called over it.
func (w *world) sameError(err error, status int, code, retry string, calls int) error {
	e, ok := errors.AsType[*openai.Error](err)
	if !ok {
		return fmt.Errorf("error = %w, want the client's own type", err)
	}
	var is wants
	is.equal("status", e.StatusCode, status)
	is.equal("code", e.Code, code)
	is.equal("x-should-retry", e.Response.Header.Get("X-Should-Retry"), retry)
	is.equal("calls of the provider", w.Calls(), calls)
	return is.err()
}
