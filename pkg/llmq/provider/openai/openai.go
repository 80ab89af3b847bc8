// Package openai calls every endpoint that speaks OpenAI's API: OpenAI itself, vLLM, Ollama,
// OpenRouter, Groq, Bedrock's /openai/v1. A body goes out as it came but for its model.
package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
	"github.com/llm-queue/llmq/pkg/llmq/internal/opbody"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// Config describes one endpoint.
type Config struct {
	// Name is the provider's name in the configuration; it stands in errors.
	Name string

	// BaseURL is what /chat/completions is appended to, e.g. https://api.openai.com/v1.
	BaseURL string

	// APIKey returns the key, and is asked before every call, so it should cache. Nil sends none,
	// which only private and local endpoints may want.
	APIKey func(ctx context.Context) (string, error)

	// Refused is what a caller is told where the endpoint refuses the key or the model to it: what to mend, for whoever can. "" tells
	// the status alone, and goes where callers are others than those who run it.
	Refused string

	// RefusesStreamOptions is of a server that knows no stream_options: its streams are not asked for their usage.
	RefusesStreamOptions bool

	// RemoteMedia lets the endpoint fetch what a body names by http and https URLs.
	RemoteMedia bool

	// Network bounds how the endpoint is reached.
	Network provider.Network
}

// Provider is one endpoint. It is safe for concurrent use.
type Provider struct {
	name   string
	key    func(context.Context) (string, error)
	egress *egress.Client
	told   string // of a refused key; "" is nothing
	silent bool   // its streams are not asked for their usage
	most   string // the member that bounds output, where we put it in
	salts  bool   // it is a server of one's own, whose cache of prompts takes a salt
	reach  opbody.Reach
}

var _ provider.Provider = (*Provider)(nil)

// New makes a Provider, or names every fault of cfg. Nothing is called yet.
func New(cfg Config) (*Provider, error) {
	var faults []error
	if cfg.APIKey == nil && !cfg.Network.Loopback && len(cfg.Network.AllowedCIDRs) == 0 {
		faults = append(faults, errors.New("a public endpoint needs an API key"))
	}
	client, err := egress.New(cfg.BaseURL, cfg.Network)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, fmt.Errorf("openai provider %s: %w", cfg.Name, err)
	}
	return &Provider{
		name: cfg.Name, key: cfg.APIKey, told: cfg.Refused, egress: client, silent: cfg.RefusesStreamOptions, most: mostName(client.Base()),
		// On one's own machine there is nobody to keep apart, and what a cassette holds would be one tenant's alone.
		salts: len(cfg.Network.AllowedCIDRs) > 0 && !cfg.Network.Loopback, reach: opbody.Reach{RemoteMedia: cfg.RemoteMedia, Routed: isRouted(client.Base())},
	}, nil
}

// isRouted reports whether an endpoint is OpenRouter's, where members of the body choose models, vendors and what is fetched.
func isRouted(base string) bool {
	u, err := url.Parse(base)
	return err == nil && (u.Hostname() == "openrouter.ai" || strings.HasSuffix(u.Hostname(), ".openrouter.ai"))
}

// mostName is the name under which an endpoint takes the most output: OpenAI's own and Azure's refuse
// max_tokens for reasoning models, and of other servers not all know the new name.
func mostName(base string) string {
	u, err := url.Parse(base)
	if err == nil && (u.Hostname() == "api.openai.com" || strings.HasSuffix(u.Hostname(), ".openai.azure.com")) {
		return maxCompletion
	}
	return maxTokens
}

// Close closes idle connections. Calls in flight are not touched.
func (p *Provider) Close() { p.egress.Close() }

// Call makes exactly one attempt; see [provider.Provider].
func (p *Provider) Call(ctx context.Context, req provider.Request) (*provider.Response, error) {
	hreq, key, err := p.request(ctx, req, "application/json", p.edits)
	if err != nil {
		return nil, err
	}
	reply, err := p.egress.Do(hreq)
	if err != nil {
		return nil, err
	}
	if !reply.OK() {
		return nil, p.advise(classify(reply, time.Now(), key))
	}
	answer, err := reply.JSON()
	if err != nil {
		return nil, err
	}
	top := gjson.ParseBytes(answer)
	if !top.IsObject() {
		return nil, reply.NoReply()
	}
	said := partsOf(top)
	if tellsOf(said.failed) {
		return nil, p.advise(told(answer, key))
	}
	usage := usageIn(said.usage)
	// What tells of its cost was paid for, and is the model's: Gemini's reply to a prompt that it blocks has usage and no choices.
	if member := said.lacks(req.Op); member != "" && usage == nil {
		return nil, reply.Lacks(member)
	}
	return &provider.Response{
		Status: reply.Status, ContentType: "application/json", Body: answer, RequestID: reply.RequestID("X-Request-Id"), Usage: usage,
	}, nil
}

// advise adds what is to be done about a refused key.
func (p *Provider) advise(e *provider.Error) *provider.Error {
	if e.Code == llmq.CodeProviderAuth && e.Message == "" && p.told != "" {
		e.Message = fmt.Sprintf("status %d: %s", e.Status, p.told)
	}
	return e
}

// parts are the members of a reply that are looked at.
type parts struct{ failed, usage, choices, data, output, status gjson.Result }

// partsOf finds them in one pass, for a reply may have 20 MB.
func partsOf(reply gjson.Result) parts {
	var p parts
	wanted := map[string]*gjson.Result{"error": &p.failed, "usage": &p.usage, "choices": &p.choices, "data": &p.data, "output": &p.output, "status": &p.status}
	reply.ForEach(func(name, value gjson.Result) bool {
		if at := wanted[name.Str]; at != nil && !at.Exists() {
			*at = value
		}
		return true
	})
	return p
}

// lacks names the member without which a reply is none to the op; "" where it is there. What is in it is the caller's affair.
func (p parts) lacks(op llmq.Op) string {
	filled := func(list gjson.Result) bool { return list.IsArray() && list.Get("0").Exists() }
	switch {
	case op == llmq.OpChat && !filled(p.choices):
		return "choices"
	case op == llmq.OpEmbeddings && !filled(p.data):
		return "data"
	case op == llmq.OpResponses && !p.output.IsArray() && p.status.Type != gjson.String: // one that was cut short may have said nothing
		return "output"
	}
	return ""
}

// request is what is sent, and the key in it: the caller's bytes but for edits.
func (p *Provider) request(ctx context.Context, req provider.Request, accept string, edits editor) (*http.Request, string, error) {
	path, err := pathOf(req.Op)
	if err != nil {
		return nil, "", err
	}
	body, err := edited(req, edits)
	if err != nil {
		return nil, "", &provider.Error{
			Class: provider.CallFatal, Code: llmq.CodeInvalidJSON, Message: "the body is not a JSON object that can be sent", Unsent: true,
			Err: fmt.Errorf("set the model for provider %s: %w", p.name, err),
		}
	}
	reach := p.reach
	reach.HostedTools = req.HostedTools
	if err := reach.Check(req.Op, body); err != nil {
		return nil, "", provider.OutOfReach(err)
	}
	key, err := p.apiKey(ctx)
	if err != nil {
		return nil, "", err
	}
	// The new request has no header of the caller's; an Idempotency-Key would make net/http repeat it.
	hreq, err := http.NewRequestWithContext(ctx, http.MethodPost, p.egress.Base()+path, bytes.NewReader(body))
	if err != nil {
		return nil, "", unsent(egress.Fault(ctx, fmt.Errorf("make a request to provider %s: %w", p.name, err), provider.TargetFatal, llmq.CodeProviderError))
	}
	hreq.Header.Set("Content-Type", "application/json")
	hreq.Header.Set("Accept", accept)
	if key != "" {
		hreq.Header.Set("Authorization", "Bearer "+key)
	}
	return hreq, key, nil
}

// edited is the caller's body with what must be changed in it.
func edited(req provider.Request, edits editor) ([]byte, error) {
	d, err := read(req.Body)
	if err != nil {
		return nil, err
	}
	es, err := edits(d, req)
	if err != nil {
		return nil, err
	}
	return d.with(es), nil
}

func pathOf(op llmq.Op) (string, error) {
	switch op {
	case llmq.OpChat:
		return "/chat/completions", nil
	case llmq.OpResponses:
		return "/responses", nil
	case llmq.OpEmbeddings:
		return "/embeddings", nil
	case llmq.OpConverse, llmq.OpConverseStream, llmq.OpInvoke, llmq.OpInvokeStream, llmq.OpJob:
	}
	return "", &provider.Error{
		Class: provider.TargetFatal, Code: llmq.CodeWrongWire, Unsent: true,
		Message: fmt.Sprintf("the provider speaks the openai wire, which has no %s", llmq.Clip(string(op), 40)),
	}
}

// apiKey gets the key and checks that a header can carry it. A space or line break at the end of a
// stored secret is common, and no part of it.
func (p *Provider) apiKey(ctx context.Context) (string, error) {
	if p.key == nil {
		return "", nil
	}
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
	return key, nil
}

// unsent marks a fault from before anything was sent.
func unsent(e *provider.Error) *provider.Error {
	e.Unsent = true
	return e
}
