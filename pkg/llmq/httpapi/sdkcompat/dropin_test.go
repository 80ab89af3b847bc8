package sdkcompat

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/httpapi"
)

// dropIn is the HTTP client of a program whose calls a bundle answers.
func dropIn(t *testing.T, b *bundle) *http.Client {
	t.Helper()
	catalogue := llmq.NewCatalogue([]llmq.Model{
		{Alias: "chat-a", Lanes: llmq.Lanes(), Targets: []llmq.Target{{Model: "chat-a", Name: "eu", Provider: "p", ModelID: "c", Wires: []llmq.Wire{llmq.WireOpenAI}}}},
		{Alias: "conv-a", Lanes: llmq.Lanes(), Targets: []llmq.Target{{Model: "conv-a", Name: "eu", Provider: "p", ModelID: "v", Wires: []llmq.Wire{llmq.WireConverse}}}},
	})
	h, err := httpapi.New(httpapi.DefaultConfig(), httpapi.Deps{
		Calls: b, Program: auth.Program("team-a", catalogue.Models()), Catalogue: catalogue, Logger: slog.New(slog.DiscardHandler), HashID: func(id string) string { return id },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: httpapi.NewTransport(h)}
}

// A4, A12: behind the drop-in the SDKs' own retries are as behind the door: what can't go well is sent once, and what says
// so is sent again, three times in all by either SDK's default.
func TestDropIn_RetriesAreTheSDKs(t *testing.T) {
	t.Parallel()
	for code, want := range map[llmq.Code]int{
		llmq.CodeProviderRejected: 1, llmq.CodeTimeout: 1, llmq.CodeExpired: 1, llmq.CodeProviderError: 1, llmq.CodeCancelled: 1, llmq.CodeInsufficientQuota: 1,
		llmq.CodeRateLimited: 3, llmq.CodeNoCapacity: 3, llmq.CodeQueueUnavailable: 3,
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			b := setup(t, failing(code))
			ai := openai.NewClient(option.WithHTTPClient(dropIn(t, b)), option.WithAPIKey("none"))
			if _, err := ai.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "chat-a", Messages: []openai.ChatCompletionMessageParamUnion{}}); err == nil {
				t.Error("no error came")
			}
			if n := len(b.requests()); n != want {
				t.Errorf("openai-go sent %d times, want %d", n, want)
			}
			b = setup(t, failing(code))
			bedrock := bedrockruntime.New(bedrockruntime.Options{
				Region: "eu-central-1", HTTPClient: dropIn(t, b), Credentials: credentials.NewStaticCredentialsProvider("none", "none", ""),
			})
			if _, err := bedrock.Converse(t.Context(), &bedrockruntime.ConverseInput{ModelId: aws.String("conv-a")}); err == nil {
				t.Error("no error came")
			}
			if n := len(b.requests()); n != want {
				t.Errorf("bedrockruntime sent %d times, want %d", n, want)
			}
		})
	}
}
