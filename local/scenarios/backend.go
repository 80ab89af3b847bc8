package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/rig"
	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// backend is a real endpoint that serves instead of the fake provider.
type backend struct {
	config.Provider
	key         string
	chat, embed string // the endpoint's own ids of its models; embed may be ""
	lowVolume   bool   // scenarios that make more than a few calls may run too, with fewer
}

// safety says whether a scenario may run against a real endpoint.
type safety int

const (
	fakeOnly  safety = iota // it injects faults at the provider, or reads its log
	safe                    // a few calls, and it looks at answers only
	lowVolume               // safe, and makes fewer calls there; SCN_AWS_LOW_VOLUME=1 allows it
)

// keyEnv holds the endpoint's key for the functions.
const keyEnv = "LLMQ_SCENARIO_KEY"

// mostOutput is what a call may have a real model say, in tokens: what it says is not looked at.
const mostOutput = 16

// findBackend reads from the environment which endpoint serves; nil is the fake provider. Calls of a real one cost money, so it takes two
// variables that nobody has set for another purpose: SCN_PROVIDER and SCN_MODEL.
func findBackend(env []string) (*backend, error) {
	get := func(name string) string {
		for _, kv := range slices.Backward(env) {
			if value, ok := strings.CutPrefix(kv, name+"="); ok {
				return value
			}
		}
		return ""
	}
	b := &backend{chat: get("SCN_MODEL"), embed: get("SCN_EMBED_MODEL"), lowVolume: get("SCN_AWS_LOW_VOLUME") == "1"}
	b.Name, b.APIKey, b.ConnectTimeout, b.ReadTimeout = "real", config.Secret{Env: keyEnv}, 10*time.Second, 2*time.Minute
	var missing []string
	need := func(name string) string {
		v := get(name)
		if v == "" {
			missing = append(missing, name)
		}
		return v
	}
	switch kind := get("SCN_PROVIDER"); kind {
	case "", "fake":
		if b.chat != "" {
			return nil, errors.New("SCN_MODEL names a model and SCN_PROVIDER no endpoint: set it to openai or aws, or unset both")
		}
		return nil, nil //nolint:nilnil // the fake one is no backend
	case "openai":
		b.Type, b.BaseURL, b.key = config.ProviderOpenAI, need("OPENAI_BASE_URL"), need("OPENAI_API_KEY")
	case "aws":
		b.Type, b.Region, b.key = config.ProviderBedrock, cmp.Or(get("AWS_REGION"), get("AWS_DEFAULT_REGION")), need("AWS_BEARER_TOKEN_BEDROCK")
		if b.BaseURL = get("AWS_ENDPOINT_URL_BEDROCK_RUNTIME"); b.Region == "" {
			need("AWS_REGION")
		}
	default:
		return nil, fmt.Errorf("SCN_PROVIDER is %q, must be fake, openai or aws", kind)
	}
	need("SCN_MODEL")
	if len(missing) > 0 {
		return nil, fmt.Errorf("SCN_PROVIDER=%s calls a real endpoint, whose calls cost money; not set: %s", get("SCN_PROVIDER"), strings.Join(missing, ", "))
	}
	if u, err := url.Parse(b.BaseURL); err == nil {
		if at, err := netip.ParseAddr(u.Hostname()); err == nil && at.IsLoopback() {
			b.Private, b.AllowedCIDRs = true, []string{netip.PrefixFrom(at, at.BitLen()).String()}
		}
	}
	return b, nil
}

// may says why a scenario may not run here; nil is that it may.
func (b *backend) may(sc scenario) error {
	switch {
	case b == nil || sc.Safety == safe || sc.Safety == lowVolume && b.lowVolume:
		return nil
	case sc.Safety == lowVolume:
		return fmt.Errorf("%s makes more than a few calls: SCN_AWS_LOW_VOLUME=1 has it make fewer of them at a real endpoint", sc.ID)
	default:
		return fmt.Errorf("%s runs on the fake provider only: it has the provider fail, or reads its log", sc.ID)
	}
}

// allowed leaves out what may not run where all were asked for, and refuses it where it was named.
func (b *backend) allowed(chosen []scenario, ids []string) ([]scenario, error) {
	var out []scenario
	var refused []error
	for _, sc := range chosen {
		err := b.may(sc)
		named := slices.ContainsFunc(ids, func(id string) bool { return strings.EqualFold(id, sc.ID) })
		switch {
		case err == nil:
			out = append(out, sc)
		case named:
			refused = append(refused, err)
		}
	}
	if err := errors.Join(refused...); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, errors.New("none of these scenarios may run at a real endpoint")
	}
	return out, nil
}

// serves reports whether the endpoint has a model for an alias.
func (b *backend) serves(alias string) bool {
	if b == nil {
		return true
	}
	return b.id(alias) != ""
}

// id is the endpoint's model for an alias; "" is none.
func (b *backend) id(alias string) string {
	switch {
	case alias == rig.ModelChat && b.Type == config.ProviderOpenAI, alias == rig.ModelConverse && b.Type == config.ProviderBedrock:
		return b.chat
	case alias == rig.ModelEmbed && b.Type == config.ProviderOpenAI:
		return b.embed
	default:
		return ""
	}
}

// apply has the endpoint serve what it can; the other models' targets stay the fake's, and no scenario calls them.
func (b *backend) apply(c *config.Config) {
	c.Providers = append(c.Providers, b.Provider)
	for i := range c.Models {
		m := &c.Models[i]
		if !b.serves(m.Alias) {
			continue
		}
		if m.Alias != rig.ModelEmbed {
			m.DefaultMaxTokens = mostOutput
		}
		for j := range m.Targets {
			m.Targets[j].Provider, m.Targets[j].ModelID, m.Targets[j].Wires = b.Name, b.id(m.Alias), b.Wires()
		}
	}
}

// real reports whether an endpoint serves whose answers nobody knows beforehand.
func (t *trial) real() bool { return t.Backend != nil }

// operations are those that whoever serves can be asked for.
func (t *trial) operations() []operation {
	return slices.DeleteFunc(operations(), func(o operation) bool { return !t.Backend.serves(o.model) })
}

// noteReal holds what can be held of calls at a real endpoint: each has a stored reply, and the fake provider was not asked instead.
func (t *trial) noteReal(ctx context.Context, w *world, ids []string) error {
	results, err := w.Results(ctx, ids)
	if err != nil {
		return err
	}
	failed := map[llmq.Code]int{}
	for _, r := range results {
		if r.Code != "" {
			failed[r.Code]++
		}
	}
	t.Note("requests", len(ids))
	t.Hold(len(results) == len(ids), "%d results of %d are stored", len(results), len(ids))
	t.Hold(len(failed) == 0, "results are errors: %v", failed)
	t.Hold(len(w.Calls()) == 0, "the fake provider was asked %d times", len(w.Calls()))
	return nil
}
