package openai

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/providertest"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// D8, H14, H15, H18, H19: what vendors publish of their refusals, each file with its source.
func TestClassify_RecordedReplies(t *testing.T) {
	t.Parallel()
	type verdict struct {
		Class   provider.Class
		Code    llmq.Code
		Kind    string
		After   time.Duration
		Message string // how it begins; "" wants none
	}
	tests := map[string]verdict{
		"429-rate-limit-tokens":            {provider.Throttle, llmq.CodeRateLimited, "rate_limit_exceeded", 644 * time.Millisecond, "Rate limit reached"},
		"429-no-body":                      {provider.Throttle, llmq.CodeRateLimited, "", 7 * time.Second, ""},
		"498-groq-flex":                    {provider.Throttle, llmq.CodeRateLimited, "capacity_exceeded", 0, "the flex tier"},
		"529-anthropic-overloaded":         {provider.Throttle, llmq.CodeRateLimited, "overloaded_error", 0, "Overloaded"},
		"503-openai-overloaded":            {provider.Throttle, llmq.CodeRateLimited, "server_error", 0, "That model is currently overloaded"},
		"400-openai-overloaded":            {provider.Throttle, llmq.CodeRateLimited, "server_is_overloaded", 0, "Our servers"},
		"429-insufficient-quota":           {provider.TargetFatal, llmq.CodeInsufficientQuota, "insufficient_quota", 0, "out of credit"},
		"429-insufficient-quota-type-only": {provider.TargetFatal, llmq.CodeInsufficientQuota, "insufficient_quota", 0, "out of credit"},
		"402-openrouter":                   {provider.TargetFatal, llmq.CodeInsufficientQuota, "", 0, "Insufficient credits"},
		"400-anthropic-credit":             {provider.TargetFatal, llmq.CodeInsufficientQuota, "invalid_request_error", 0, "Your credit balance"},
		"429-request-too-large":            {provider.TargetFatal, llmq.CodeProviderRejected, "rate_limit_exceeded", 0, "Request too large"},
		"413-request-too-large-groq":       {provider.TargetFatal, llmq.CodeProviderRejected, "rate_limit_exceeded", 0, "Request too large"},
		"503-balancer":                     {provider.Retryable, llmq.CodeProviderError, "", 2 * time.Second, ""},
		"502-page":                         {provider.Retryable, llmq.CodeProviderError, "", 0, ""},
		"500-openai":                       {provider.Retryable, llmq.CodeProviderError, "server_error", 0, "The server had an error"},
		"504-empty":                        {provider.Retryable, llmq.CodeProviderError, "", 0, ""},
		"408-empty":                        {provider.Retryable, llmq.CodeProviderError, "", 0, ""},
		"409-conflict":                     {provider.Retryable, llmq.CodeProviderError, "invalid_request_error", 0, "The resource"},
		"424-failed-dependency":            {provider.Retryable, llmq.CodeProviderError, "", 0, "model is loading"},
		"401-openai":                       {provider.TargetFatal, llmq.CodeProviderAuth, "invalid_api_key", 0, ""},
		"403-openai-country":               {provider.TargetFatal, llmq.CodeProviderAuth, "unsupported_country_region_territory", 0, ""},
		"407-proxy":                        {provider.TargetFatal, llmq.CodeProviderAuth, "", 0, ""},
		"404-openai-model":                 {provider.TargetFatal, llmq.CodeProviderError, "model_not_found", 0, "The model"},
		"404-vllm-model":                   {provider.TargetFatal, llmq.CodeProviderError, "NotFoundError", 0, "The model"},
		"404-fastapi-route":                {provider.TargetFatal, llmq.CodeProviderError, "", 0, "Not Found"},
		"405-route":                        {provider.TargetFatal, llmq.CodeProviderError, "", 0, "Method Not Allowed"},
		"501-route":                        {provider.TargetFatal, llmq.CodeProviderError, "not_supported_error", 0, "This server"},
		"307-elsewhere":                    {provider.TargetFatal, llmq.CodeProviderError, "", 0, ""},
		"400-context-length":               {provider.CallFatal, llmq.CodeProviderRejected, "context_length_exceeded", 0, "This model's maximum context length"},
		"400-gemini":                       {provider.CallFatal, llmq.CodeProviderRejected, "INVALID_ARGUMENT", 0, "Unable to submit"},
		"413-proxy":                        {provider.CallFatal, llmq.CodeProviderRejected, "", 0, ""},
		"200-openrouter-upstream":          {provider.Throttle, llmq.CodeRateLimited, "", 0, "z-ai/glm-5.3-flash is temporarily"},
		"200-openrouter-down":              {provider.Retryable, llmq.CodeProviderError, "", 0, "Network connection lost"},
		"400-openrouter-raw":               {provider.CallFatal, llmq.CodeProviderRejected, "", 0, "Response input messages must"},
		"400-azure-content-filter":         {provider.CallFatal, llmq.CodeProviderRejected, "content_filter", 0, "The response was filtered"},
		"429-azure-tokens":                 {provider.Throttle, llmq.CodeRateLimited, "", 9 * time.Second, "Requests to the ChatCompletions_Create"},
		"429-azure-remaining":              {provider.Throttle, llmq.CodeRateLimited, "", 2 * time.Second, "Rate limit is exceeded"},
		"429-gemini":                       {provider.Throttle, llmq.CodeRateLimited, "RESOURCE_EXHAUSTED", 26 * time.Second, "You exceeded"},
		"429-gemini-said":                  {provider.Throttle, llmq.CodeRateLimited, "RESOURCE_EXHAUSTED", 53016342224, "You exceeded"},
		"429-groq-said":                    {provider.Throttle, llmq.CodeRateLimited, "rate_limit_exceeded", 5289 * time.Millisecond, "Rate limit reached"},
		"429-groq-resets":                  {provider.Throttle, llmq.CodeRateLimited, "rate_limit_exceeded", 62500 * time.Millisecond, "Rate limit reached"},
		"429-anthropic":                    {provider.Throttle, llmq.CodeRateLimited, "rate_limit_error", 12 * time.Second, "Your account"},
		"413-anthropic":                    {provider.CallFatal, llmq.CodeProviderRejected, "request_too_large", 0, "Request exceeds"},
		"400-vllm-context":                 {provider.CallFatal, llmq.CodeProviderRejected, "BadRequestError", 0, "This model's maximum context length"},
		"400-vllm-context-old":             {provider.CallFatal, llmq.CodeProviderRejected, "BadRequestError", 0, "This model's maximum context length"},
		"404-ollama":                       {provider.TargetFatal, llmq.CodeProviderError, "", 0, "model 'custom-phi3"},
		"404-ollama-openai":                {provider.TargetFatal, llmq.CodeProviderError, "api_error", 0, "model \"ollama\" not found"},
		"503-ollama-busy":                  {provider.Throttle, llmq.CodeRateLimited, "api_error", 0, "server busy"},
		"422-fastapi":                      {provider.CallFatal, llmq.CodeProviderRejected, "", 0, "Field required"},
	}
	files, err := filepath.Glob("testdata/*.http")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(tests) {
		t.Errorf("testdata has %d replies, the table %d", len(files), len(tests))
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply := providertest.Recorded(t, filepath.Join("testdata", name+".http"))
			var e *provider.Error
			if reply.OK() { // OpenRouter answers so once it has begun to write blanks
				e = told(reply.Body, "sk-not-in-the-reply")
				reply.Status = e.Status
			} else {
				e = classify(reply, noon, "sk-not-in-the-reply")
			}
			got := verdict{e.Class, e.Code, e.Kind, e.RetryAfter, want.Message}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("classify (-want +got):\n%s", diff)
			}
			if !strings.HasPrefix(e.Message, want.Message) || want.Message == "" && e.Message != "" {
				t.Errorf("message = %q, want it to begin with %q", e.Message, want.Message)
			}
			if e.Status != reply.Status {
				t.Errorf("status = %d, want %d", e.Status, reply.Status)
			}
		})
	}
}

// Every status has a verdict, and none outside 2xx counts as a throttle by accident.
func TestClassify_EveryStatus(t *testing.T) {
	t.Parallel()
	for status := 100; status < 1000; status++ {
		if status/100 == 2 {
			continue
		}
		e := classify(egress.Reply{Status: status, Header: http.Header{}}, noon, "")
		throttle := status == 429 || status == 498 || status == 529
		if e.Class.String() == "unknown" || e.Code == "" || (e.Class == provider.Throttle) != throttle {
			t.Errorf("status %d gives %v %v", status, e.Class, e.Code)
		}
	}
}

func TestClassify_RemovesTheKey(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdef0123456789abcdef" // a shape that no pattern knows
	for _, status := range []int{400, 401, 404, 429, 500} {
		body := `{"error":{"message":"bad key ` + key + `","code":"` + key + `"}}`
		e := classify(egress.Reply{Status: status, Header: http.Header{}, Body: []byte(body)}, noon, key)
		if strings.Contains(e.Error(), key) || strings.Contains(e.Message, key) {
			t.Errorf("status %d shows the key: %v", status, e)
		}
	}
}

func TestParse_EveryFormOfError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     wireError
	}{
		{"string", `{"error":"model not loaded"}`, wireError{message: "model not loaded"}},
		{"number as code", `{"error":{"message":"m","type":"t","code":400}}`, wireError{typ: "t", message: "m"}},
		{"wrong types", `{"error":{"message":["m"],"type":{},"code":"c"}}`, wireError{code: "c"}},
		{"detail", `{"detail":"Not Found"}`, wireError{message: "Not Found"}},
		{"details", `{"detail":[{"msg":"Field required"},{"msg":"other"}]}`, wireError{message: "Field required"}},
		{"list", `[{"error":{"message":"m","status":"S"}}]`, wireError{typ: "S", message: "m"}},
		{"top level", `{"object":"error","message":"m","type":"t","code":404}`, wireError{typ: "t", message: "m"}},
		{"null", `null`, wireError{}},
		{"empty list", `[]`, wireError{}},
		{"page", `<html>`, wireError{}},
		{"cut off", `{"error":{"message":"m"`, wireError{}},
		{"empty", ``, wireError{}},
		{"deep", strings.Repeat("[", 100_000), wireError{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := parse([]byte(tt.in)); got != tt.want {
				t.Errorf("parse(%.80s) = %+v, want %+v", tt.in, got, tt.want)
			}
		})
	}
}

func FuzzClassify(f *testing.F) {
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		f.Fatalf("no recorded replies: %v", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := bytes.Cut(data, []byte("\r\n\r\n"))
		f.Add(429, body)
		f.Add(400, body)
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		e := classify(egress.Reply{Status: status, Header: http.Header{}, Body: body}, noon, "")
		if e.Class.String() == "unknown" || e.Code == "" {
			t.Errorf("no verdict for %d %q", status, body)
		}
		if utf8.RuneCountInString(e.Message) > provider.MaxMessage || len(e.Kind) > 64 {
			t.Errorf("message of %d characters, kind of %d", utf8.RuneCountInString(e.Message), len(e.Kind))
		}
	})
}

// An error of which nothing is told is not called by a status that the provider never gave.
func TestTold_AnErrorWithoutWordsNamesNoStatus(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"type":"error"}`, `{"error":{}}`, `{}`, `{"error":{"code":"server_error"}}`} {
		if e := told([]byte(body), ""); e.Message == "" || strings.Contains(e.Message, "500") || e.Class != provider.Retryable {
			t.Errorf("%s: %v", body, e)
		}
	}
	if e := told([]byte(`{"error":{"message":"it broke"}}`), ""); e.Message != "it broke" {
		t.Errorf("message %q", e.Message)
	}
}
