// Package sdkcompat holds the test of the door with the official SDKs. It is apart
// from the door's own tests because those SDKs take minutes to compile for the race
// detector and for fuzzing.
package sdkcompat

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/auth/bearer"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth/authtest"
	"github.com/llm-queue/llmq/pkg/llmq/httpapi"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

func TestMain(m *testing.M) {
	llmqtest.OwnEnvironment()
	goleak.VerifyTestMain(m)
}

const (
	testARN = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.vendor.model-v1:0"
	rawARN  = "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/a1b2"
)

var (
	testKeys   = authtest.New()
	testSecret = testKeys.Issue(authtest.All("team-a", "chat-a", "conv-a", "raw-a")).Key
)

// bundle is a door with the calls that reached what is behind it.
type bundle struct {
	httpapi.Calls // nil: no SDK asks by an id

	door *httpapi.Handler
	do   func(context.Context, llmq.Request) (*llmq.Reply, error)
	// events are the pieces of every stream, with what ends it.
	events []string
	end    error

	mu   sync.Mutex
	seen []llmq.Request // guarded by mu
}

func (b *bundle) Do(ctx context.Context, r llmq.Request) (*llmq.Reply, error) {
	b.mu.Lock()
	b.seen = append(b.seen, r)
	b.mu.Unlock()
	return b.do(ctx, r)
}

func (b *bundle) Stream(_ context.Context, r llmq.Request) (llmq.Stream, error) {
	b.mu.Lock()
	b.seen = append(b.seen, r)
	b.mu.Unlock()
	return &pieces{b.events, b.end}, nil
}

// pieces is a stream.
type pieces struct {
	left []string
	end  error
}

func (p *pieces) Next(context.Context) ([]byte, error) {
	if len(p.left) == 0 {
		return nil, p.end
	}
	next := p.left[0]
	p.left = p.left[1:]
	return []byte(next), nil
}

func (p *pieces) Close() {}

func (b *bundle) requests() []llmq.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]llmq.Request(nil), b.seen...)
}

func setup(t *testing.T, do func(context.Context, llmq.Request) (*llmq.Reply, error)) *bundle {
	t.Helper()
	model := func(alias, id string, w llmq.Wire) llmq.Model {
		return llmq.Model{Alias: alias, Lanes: llmq.Lanes(), Targets: []llmq.Target{{Model: alias, Name: "eu", Provider: "p", ModelID: id, Wires: []llmq.Wire{w}, MaxConcurrency: 1}}}
	}
	b := &bundle{do: do}
	var err error
	b.door, err = httpapi.New(httpapi.DefaultConfig(), httpapi.Deps{
		Calls: b, Keys: testKeys.Checker, Rates: authtest.NoRates{}, Logger: slog.New(slog.DiscardHandler), HashID: func(id string) string { return id },
		Catalogue: llmq.NewCatalogue([]llmq.Model{model("chat-a", "c", llmq.WireOpenAI), model("conv-a", testARN, llmq.WireConverse), model("raw-a", rawARN, llmq.WireInvoke)}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ok(context.Context, llmq.Request) (*llmq.Reply, error) {
	return &llmq.Reply{Status: 200, Body: []byte("{}")}, nil
}

// serveTLS runs the door over TLS, since the Bedrock SDK sends no bearer token without.
func serveTLS(t *testing.T, b *bundle) *httptest.Server {
	t.Helper()
	srv := httptest.NewTLSServer(b.door)
	t.Cleanup(func() {
		srv.Client().CloseIdleConnections()
		srv.Close()
	})
	return srv
}

func failing(code llmq.Code) func(context.Context, llmq.Request) (*llmq.Reply, error) {
	return func(context.Context, llmq.Request) (*llmq.Reply, error) {
		return nil, llmq.Errorf(code, "it failed").After(time.Millisecond)
	}
}

func bedrockClient(srv *httptest.Server, key string) *bedrockruntime.Client {
	return bedrockruntime.New(bedrockruntime.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(srv.URL), HTTPClient: srv.Client(),
		BearerAuthTokenProvider: bearer.StaticTokenProvider{Token: bearer.Token{Value: key}},
		AuthSchemePreference:    []string{"httpBearerAuth"},
	})
}

// A8: the official Bedrock SDK works with only its endpoint and token changed.
func TestBedrockSDK_ConversesByAliasAndARN(t *testing.T) {
	t.Parallel()
	b := setup(t, func(_ context.Context, r llmq.Request) (*llmq.Reply, error) {
		return &llmq.Reply{Status: 200, ContentType: "application/json", Body: []byte(`{"output":{"message":{"role":"assistant","content":[{"text":"hello"}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3},"metrics":{"latencyMs":7}}`)}, nil
	})
	client := bedrockClient(serveTLS(t, b), testSecret)
	for _, id := range []string{"conv-a", testARN, "conv-a@eu"} {
		out, err := client.Converse(t.Context(), &bedrockruntime.ConverseInput{
			ModelId:  aws.String(id),
			Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: "hi"}}}},
		})
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		msg, ok := out.Output.(*types.ConverseOutputMemberMessage)
		if !ok || msg.Value.Content[0].(*types.ContentBlockMemberText).Value != "hello" || *out.Usage.TotalTokens != 3 {
			t.Errorf("%s: got %+v", id, out)
		}
	}
	if got := b.requests(); len(got) != 3 || got[1].Model.Alias != testARN || got[2].Model.Target != "eu" {
		t.Errorf("handed over: %+v", got)
	}
}

// The SDK must find its typed errors, and must not repeat what is not to be repeated.
func TestBedrockSDK_GetsTypedErrorsAndRepeatsOnlyRetryableOnes(t *testing.T) {
	t.Parallel()
	for code, want := range map[llmq.Code]struct {
		typed func(error) bool
		name  string
		sends int // with the SDK's own default of three attempts
	}{
		llmq.CodeProviderRejected:    {is[*types.ValidationException], "ValidationException", 1},
		llmq.CodeIdempotencyMismatch: {is[*types.ValidationException], "ValidationException", 1},
		llmq.CodeForbidden:           {is[*types.AccessDeniedException], "AccessDeniedException", 1},
		llmq.CodeModelNotFound:       {is[*types.ResourceNotFoundException], "ResourceNotFoundException", 1},
		llmq.CodeTimeout:             {is[*types.ModelTimeoutException], "ModelTimeoutException", 1},
		llmq.CodeExpired:             {is[*types.ModelTimeoutException], "ModelTimeoutException", 1},
		llmq.CodeProviderError:       {is[*types.ModelErrorException], "ModelErrorException", 1},
		llmq.CodeProviderAuth:        {is[*types.ModelErrorException], "ModelErrorException", 1},
		llmq.CodeCancelled:           {is[*types.ConflictException], "ConflictException", 1},
		llmq.CodeInsufficientQuota:   {is[*types.ServiceQuotaExceededException], "ServiceQuotaExceededException", 1},
		llmq.CodeNoCapacity:          {is[*types.ThrottlingException], "ThrottlingException", 3},
		llmq.CodeQueueUnavailable:    {is[*types.ServiceUnavailableException], "ServiceUnavailableException", 3},
		llmq.CodeInternal:            {is[*types.InternalServerException], "InternalServerException", 3},
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			b := setup(t, failing(code))
			_, err := bedrockClient(serveTLS(t, b), testSecret).Converse(t.Context(), &bedrockruntime.ConverseInput{ModelId: aws.String("conv-a")}, func(o *bedrockruntime.Options) {
				o.RetryMaxAttempts = 3
			})
			api, ok := errors.AsType[smithy.APIError](err)
			if !ok || api.ErrorCode() != want.name || !want.typed(err) {
				t.Fatalf("got %v", err)
			}
			if n := len(b.requests()); n != want.sends {
				t.Errorf("the SDK sent %d times, want %d", n, want.sends)
			}
		})
	}
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

func TestBedrockSDK_BadKeyIsUnrecognizedClient(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	_, err := bedrockClient(serveTLS(t, b), "ABSKwrong").Converse(t.Context(), &bedrockruntime.ConverseInput{ModelId: aws.String("conv-a")})
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok || api.ErrorCode() != "UnrecognizedClientException" || len(b.requests()) != 0 {
		t.Errorf("got %v", err)
	}
}

func openAIClient(srv *httptest.Server, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(srv.URL+"/v1"), option.WithAPIKey(key), option.WithHTTPClient(srv.Client()))
}

// A8: the official OpenAI SDK works with only its base URL and key changed.
func TestOpenAISDK_ChatsEmbedsAndLists(t *testing.T) {
	t.Parallel()
	b := setup(t, func(_ context.Context, r llmq.Request) (*llmq.Reply, error) {
		body := `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`
		if r.Op == llmq.OpEmbeddings {
			body = `{"object":"list","model":"m","data":[{"object":"embedding","index":0,"embedding":[0.5,0.25]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`
		}
		return &llmq.Reply{Status: 200, ContentType: "application/json", Body: []byte(body)}, nil
	})
	client := openAIClient(serveTLS(t, b), testSecret)
	chat, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "chat-a", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
	})
	if err != nil || chat.Choices[0].Message.Content != "hello" {
		t.Fatalf("chat: %v", err)
	}
	emb, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "chat-a", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("hi")}})
	if err != nil || len(emb.Data[0].Embedding) != 2 {
		t.Fatalf("embeddings: %v", err)
	}
	list, err := client.Models.List(t.Context())
	if err != nil || len(list.Data) != 3 || list.Data[0].ID != "chat-a" || list.Data[0].OwnedBy != "llmq" {
		t.Fatalf("models: %v", err)
	}
}

func TestOpenAISDK_GetsFieldsAndRepeatsOnlyRetryableErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[llmq.Code]struct {
		typ   string
		sends int // with the SDK's own default of two repeats
	}{
		llmq.CodeTimeout: {"server_error", 1}, llmq.CodeProviderError: {"server_error", 1}, llmq.CodeInternal: {"server_error", 1},
		llmq.CodeCancelled: {"invalid_request_error", 1}, llmq.CodeInsufficientQuota: {"insufficient_quota", 1}, llmq.CodeModelNotFound: {"invalid_request_error", 1},
		llmq.CodeNoCapacity: {"rate_limit_error", 3}, llmq.CodeRateLimited: {"rate_limit_error", 3}, llmq.CodeQueueUnavailable: {"server_error", 3},
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			b := setup(t, failing(code))
			client := openAIClient(serveTLS(t, b), testSecret)
			_, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
				Model: "chat-a", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
			})
			e, ok := errors.AsType[*openai.Error](err)
			if !ok || e.Code != string(code) || e.Type != want.typ || e.StatusCode != code.Info().Status || e.Message == "" {
				t.Fatalf("got %+v", err)
			}
			if n := len(b.requests()); n != want.sends {
				t.Errorf("the SDK sent %d times, want %d", n, want.sends)
			}
		})
	}
}

func TestOpenAISDK_BadKeyIs401(t *testing.T) {
	t.Parallel()
	b := setup(t, ok)
	client := openAIClient(serveTLS(t, b), "sk-wrong")
	_, err := client.Models.List(t.Context())
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != http.StatusUnauthorized || e.Code != "invalid_api_key" || e.Type != "invalid_request_error" {
		t.Errorf("got %+v", err)
	}
}
