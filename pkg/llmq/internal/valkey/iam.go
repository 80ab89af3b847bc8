package valkey

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	tokenLife = 15 * time.Minute // the longest that ElastiCache allows
	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// token presigns the connect request that ElastiCache takes as a password. Its form is
// that of AWS's guide (auth-iam): the URL without its scheme, with a resource type for
// a serverless cache.
func (i *IAM) token(ctx context.Context, user string, now time.Time) (string, error) {
	creds, err := i.Credentials.Retrieve(ctx)
	if err != nil {
		return "", fmt.Errorf("sign in to valkey: %w", err)
	}
	query := url.Values{
		"Action":        {"connect"},
		"User":          {user},
		"ResourceType":  {"ServerlessCache"},
		"X-Amz-Expires": {fmt.Sprint(int(tokenLife / time.Second))},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+i.CacheName+"/?"+query.Encode(), nil)
	if err != nil {
		return "", fmt.Errorf("sign in to valkey: %w", err)
	}
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, creds, req, emptyHash, "elasticache", i.Region, now)
	if err != nil {
		return "", fmt.Errorf("sign in to valkey: %w", err)
	}
	return strings.TrimPrefix(signed, "http://"), nil
}
