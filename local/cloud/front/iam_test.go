package front

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

const testARN = "arn:aws:iam::000000000000:user/ops"

// signing is how a test's request is signed.
type signing struct {
	key, secret, service, region string
	ago                          time.Duration
}

func (s signing) sign(t *testing.T, r *http.Request, body string) {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	err := v4.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: s.key, SecretAccessKey: s.secret}, r, hex.EncodeToString(sum[:]), s.service, s.region, time.Now().Add(-s.ago))
	if err != nil {
		t.Fatal(err)
	}
}

// E5: a signed request is known by who signed it, and reaches the function only as it was signed.
func TestIAM_SignatureHoldsOrIsRefused(t *testing.T) {
	t.Parallel()
	right := signing{key: "ops", secret: "s3cret", service: "execute-api", region: "us-east-1"}
	with := func(edit func(*signing)) signing { s := right; edit(&s); return s }
	const body = `{"on":true}`
	for _, tt := range []struct {
		name   string
		by     signing
		change func(*http.Request) // after it was signed
		want   string              // of the refusal; "" is none
	}{
		{"right", right, nil, ""},
		{"four minutes old", with(func(s *signing) { s.ago = 4 * time.Minute }), nil, ""},
		{"wrong secret", with(func(s *signing) { s.secret = "s3creT" }), nil, "does not match"},
		{"nobody known", with(func(s *signing) { s.key = "opz" }), nil, "security token included in the request is invalid"},
		{"another service", with(func(s *signing) { s.service = "sqs" }), nil, "does not match"},
		{"another region", with(func(s *signing) { s.region = "eu-west-1" }), nil, "does not match"},
		{"six minutes old", with(func(s *signing) { s.ago = 6 * time.Minute }), nil, "Signature expired"},
		{"six minutes ahead", with(func(s *signing) { s.ago = -6 * time.Minute }), nil, "Signature expired"},
		{"altered body", right, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{"on":null}`)) }, "does not match"},
		{"altered path", right, func(r *http.Request) { r.URL.Path = "/keys/create" }, "does not match"},
		{"altered query", right, func(r *http.Request) { r.URL.RawQuery = "a=2" }, "does not match"},
		{"altered method", right, func(r *http.Request) { r.Method = http.MethodPut }, "does not match"},
		{"altered host", right, func(r *http.Request) { r.Host = strings.Replace(r.Host, "127.0.0.1", "localhost", 1) }, "does not match"},
		{"altered header", right, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, "does not match"},
		{"a date of its own", right, func(r *http.Request) {
			r.Header.Set("X-Amz-Date", time.Now().UTC().Add(time.Minute).Format(dateLayout))
		}, "does not match"},
		{"unsigned header of AWS's", right, func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "x") }, "requires"},
		{"no date", right, func(r *http.Request) { r.Header.Del("X-Amz-Date") }, "requires"},
		{"no signature", right, func(r *http.Request) { r.Header.Set("Authorization", scheme+" Credential=ops/x") }, "requires"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got *proxyEvent
			o := options()
			o.Users = []User{{ARN: testARN, AccessKey: "ops", Secret: "s3cret"}}
			h, err := NewBuffered(o, fakeInvoker(func(_ context.Context, payload []byte) (lambda.Result, error) {
				got = &proxyEvent{}
				return lambda.Result{Payload: []byte(`{"statusCode":200,"body":"{}"}`)}, json.Unmarshal(payload, got)
			}))
			if err != nil {
				t.Fatal(err)
			}
			resp, text := do(t, start(t, h), http.MethodPost, "/routing/kill%20it?a=1&b=%2F", strings.NewReader(body), func(r *http.Request) {
				r.Header.Set("Content-Type", "application/json")
				tt.by.sign(t, r, body)
				if tt.change != nil {
					tt.change(r)
				}
			})
			if tt.want != "" {
				if resp.StatusCode != http.StatusForbidden || !strings.Contains(text, tt.want) || got != nil {
					t.Errorf("answer = %d %s, want 403 with %q; the function was asked: %t", resp.StatusCode, text, tt.want, got != nil)
				}
				return
			}
			if resp.StatusCode != http.StatusOK || got == nil || got.RequestContext.Identity.UserARN == nil || *got.RequestContext.Identity.UserARN != testARN {
				t.Errorf("answer = %d %s, event %+v", resp.StatusCode, text, got)
			}
		})
	}
}

// What is not signed passes, as nobody.
func TestIAM_UnsignedPassesAsNobody(t *testing.T) {
	t.Parallel()
	e := eventOf(t, http.MethodGet, "/status", nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer k") })
	if e.RequestContext.Identity.UserARN != nil {
		t.Errorf("user = %s", *e.RequestContext.Identity.UserARN)
	}
}
