package wiring

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/internal/opbody"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/bedrock"
	"github.com/llm-queue/llmq/pkg/llmq/provider/job"
	"github.com/llm-queue/llmq/pkg/llmq/provider/openai"
)

// providers builds every configured provider, or those of jobs alone where the process has some. Their secrets are fetched on
// first use.
func (p *Process) providers() (map[string]provider.Provider, error) {
	jobs := job.New(p.jobs, p.Log)
	if len(p.jobs) > 0 {
		return map[string]provider.Provider{llmq.JobProvider: jobs}, nil
	}
	if p.Config.Cassette.Mode != "" {
		var err error
		if p.wrap, err = p.cassettes(); err != nil {
			return nil, err
		}
	}
	if err := p.unmade(); err != nil {
		return nil, err
	}
	out := map[string]provider.Provider{llmq.JobProvider: jobs} // it hands on every job that comes its way
	for _, c := range p.Config.Providers {
		made, err := p.provider(c)
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", c.Name, err)
		}
		out[c.Name] = made
	}
	return out, nil
}

func (p *Process) provider(c config.Provider) (provider.Provider, error) {
	n := provider.Network{
		Loopback:       p.Config.Kind == config.KindLocal,
		ConnectTimeout: c.ConnectTimeout, ReadTimeout: c.ReadTimeout,
		MaxIdle: p.parallelism(),
		Denied:  p.Config.Routing.Denies,
		Wrap:    p.wrap,
	}
	if c.Private {
		for _, s := range c.AllowedCIDRs {
			prefix, err := netip.ParsePrefix(s)
			if err != nil {
				return nil, fmt.Errorf("allowed CIDR %q: %w", s, err)
			}
			n.AllowedCIDRs = append(n.AllowedCIDRs, prefix)
		}
	}
	var key func(context.Context) (string, error)
	if !c.APIKey.IsZero() {
		key = func(ctx context.Context) (string, error) {
			secret, err := p.secrets.Resolve(ctx, c.APIKey)
			return secret.Reveal(), err
		}
	}
	if make, ok := p.makers[c.Type]; ok {
		own, err := make(ProviderConfig{Provider: c, Key: key, Network: n})
		if err != nil {
			return nil, err
		}
		return hold(own, opbody.Reach{RemoteMedia: c.RemoteMedia == "pass"}), nil
	}
	if c.Type == config.ProviderBedrock {
		b := bedrock.Config{Name: c.Name, Region: c.Region, Endpoint: c.BaseURL, APIKey: key, RemoteMedia: c.RemoteMedia == "pass", Network: n}
		if key == nil {
			b.Credentials = p.aws.Credentials
		}
		return bedrock.New(b)
	}
	return openai.New(openai.Config{
		Name: c.Name, BaseURL: c.BaseURL, APIKey: key, Refused: refused(c, p.Config.Kind), RefusesStreamOptions: c.RefusesStreamOptions, RemoteMedia: c.RemoteMedia == "pass", Network: n,
	})
}

// refused is what callers are told of a key that the provider refuses. Where the key is a variable of the environment, they are those who
// set it, and are told which; on AWS it is nobody's business but the operator's.
func refused(c config.Provider, kind config.Kind) string {
	switch {
	case c.APIKey.Env != "":
		return "it refuses the key in " + c.APIKey.Env + ", or the model to it; set that variable to a key of this provider, and start again"
	case c.APIKey.IsZero() && kind == config.KindLocal:
		return "it wants a key and is sent none; set OPENAI_API_KEY beside OPENAI_BASE_URL, or api_key_env of the provider " + c.Name + ", and start again"
	}
	return ""
}

// parallelism is how many calls one process can have in flight at once: a batch, at least one.
func (p *Process) parallelism() int {
	most := 1
	for _, l := range p.Config.Lanes {
		most = max(most, l.BatchSize)
	}
	return most
}
