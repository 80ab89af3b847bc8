package front

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// User may call an API by requests that are signed with its secret, as AWS_IAM authorization has it. There are no policies: a user
// may call everything.
type User struct {
	ARN       string // as the function is told
	AccessKey string
	Secret    string
}

// refused is what is wrong with a signed request, in AWS's own words, which begin and end as sentences do.
type refused string

func (r refused) Error() string { return string(r) }

const (
	errUnknownUser  refused = "The security token included in the request is invalid."
	errWrongSigned  refused = "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details."
	errSignatureOld refused = "Signature expired"
	errUnreadable   refused = "Authorization header requires 'Credential', 'Signature' and 'SignedHeaders' parameters, 'host' and every x-amz- header signed, and an 'X-Amz-Date' header."
)

const (
	scheme      = "AWS4-HMAC-SHA256"
	signingName = "execute-api"
	amzDate     = "X-Amz-Date"
	dateLayout  = "20060102T150405Z"
	// signedWithin is how far a signature's time may be from ours.
	signedWithin = 5 * time.Minute
)

// signed reports whether a request claims to be.
func signed(r *http.Request) bool { return strings.HasPrefix(r.Header.Get("Authorization"), scheme) }

// signer is the user by whom a request is signed. It signs the same request again, with the headers and at the time that the sender has
// signed, and compares.
func (o *Options) signer(r *http.Request, body []byte, now time.Time) (*User, error) {
	claim, err := parseClaim(r.Header)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(o.Users, func(u User) bool { return u.AccessKey == claim.accessKey })
	if i < 0 {
		return nil, errUnknownUser
	}
	if apart := now.Sub(claim.at); apart > signedWithin || apart < -signedWithin {
		return nil, fmt.Errorf("%w: %s is not within %d min of %s", errSignatureOld, claim.at.Format(dateLayout), int(signedWithin.Minutes()), now.UTC().Format(dateLayout))
	}
	again := &http.Request{Method: r.Method, Host: r.Host, Header: http.Header{}, URL: &url.URL{Scheme: "https", Host: r.Host, RawQuery: r.URL.RawQuery}}
	again.URL.Path, again.URL.RawPath = r.URL.Path, r.URL.RawPath
	for _, name := range claim.headers {
		switch name {
		case "host":
		case "content-length": // the signer takes it from here
			again.ContentLength = r.ContentLength
		default:
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	sum := sha256.Sum256(body)
	u := o.Users[i]
	if err := v4.NewSigner().SignHTTP(r.Context(), aws.Credentials{AccessKeyID: u.AccessKey, SecretAccessKey: u.Secret}, again, hex.EncodeToString(sum[:]), signingName, o.Region, claim.at); err != nil {
		return nil, errWrongSigned
	}
	right, err := parseClaim(again.Header)
	if err != nil || right.scope != claim.scope || !slices.Equal(right.headers, claim.headers) || subtle.ConstantTimeCompare([]byte(right.signature), []byte(claim.signature)) != 1 {
		return nil, errWrongSigned
	}
	return &u, nil
}

// claim is what an Authorization header says:
//
//	AWS4-HMAC-SHA256 Credential=<key>/<date>/<region>/execute-api/aws4_request, SignedHeaders=host;x-amz-date, Signature=<hex>
type claim struct {
	accessKey, scope, signature string
	headers                     []string // lower case, in order
	at                          time.Time
}

func parseClaim(h http.Header) (claim, error) {
	var c claim
	rest, _ := strings.CutPrefix(h.Get("Authorization"), scheme+" ")
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			c.accessKey, c.scope, _ = strings.Cut(value, "/")
		case "SignedHeaders":
			c.headers = strings.Split(value, ";")
		case "Signature":
			c.signature = value
		}
	}
	var err error
	c.at, err = time.Parse(dateLayout, h.Get(amzDate))
	if err != nil || c.accessKey == "" || c.scope == "" || c.signature == "" || !slices.Contains(c.headers, "host") {
		return claim{}, errUnreadable
	}
	for name := range h {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-") && !slices.Contains(c.headers, lower) {
			return claim{}, errUnreadable // what is not signed could have been added by anybody
		}
	}
	return c, nil
}
