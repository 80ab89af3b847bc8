package bedrock

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/providertest"
)

const (
	arn    = "arn:aws:bedrock:eu-central-1:111122223333:application-inference-profile/a1b2~c_d.e"
	arnURL = "arn%3Aaws%3Abedrock%3Aeu-central-1%3A111122223333%3Aapplication-inference-profile%2Fa1b2~c_d.e"
	body   = `{ "messages":[{"role":"user","content":[{"text":"h\u00e9\/"}]}], "additionalModelRequestFields":{"k":1.0} }`

	secretKey    = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	sessionToken = "session-token-0123456789"
	apiKey       = "ABSK-not-of-the-usual-shape"

	reply = `{"output":{"message":{"role":"assistant","content":[{"text":"ok"}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":1,"totalTokens":2}}`
)

var static = credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", secretKey, sessionToken)

func open(t *testing.T, cfg Config) *Provider {
	t.Helper()
	cfg.Name, cfg.Region = "test", "eu-central-1"
	cfg.Network = provider.DefaultNetwork()
	cfg.Network.Loopback = true
	p, err := New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

func features() providertest.Features {
	return providertest.Features{
		Request: provider.Request{Op: llmq.OpConverse, ModelID: arn, Body: []byte(body)},
		Reply:   reply,
		Wires:   []llmq.Wire{llmq.WireConverse, llmq.WireInvoke},
		Path:    "/model/" + arnURL + "/converse",
		Body:    body,
		Headers: []string{"Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent"},

		RequestID: "X-Amzn-Requestid",
	}
}

// D8, Bedrock's Converse.
func TestProvider_Signed(t *testing.T) {
	t.Parallel()
	f := features()
	f.Headers = append(f.Headers, "X-Amz-Date", "X-Amz-Security-Token")
	f.Secret = sessionToken
	providertest.Exercise(t, f, func(t *testing.T, base string) provider.Provider {
		t.Helper()
		return open(t, Config{Endpoint: base, Credentials: static})
	})
}

func TestProvider_APIKey(t *testing.T) {
	t.Parallel()
	f := features()
	f.Secret = apiKey
	providertest.Exercise(t, f, func(t *testing.T, base string) provider.Provider {
		t.Helper()
		return open(t, Config{Endpoint: base, APIKey: func(context.Context) (string, error) { return apiKey + "\n", nil }})
	})
}

// The SDK calls a server that keeps what it sends; then the same bytes, signed here for the same
// moment with the headers that only the SDK has, must get the same path and the same signature.
func TestSign_SameAsSDK(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"anthropic.claude-3-haiku-20240307-v1:0",
		"eu.amazon.nova-lite-v1:0",
		arn,
		"arn:aws:bedrock:us-east-1:111122223333:provisioned-model/abc def+%2F/ü",
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			var got *http.Request
			var sent []byte
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r
				sent, _ = io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, reply)
			}))
			t.Cleanup(srv.Close)
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			sdk := bedrockruntime.New(bedrockruntime.Options{
				Region: "eu-central-1", BaseEndpoint: aws.String(srv.URL), Credentials: static,
				HTTPClient: &http.Client{Transport: transport}, Retryer: aws.NopRetryer{},
			})
			if _, err := sdk.Converse(t.Context(), &bedrockruntime.ConverseInput{
				ModelId:  aws.String(id),
				Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: "hi"}}}},
			}); err != nil {
				t.Fatalf("SDK: %v", err)
			}

			p := open(t, Config{Endpoint: srv.URL, Credentials: static})
			ours, err := p.request(t.Context(), provider.Request{Op: llmq.OpConverse, ModelID: id, Body: sent})
			if err != nil {
				t.Fatalf("request: %v", err)
			}
			if ours.URL.EscapedPath() != got.URL.EscapedPath() {
				t.Errorf("path = %s, the SDK's is %s", ours.URL.EscapedPath(), got.URL.EscapedPath())
			}
			at, err := time.Parse("20060102T150405Z", got.Header.Get("X-Amz-Date"))
			if err != nil {
				t.Fatalf("the SDK's date: %v", err)
			}
			ours.Header = http.Header{}
			for _, name := range signedHeaders(t, got) {
				if v := got.Header.Get(name); v != "" {
					ours.Header.Set(name, v)
				}
			}
			creds, err := static.Retrieve(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := p.sign(t.Context(), ours, sent, creds, at); err != nil {
				t.Fatalf("sign: %v", err)
			}
			if a, b := ours.Header.Get("Authorization"), got.Header.Get("Authorization"); a != b {
				t.Errorf("signature\n%s\nthe SDK's is\n%s", a, b)
			}
		})
	}
}

// signedHeaders lists what the SDK's signature covers and we can set.
func signedHeaders(t *testing.T, r *http.Request) []string {
	t.Helper()
	_, list, ok := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	if !ok {
		t.Fatalf("the SDK did not sign: %v", r.Header)
	}
	list, _, _ = strings.Cut(list, ",")
	return slices.DeleteFunc(strings.Split(list, ";"), func(h string) bool { return h == "host" || h == "content-length" })
}

func TestCall_SignatureCoversWhatIsSent(t *testing.T) {
	t.Parallel()
	var auth string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth = r.Header.Get("Authorization")
		for name, values := range r.Header {
			if strings.Contains(strings.Join(values, "\n"), secretKey) {
				t.Errorf("the secret key itself is sent in %s", name)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, reply)
	}))
	t.Cleanup(srv.Close)
	p := open(t, Config{Endpoint: srv.URL, Credentials: static})
	if _, err := p.Call(t.Context(), provider.Request{Op: llmq.OpConverse, ModelID: arn, Body: []byte(body)}); err != nil {
		t.Fatalf("Call: %v", err)
	}
	for _, want := range []string{
		"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/", "/eu-central-1/bedrock/aws4_request",
		"SignedHeaders=accept;content-length;content-type;host;x-amz-date;x-amz-security-token,",
	} {
		if !strings.Contains(auth, want) {
			t.Errorf("Authorization = %s, which does not hold %s", auth, want)
		}
	}
}

func TestNew_DefaultEndpoint(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]string{
		"eu-central-1":  "https://bedrock-runtime.eu-central-1.amazonaws.com",
		"us-gov-west-1": "https://bedrock-runtime.us-gov-west-1.amazonaws.com",
		"cn-north-1":    "https://bedrock-runtime.cn-north-1.amazonaws.com.cn",
	} {
		p, err := New(Config{Region: region, Credentials: static, Network: provider.DefaultNetwork()})
		if err != nil {
			t.Errorf("New in %s: %v", region, err)
			continue
		}
		if got := p.egress.Base(); got != want {
			t.Errorf("endpoint of %s = %s, want %s", region, got, want)
		}
	}
}

func TestNew_NamesEveryFault(t *testing.T) {
	t.Parallel()
	for _, region := range []string{"", "eu", "eu-central-1.evil.example/", "EU-CENTRAL-1", "eu-central-1\n"} {
		_, err := New(Config{Name: "p1", Region: region, Endpoint: "http://bedrock.example"})
		if err == nil {
			t.Errorf("New took the region %q", region)
			continue
		}
		for _, want := range []string{"p1", "no AWS region", "exactly one of credentials and API key", "must be https", "MaxIdle"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("New does not say %q: %v", want, err)
			}
		}
	}
	if _, err := New(Config{
		Region: "eu-central-1", Credentials: static, APIKey: func(context.Context) (string, error) { return "k", nil }, Network: provider.DefaultNetwork(),
	}); err == nil {
		t.Error("New took credentials and an API key")
	}
}

func TestCall_SendsNothingWithoutCredentials(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") }))
	t.Cleanup(srv.Close)
	broken := errors.New("no role")
	tests := []struct {
		name  string
		cfg   Config
		class provider.Class
	}{
		{"credentials fail", Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, broken })}, provider.Retryable},
		{"key fails", Config{APIKey: func(context.Context) (string, error) { return "", broken }}, provider.Retryable},
		{"key is empty", Config{APIKey: func(context.Context) (string, error) { return "\n", nil }}, provider.TargetFatal},
		{"key has two lines", Config{APIKey: func(context.Context) (string, error) { return "a\r\nX-Admin: 1", nil }}, provider.TargetFatal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.cfg.Endpoint = srv.URL
			_, err := open(t, tt.cfg).Call(t.Context(), provider.Request{Op: llmq.OpConverse, ModelID: "m", Body: []byte(body)})
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Class != tt.class || e.Code != llmq.CodeProviderAuth {
				t.Errorf("Call = %v, want %v %v", err, tt.class, llmq.CodeProviderAuth)
			}
			if strings.Contains(err.Error(), "X-Admin") {
				t.Errorf("the key is in the error: %v", err)
			}
		})
	}
}

// A list is what some models of one's own answer an invocation with; of Converse it is no reply (case H19).
func TestCall_ListsAreRepliesOfInvocationsAlone(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `[{"generated_text":"hi"}]`)
	}))
	t.Cleanup(srv.Close)
	p := open(t, Config{Endpoint: srv.URL, Credentials: static})
	resp, err := p.Call(t.Context(), provider.Request{Op: llmq.OpInvoke, ModelID: "m", Body: []byte(`{}`)})
	if err != nil || string(resp.Body) != `[{"generated_text":"hi"}]` {
		t.Errorf("Call = %v, %v", resp, err)
	}
	_, err = p.Call(t.Context(), provider.Request{Op: llmq.OpConverse, ModelID: "m", Body: []byte(`{}`)})
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.Retryable || e.Code != llmq.CodeProviderError {
		t.Errorf("Converse: %v", err)
	}
}

// H19: a 200 of Converse without an output is a passing fault, and never a success; of what is invoked only its caller knows the form.
func TestCall_ConverseHasAnOutput(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		op    llmq.Op
		reply string
		good  bool
	}{
		{llmq.OpConverse, `{}`, false},
		{llmq.OpConverse, `{"output":null,"usage":{"inputTokens":1}}`, false},
		{llmq.OpConverse, `{"output":[]}`, false},
		{llmq.OpConverse, `{"choices":[{}]}`, false},
		{llmq.OpConverse, `{"stopReason":"end_turn","output":{"message":{}}}`, true},
		{llmq.OpInvoke, `{}`, true},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, tt.reply)
		}))
		t.Cleanup(srv.Close)
		resp, err := open(t, Config{Endpoint: srv.URL, Credentials: static}).Call(t.Context(), provider.Request{Op: tt.op, ModelID: "m", Body: []byte(`{}`)})
		if tt.good {
			if err != nil || string(resp.Body) != tt.reply {
				t.Errorf("%s: %s: %+v, %v", tt.op, tt.reply, resp, err)
			}
			continue
		}
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Class != provider.Retryable || e.Code != llmq.CodeProviderError || e.Kind != "bad_reply" {
			t.Errorf("%s: %s: %v", tt.op, tt.reply, err)
		}
	}
}
