package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// SigV4 signs requests for an AWS service ("execute-api") with what the provider gives.
func SigV4(credentials aws.CredentialsProvider, service, region string) Authorizer {
	signer := v4.NewSigner()
	return func(ctx context.Context, req *http.Request, body []byte) error {
		who, err := credentials.Retrieve(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNoCredentials, err)
		}
		sum := sha256.Sum256(body)
		if err := signer.SignHTTP(ctx, who, req, hex.EncodeToString(sum[:]), service, region, time.Now()); err != nil {
			return fmt.Errorf("sign the request: %w", err)
		}
		return nil
	}
}

// ErrNoCredentials says that nobody is signed in.
var ErrNoCredentials = errors.New("no AWS credentials")

// RegionOf is the region in the host name of an API Gateway, or "".
func RegionOf(host string) string {
	parts := strings.Split(host, ".")
	if len(parts) >= 5 && parts[1] == "execute-api" && strings.HasPrefix(parts[3], "amazonaws") {
		return parts[2]
	}
	return ""
}
