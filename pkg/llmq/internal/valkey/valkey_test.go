package valkey

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

// The form of the token is AWS's (auth-iam): a presigned connect request without its
// scheme, for a serverless cache, good for 15 min.
func TestIAM_TokenIsThePresignedConnectRequest(t *testing.T) {
	t.Parallel()
	iam := &IAM{CacheName: "llmq-dev", Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "session-token")}
	token, err := iam.token(t.Context(), "llmq-dev-door", time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(token, "llmq-dev/?") {
		t.Fatalf("token begins with %q", token[:20])
	}
	u, err := url.Parse("http://" + token)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Action": "connect", "User": "llmq-dev-door", "ResourceType": "ServerlessCache", "X-Amz-Expires": "900",
		"X-Amz-Credential": "AKIDEXAMPLE/20261129/eu-west-1/elasticache/aws4_request", "X-Amz-Security-Token": "session-token",
		"X-Amz-Date": "20261129T120000Z", "X-Amz-SignedHeaders": "host",
	} {
		if got := u.Query().Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if len(u.Query().Get("X-Amz-Signature")) != 64 || strings.Contains(token, "secret&") {
		t.Error("no signature, or the secret itself")
	}
}

func TestDial_RefusesAnAddressWithoutPort(t *testing.T) {
	t.Parallel()
	if _, err := Dial(Options{Address: "cache.example"}); err == nil {
		t.Fatal("taken")
	}
}

func TestDial_SignsInWithAPassword(t *testing.T) {
	t.Parallel()
	m := llmqtest.StartMiniredis(t)
	m.RequireAuth("pw")
	c, err := Dial(Options{Address: m.Addr(), Password: "pw", CommandTimeout: time.Second, DialTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) // the test is over
	if err := c.Ping(context.Background()).Err(); err != nil {
		t.Error(err)
	}
}
