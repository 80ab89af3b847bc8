package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go/auth/bearer"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/llm-queue/llmq/local/fakellm/server"
)

const (
	apiKey    = "key-of-the-tests"
	accessKey = "AKIDOFTHETESTS"
	arn       = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-x"
)

func newServer(t *testing.T, models ...string) *server.Server {
	t.Helper()
	s, err := server.New(server.Options{APIKeys: []string{apiKey}, AccessKeys: []string{accessKey}, Models: models})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func program(t *testing.T, s *server.Server, match server.Match, replies ...server.Reply) {
	t.Helper()
	if err := s.Program(match, replies...); err != nil {
		t.Fatal(err)
	}
}

// serveTLS puts a server behind a socket with TLS, as the SDKs want it for bearer tokens.
func serveTLS(t *testing.T, s *server.Server) *httptest.Server {
	t.Helper()
	ts := httptest.NewTLSServer(s)
	t.Cleanup(ts.Close)
	t.Cleanup(s.Close) // before ts.Close, which waits for the calls
	return ts
}

func openAIClient(ts *httptest.Server) *openai.Client {
	c := openai.NewClient(option.WithBaseURL(ts.URL+"/v1"), option.WithAPIKey(apiKey),
		option.WithHTTPClient(ts.Client()), option.WithMaxRetries(0))
	return &c
}

// G4, first form.
func TestClients_OpenAIChat(t *testing.T) {
	t.Parallel()
	c := openAIClient(serveTLS(t, newServer(t)))
	got, err := c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model:    "gpt-x",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("be kind"), openai.UserMessage("hello")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Choices[0].Message.Content != "[gpt-x] hello" || got.Choices[0].FinishReason != "stop" || got.Usage.TotalTokens != 7 {
		t.Errorf("got %s", got.RawJSON())
	}
}

func TestClients_OpenAIEmbeddings(t *testing.T) {
	t.Parallel()
	c := openAIClient(serveTLS(t, newServer(t)))
	got, err := c.Embeddings.New(t.Context(), openai.EmbeddingNewParams{
		Model:      openai.EmbeddingModelTextEmbedding3Small,
		Dimensions: openai.Int(4),
		Input:      openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Data) != 2 || len(got.Data[1].Embedding) != 4 || got.Data[1].Index != 1 || got.Usage.PromptTokens != 2 {
		t.Errorf("got %s", got.RawJSON())
	}
}

func TestClients_OpenAIModels(t *testing.T) {
	t.Parallel()
	c := openAIClient(serveTLS(t, newServer(t, "a", "b")))
	var ids []string
	pages := c.Models.ListAutoPaging(t.Context())
	for pages.Next() {
		ids = append(ids, pages.Current().ID)
	}
	if diff := cmp.Diff([]string{"a", "b"}, ids); diff != "" || pages.Err() != nil {
		t.Errorf("%v (-want +got):\n%s", pages.Err(), diff)
	}
}

func TestClients_OpenAIError(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := openAIClient(serveTLS(t, s))
	program(t, s, server.Match{Model: "m"}, server.Reply{Status: 429, Header: http.Header{"Retry-After": {"7"}}})
	_, err := c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("x")},
	})
	var apiErr *openai.Error
	if !errors.As(err, &apiErr) {
		t.Fatalf("got %v", err)
	}
	if apiErr.StatusCode != 429 || apiErr.Code != "rate_limit_exceeded" || apiErr.Type != "requests" ||
		apiErr.Response.Header.Get("Retry-After") != "7" {
		t.Errorf("got %d %+v", apiErr.StatusCode, apiErr.RawJSON())
	}
}

func bedrockClient(ts *httptest.Server, change func(*bedrockruntime.Options)) *bedrockruntime.Client {
	return bedrockruntime.New(bedrockruntime.Options{
		BaseEndpoint: aws.String(ts.URL),
		Region:       "eu-west-3",
		HTTPClient:   ts.Client(),
		Retryer:      aws.NopRetryer{},
	}, change)
}

func withBearer(o *bedrockruntime.Options) {
	o.BearerAuthTokenProvider = bearer.StaticTokenProvider{Token: bearer.Token{Value: apiKey}}
	o.AuthSchemePreference = []string{"httpBearerAuth"}
}

func withSignature(o *bedrockruntime.Options) {
	o.Credentials = credentials.NewStaticCredentialsProvider(accessKey, "unverified", "session-token")
}

func converseInput() *bedrockruntime.ConverseInput {
	return &bedrockruntime.ConverseInput{
		ModelId: aws.String(arn),
		Messages: []types.Message{{
			Role:    types.ConversationRoleUser,
			Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: "hello"}},
		}},
	}
}

func TestClients_BedrockConverse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, region, keyHash string
		auth                  func(*bedrockruntime.Options)
	}{
		{"bearer", "", server.KeyHash(apiKey), withBearer},
		{"signature", "eu-west-3", server.KeyHash(accessKey), withSignature},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			got, err := bedrockClient(serveTLS(t, s), tc.auth).Converse(t.Context(), converseInput())
			if err != nil {
				t.Fatal(err)
			}
			message, ok := got.Output.(*types.ConverseOutputMemberMessage)
			if !ok {
				t.Fatalf("output is a %T", got.Output)
			}
			text, ok := message.Value.Content[0].(*types.ContentBlockMemberText)
			if !ok || text.Value != "["+arn+"] hello" || message.Value.Role != types.ConversationRoleAssistant {
				t.Errorf("message %+v", message.Value)
			}
			if got.StopReason != types.StopReasonEndTurn || aws.ToInt32(got.Usage.InputTokens) != 2 || got.Metrics == nil {
				t.Errorf("stop %s, usage %+v", got.StopReason, got.Usage)
			}
			calls := s.Calls()
			if len(calls) != 1 || calls[0].Model != arn || calls[0].Region != tc.region || calls[0].KeyHash != tc.keyHash {
				t.Errorf("log %+v", calls)
			}
			for _, name := range []string{"Authorization", "X-Amz-Security-Token"} {
				if values, sent := calls[0].Header[name]; sent && !cmp.Equal(values, []string{"(redacted)"}) {
					t.Errorf("the log shows %s", name)
				}
			}
		})
	}
}

func TestClients_BedrockTypedErrors(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := bedrockClient(serveTLS(t, s), withSignature)
	for _, tc := range []struct {
		code string
		is   func(error) bool
	}{
		{"ThrottlingException", isA[*types.ThrottlingException]},
		{"ServiceQuotaExceededException", isA[*types.ServiceQuotaExceededException]},
		{"ModelNotReadyException", isA[*types.ModelNotReadyException]},
		{"ModelTimeoutException", isA[*types.ModelTimeoutException]},
		{"ModelErrorException", isA[*types.ModelErrorException]},
		{"ValidationException", isA[*types.ValidationException]},
		{"AccessDeniedException", isA[*types.AccessDeniedException]},
		{"ResourceNotFoundException", isA[*types.ResourceNotFoundException]},
		{"InternalServerException", isA[*types.InternalServerException]},
		{"ServiceUnavailableException", isA[*types.ServiceUnavailableException]},
	} {
		program(t, s, server.Match{Model: arn, Region: "eu-west-3"}, server.Reply{Code: tc.code})
		if _, err := c.Converse(t.Context(), converseInput()); !tc.is(err) {
			t.Errorf("%s came as %v", tc.code, err)
		}
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func TestClients_BodyIsCapturedAsItCame(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := openAIClient(serveTLS(t, s))
	if _, err := c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("x")},
	}, option.WithJSONSet("seen", true)); err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(s.Calls()[0].Body, &body); err != nil || body["seen"] != true {
		t.Errorf("captured %v, %v", body, err)
	}
}
