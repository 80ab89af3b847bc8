package bedrock

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
		"429-throttling":           {provider.Throttle, llmq.CodeRateLimited, "ThrottlingException", 0, "Too many tokens, please"},
		"429-throttling-in-body":   {provider.Throttle, llmq.CodeRateLimited, "ThrottlingException", 1500 * time.Millisecond, "Rate exceeded"},
		"400-service-quota":        {provider.Throttle, llmq.CodeRateLimited, "ServiceQuotaExceededException", 0, "Your request exceeds"},
		"429-model-not-ready":      {provider.Throttle, llmq.CodeRateLimited, "ModelNotReadyException", 10 * time.Second, "Model is not ready"},
		"429-nameless":             {provider.Throttle, llmq.CodeRateLimited, "", 0, "Too Many Requests"},
		"429-throttling-per-day":   {provider.TargetFatal, llmq.CodeInsufficientQuota, "ThrottlingException", 0, "Too many tokens per day"},
		"403-access-denied":        {provider.TargetFatal, llmq.CodeProviderAuth, "AccessDeniedException", 0, ""},
		"403-access-denied-iam":    {provider.TargetFatal, llmq.CodeProviderAuth, "AccessDeniedException", 0, ""},
		"403-expired-token":        {provider.TargetFatal, llmq.CodeProviderAuth, "ExpiredTokenException", 0, ""},
		"403-bad-signature":        {provider.TargetFatal, llmq.CodeProviderAuth, "InvalidSignatureException", 0, ""},
		"400-validation-on-demand": {provider.TargetFatal, llmq.CodeProviderError, "ValidationException", 0, "Invocation of model ID"},
		"400-validation-model-id":  {provider.TargetFatal, llmq.CodeProviderError, "ValidationException", 0, "The provided model"},
		"404-resource-not-found":   {provider.TargetFatal, llmq.CodeProviderError, "ResourceNotFoundException", 0, "Could not resolve"},
		"404-unknown-operation":    {provider.TargetFatal, llmq.CodeProviderError, "UnknownOperationException", 0, ""},
		"301-elsewhere":            {provider.TargetFatal, llmq.CodeProviderError, "", 0, ""},
		"400-validation":           {provider.CallFatal, llmq.CodeProviderRejected, "ValidationException", 0, "messages.0.content.0: unknown field foo"},
		"400-conflict":             {provider.CallFatal, llmq.CodeProviderRejected, "ConflictException", 0, "Error occurred"},
		"413-page":                 {provider.CallFatal, llmq.CodeProviderRejected, "", 0, ""},
		"408-model-timeout":        {provider.Retryable, llmq.CodeProviderError, "ModelTimeoutException", 0, "The request took too long"},
		"424-model-error":          {provider.Retryable, llmq.CodeProviderError, "ModelErrorException", 0, "The system"},
		"500-internal":             {provider.Retryable, llmq.CodeProviderError, "InternalServerException", 0, "The system"},
		"503-service-unavailable":  {provider.Retryable, llmq.CodeProviderError, "ServiceUnavailableException", 0, "Bedrock is unable"},
		"502-page":                 {provider.Retryable, llmq.CodeProviderError, "", 0, ""},
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
			e := classify(reply, noon, "")
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

// Every status has a verdict, and none counts as a throttle by accident.
func TestClassify_EveryStatus(t *testing.T) {
	t.Parallel()
	for status := 100; status < 1000; status++ {
		if status/100 == 2 {
			continue
		}
		e := classify(egress.Reply{Status: status, Header: http.Header{}}, noon, "")
		if e.Class.String() == "unknown" || e.Code == "" || (e.Class == provider.Throttle) != (status == 429) {
			t.Errorf("status %d gives %v %v", status, e.Class, e.Code)
		}
	}
}

func TestParse_FindsTheName(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, header, body, kind, message string }{
		{"header", "A", `{"message":"m"}`, "A", "m"},
		{"header with a URL", "A:http://internal.example/coral/", `{"message":"m"}`, "A", "m"},
		{"header with a namespace", "com.amazon#A:http://x#y/", `{}`, "A", ""},
		{"header before body", "A", `{"__type":"B"}`, "A", ""},
		{"body", "", `{"__type":"com.amazon.bedrock#B","Message":"M"}`, "B", "M"},
		{"wrong types", "", `{"__type":1,"message":["x"]}`, "", ""},
		{"page", "", `<html>`, "", ""},
		{"empty", "", ``, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			h.Set("x-amzn-ErrorType", tt.header)
			kind, message := parse(egress.Reply{Header: h, Body: []byte(tt.body)})
			if kind != tt.kind || message != tt.message {
				t.Errorf("parse = %q, %q; want %q, %q", kind, message, tt.kind, tt.message)
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
		f.Add(429, "ThrottlingException:http://x/", body)
		f.Add(400, "", body)
	}
	f.Fuzz(func(t *testing.T, status int, header string, body []byte) {
		h := http.Header{}
		h.Set("X-Amzn-Errortype", header)
		e := classify(egress.Reply{Status: status, Header: h, Body: body}, noon, "")
		if e.Class.String() == "unknown" || e.Code == "" {
			t.Errorf("no verdict for %d %q %q", status, header, body)
		}
		if utf8.RuneCountInString(e.Message) > provider.MaxMessage || len(e.Kind) > 64 {
			t.Errorf("message of %d characters, kind of %d", utf8.RuneCountInString(e.Message), len(e.Kind))
		}
	})
}
