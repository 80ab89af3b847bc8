// Package bedrock calls Amazon Bedrock's Converse and InvokeModel, and what streams of both, with the caller's own bytes. The SDK's client
// would decode and encode the body, drop fields that it does not know, and retry; so this one only
// borrows its signature.
package bedrock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"
	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
	"github.com/llm-queue/llmq/pkg/llmq/internal/opbody"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// Config describes Bedrock in one region. Exactly one of Credentials and APIKey is set.
type Config struct {
	// Name is the provider's name in the configuration; it stands in errors.
	Name string

	// Region is called and signed for, e.g. eu-central-1.
	Region string

	// Endpoint replaces https://bedrock-runtime.REGION.amazonaws.com. Whether it may be set is for
	// the configuration to decide; here it only has to pass Network's rules.
	Endpoint string

	// Credentials sign the requests. They are asked before every call, so they should cache, as
	// those of an aws.Config do.
	Credentials aws.CredentialsProvider

	// APIKey returns a Bedrock API key, which is sent as a bearer token. It should cache as well.
	APIKey func(ctx context.Context) (string, error)

	// RemoteMedia lets a model fetch what a body names by http and https URLs.
	RemoteMedia bool

	// Network bounds how the endpoint is reached. Where a VPC endpoint answers for Bedrock's name,
	// AllowedCIDRs must hold its addresses, since they are private.
	Network provider.Network
}

// Provider is Bedrock in one region. It is safe for concurrent use.
type Provider struct {
	name, region string
	credentials  aws.CredentialsProvider
	key          func(context.Context) (string, error)
	signer       *v4.Signer
	egress       *egress.Client
	remoteMedia  bool
}

var _ provider.Provider = (*Provider)(nil)

// tierHeader is where an invocation asks for a service tier.
const tierHeader = "X-Amzn-Bedrock-Service-Tier"

// signingName is the service in a signature for bedrock-runtime; the endpoint's own name is not it.
const signingName = "bedrock"

// regionForm is checked because the region becomes a part of a host name.
var regionForm = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]{1,2}$`)

// New makes a Provider, or names every fault of cfg. Nothing is called yet.
func New(cfg Config) (*Provider, error) {
	var faults []error
	if !regionForm.MatchString(cfg.Region) {
		faults = append(faults, fmt.Errorf("%q is no AWS region", llmq.Clip(cfg.Region, 40)))
	}
	if (cfg.Credentials == nil) == (cfg.APIKey == nil) {
		faults = append(faults, errors.New("exactly one of credentials and API key must be given"))
	}
	base := cfg.Endpoint
	if base == "" {
		base = "https://bedrock-runtime." + cfg.Region + ".amazonaws.com"
		if strings.HasPrefix(cfg.Region, "cn-") {
			base += ".cn"
		}
	}
	client, err := egress.New(base, cfg.Network)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, fmt.Errorf("bedrock provider %s: %w", cfg.Name, err)
	}
	return &Provider{
		name: cfg.Name, region: cfg.Region, credentials: cfg.Credentials, key: cfg.APIKey, signer: v4.NewSigner(), egress: client, remoteMedia: cfg.RemoteMedia,
	}, nil
}

// Close closes idle connections. Calls in flight are not touched.
func (p *Provider) Close() { p.egress.Close() }

// Call makes exactly one attempt; see [provider.Provider]. On these wires the model is in the path, so
// the body goes out as it came, but for the most output of Converse where that is ours to say.
func (p *Provider) Call(ctx context.Context, req provider.Request) (*provider.Response, error) {
	if req.Op != llmq.OpConverse && req.Op != llmq.OpInvoke {
		return nil, wrongOp(req.Op)
	}
	hreq, secret, err := p.prepare(ctx, req)
	if err != nil {
		return nil, err
	}
	reply, err := p.egress.Do(hreq)
	if err != nil {
		return nil, err
	}
	if !reply.OK() {
		return nil, classify(reply, time.Now(), secret)
	}
	answer, err := reply.JSON()
	if err != nil {
		return nil, err
	}
	resp := &provider.Response{Status: reply.Status, ContentType: "application/json", Body: answer, RequestID: reply.RequestID("X-Amzn-Requestid")}
	if req.Op == llmq.OpInvoke {
		resp.Usage = invokedUsage(reply.Header, answer) // what is in it, and be it a list, its model's vendor says
		return resp, nil
	}
	if !gjson.ParseBytes(answer).IsObject() {
		return nil, reply.NoReply()
	}
	if !gjson.GetBytes(answer, "output").IsObject() {
		return nil, reply.Lacks("output")
	}
	resp.Usage = usageOf(answer)
	return resp, nil
}

func wrongOp(op llmq.Op) error {
	return &provider.Error{
		Class: provider.TargetFatal, Code: llmq.CodeWrongWire, Unsent: true,
		Message: fmt.Sprintf("the provider speaks the converse and invoke wires, which have no %s", llmq.Clip(string(op), 40)),
	}
}

// routeOf is the last part of an op's path, and the media type of its reply.
func routeOf(op llmq.Op) (route, accept string) {
	switch op {
	case llmq.OpConverseStream:
		return "/converse-stream", eventStream
	case llmq.OpInvoke:
		return "/invoke", "application/json"
	case llmq.OpInvokeStream:
		return "/invoke-with-response-stream", eventStream
	default:
		return "/converse", "application/json"
	}
}

// prepare makes the request, and returns the secret that a reply could repeat.
func (p *Provider) prepare(ctx context.Context, req provider.Request) (*http.Request, string, error) {
	if req.Op.Wire() == llmq.WireConverse {
		req.Body = withTier(withMost(req.Body, req.DefaultMaxOutput), req.Tier)
	}
	reach := opbody.Reach{HostedTools: req.HostedTools, RemoteMedia: p.remoteMedia}
	if err := reach.Check(req.Op, req.Body); err != nil {
		return nil, "", provider.OutOfReach(err)
	}
	hreq, err := p.request(ctx, req)
	if err != nil {
		return nil, "", unsent(egress.Fault(ctx, fmt.Errorf("make a request to provider %s: %w", p.name, err), provider.TargetFatal, llmq.CodeProviderError))
	}
	secret, err := p.authorize(ctx, hreq, req.Body)
	if err != nil {
		return nil, "", err
	}
	return hreq, secret, nil
}

// request builds the call as the SDK does: everything in the model id but letters, digits and
// -._~ is escaped, the slashes and colons of an ARN too. A signature covers the path escaped once
// more, which the signer does by itself, provided that the URL keeps the first escapes; the form
// that net/url would choose leaves colons alone.
func (p *Provider) request(ctx context.Context, req provider.Request) (*http.Request, error) {
	route, accept := routeOf(req.Op)
	url := p.egress.Base() + "/model/" + httpbinding.EscapePath(req.ModelID, true) + route
	hreq, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(req.Body))
	if err != nil {
		return nil, err
	}
	hreq.Header.Set("Content-Type", "application/json")
	hreq.Header.Set("Accept", accept)
	for _, name := range req.Op.Headers() {
		if v := req.Headers[name]; v != "" {
			hreq.Header.Set(name, v)
		}
	}
	if req.Op.Wire() == llmq.WireInvoke { // the lane's, whatever the caller asks for (SECURITY-DESIGN IN5)
		hreq.Header.Del(tierHeader)
		if req.Tier != "" {
			hreq.Header.Set(tierHeader, string(req.Tier))
		}
	}
	return hreq, nil
}

// authorize signs hreq or puts the API key into it. It returns the secret that a reply could
// repeat.
func (p *Provider) authorize(ctx context.Context, hreq *http.Request, body []byte) (string, error) {
	if p.key != nil {
		key, err := p.key(ctx)
		if err != nil {
			return "", unsent(egress.Fault(ctx, fmt.Errorf("get the API key of provider %s: %w", p.name, err), provider.Retryable, llmq.CodeProviderAuth))
		}
		key = strings.TrimSpace(key)
		if !provider.ValidKey(key) {
			return "", &provider.Error{
				Class: provider.TargetFatal, Code: llmq.CodeProviderAuth, Unsent: true,
				Err: fmt.Errorf("API key of provider %s is empty or holds characters that no header can carry", p.name),
			}
		}
		hreq.Header.Set("Authorization", "Bearer "+key)
		return key, nil
	}
	creds, err := p.credentials.Retrieve(ctx)
	if err != nil {
		return "", unsent(egress.Fault(ctx, fmt.Errorf("get AWS credentials for provider %s: %w", p.name, err), provider.Retryable, llmq.CodeProviderAuth))
	}
	if err := p.sign(ctx, hreq, body, creds, time.Now()); err != nil {
		return "", unsent(egress.Fault(ctx, fmt.Errorf("sign for provider %s: %w", p.name, err), provider.TargetFatal, llmq.CodeProviderAuth))
	}
	return creds.SessionToken, nil
}

func (p *Provider) sign(ctx context.Context, hreq *http.Request, body []byte, creds aws.Credentials, at time.Time) error {
	sum := sha256.Sum256(body)
	return p.signer.SignHTTP(ctx, creds, hreq, hex.EncodeToString(sum[:]), signingName, p.region, at)
}

// unsent marks a fault from before anything was sent.
func unsent(e *provider.Error) *provider.Error {
	e.Unsent = true
	return e
}
