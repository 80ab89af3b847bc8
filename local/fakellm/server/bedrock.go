package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

// bedrockWire speaks Amazon Bedrock Runtime.
type bedrockWire struct {
	keys   keyring
	access keyring
	models []string // empty: every id exists
}

func (bedrockWire) name() string { return "bedrock" }

func (bedrockWire) charge() quota.Charge { return quota.Reserve }

// authenticate takes a Bedrock API key, or a SigV4 signature of the service "bedrock" by one of
// the access keys. Every refusal is AWS's own: a 403.
func (b bedrockWire) authenticate(r *http.Request) (identity, *fault) {
	hostRegion := regionOfHost(r.Host)
	if token, found := bearer(r); found {
		if !b.keys.has(token) {
			return identity{}, &fault{code: "AccessDeniedException", message: "Authentication failed: Please make sure your API Key is valid."}
		}
		return identity{keyHash: KeyHash(token), region: hostRegion}, nil
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return identity{}, &fault{code: "MissingAuthenticationTokenException"}
	}
	signer, ok := parseSigV4(header)
	if !ok {
		return identity{}, &fault{code: "IncompleteSignatureException"}
	}
	if !b.access.has(signer.accessKey) {
		return identity{}, &fault{code: "UnrecognizedClientException"}
	}
	if signer.service != "bedrock" {
		return identity{}, &fault{
			code:    "InvalidSignatureException",
			message: fmt.Sprintf("Credential should be scoped to correct service: 'bedrock'. It is scoped to %q.", signer.service),
		}
	}
	if hostRegion != "" && hostRegion != signer.region {
		return identity{}, &fault{
			code:    "InvalidSignatureException",
			message: fmt.Sprintf("Credential should be scoped to a valid region: %q is not %q.", signer.region, hostRegion),
		}
	}
	return identity{keyHash: KeyHash(signer.accessKey), region: signer.region}, nil
}

// regionOfHost reads bedrock-runtime[-fips].REGION.…; other names have no region.
func regionOfHost(host string) string {
	service, rest, _ := strings.Cut(host, ".")
	region, _, more := strings.Cut(rest, ".")
	if !more || service != "bedrock-runtime" && service != "bedrock-runtime-fips" {
		return ""
	}
	return region
}

func (b bedrockWire) parse(r *http.Request, body []byte) (ask, *fault) {
	routes := map[string]func(*ask, []byte) *fault{
		"converse":                    parseConverse,
		"converse-stream":             parseConverse,
		"invoke":                      parseInvoke,
		"invoke-with-response-stream": parseInvoke,
		"count-tokens":                parseCountTokens,
	}
	model, operation, ok := splitModelPath(r.URL.EscapedPath())
	parse := routes[operation]
	if !ok || parse == nil || r.Method != http.MethodPost {
		return ask{model: model}, &fault{
			code:    "UnknownOperationException",
			message: fmt.Sprintf("fakellm does not know %s %s", r.Method, r.URL.EscapedPath()),
		}
	}
	a := ask{model: model, stream: strings.HasSuffix(operation, "stream")}
	if len(b.models) > 0 && !slices.Contains(b.models, model) {
		return a, validation("The provided model identifier is invalid.")
	}
	f := parse(&a, body)
	return a, f
}

// splitModelPath reads /model/{modelId}/{operation}, where the id is percent-encoded: an ARN has
// colons and slashes.
func splitModelPath(escaped string) (model, operation string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(escaped, "/model/"), "/")
	if len(parts) != 2 {
		return "", "", false
	}
	model, err := url.PathUnescape(parts[0])
	if err != nil || model == "" {
		return "", "", false
	}
	return model, parts[1], true
}

func (bedrockWire) throttle(_ ask, r quota.Refusal) fault {
	f := fault{code: "ThrottlingException", message: "Too many requests, please wait before trying again."}
	switch r.Cause {
	case quota.Tokens:
		f.message = "Too many tokens, please wait before trying again."
	case quota.Concurrency:
		f.message = "Too many connections, please wait before trying again."
	case quota.Requests, Chance:
	}
	return f
}

func (bedrockWire) tooLong(ask, int) fault {
	return fault{code: "ValidationException", message: "Input is too long for requested model."}
}

// tellQuotas does nothing: Bedrock tells nobody what is left.
func (bedrockWire) tellQuotas(http.Header, quota.Left, quota.Left) {}

// tellWait does nothing: Bedrock models no Retry-After.
func (bedrockWire) tellWait(http.Header, time.Duration) {}

func bedrockReply(status int, id string, body any) reply {
	re := jsonReply(status, body)
	re.header.Set("X-Amzn-Requestid", id)
	return re
}

// bedrockStream is a reply of frames.
func bedrockStream(id string, events []event) reply {
	return reply{
		status: http.StatusOK,
		header: http.Header{"Content-Type": {eventStreamType}, "X-Amzn-Requestid": {id}},
		events: events,
		broken: breakBedrockStream,
	}
}

// breakBedrockStream is an exception of the fault's name, which has a small first letter here.
func breakBedrockStream(f fault) []byte {
	f = completeBedrock(f)
	name := f.code
	if name == "" {
		name = "InternalServerException"
	}
	return exceptionFrame(strings.ToLower(name[:1])+name[1:], bedrockMessage{f.message})
}
