package config

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func (c *checker) providers() {
	for _, p := range c.cfg.Providers {
		path := providerPath(p.Name)
		if !c.ok(path + ".type") {
			continue
		}
		c.secretIfGiven(path+".api_key", p.APIKey)
		c.cidrs(path, p)
		switch p.Type {
		case ProviderOpenAI:
			if _, given := c.given[path+".region"]; given {
				c.fault(path+".region", "is for type: bedrock only")
			}
			if p.BaseURL == "" {
				c.fault(path+".base_url", "is missing: type: openai needs it, e.g. https://api.openai.com/v1")
			}
			if p.APIKey.IsZero() && !p.Private && c.ok(path+".private") {
				c.fault(path+".api_key", "is missing: type: openai needs it, but for a private provider")
			}
		case ProviderBedrock:
			if p.BaseURL != "" && c.aws() {
				c.fault(path+".base_url", "is refused for type: bedrock on aws: endpoints of stand-ins are for kind: local only")
			}
		}
		if !c.ok(path + ".allowed_cidrs") {
			p.AllowedCIDRs = nil // what could not be read may have held the address
		}
		if p.BaseURL != "" && c.ok(path+".base_url", "kind") {
			if problem := checkBaseURL(c.cfg.Kind, p); problem != "" {
				c.fault(path+".base_url", "%s", problem)
			}
		}
	}
}

func (c *checker) secretIfGiven(path string, s Secret) {
	if !s.IsZero() {
		c.secret(path, s)
	}
}

// cidrs checks what a private provider may dial (SECURITY-DESIGN EG2).
func (c *checker) cidrs(path string, p Provider) {
	list := path + ".allowed_cidrs"
	if !c.ok(list, path+".private") {
		return
	}
	switch {
	case p.Private && len(p.AllowedCIDRs) == 0:
		c.fault(list, "is missing: a private provider names the only addresses that may be dialled, e.g. [10.0.3.0/24]")
	case !p.Private && len(p.AllowedCIDRs) > 0:
		c.fault(list, "means nothing without private: true")
	}
	for i, text := range p.AllowedCIDRs {
		if problem := checkCIDR(c.cfg.Kind, text); problem != "" {
			c.fault(listPath(list, i), "%s", problem)
		}
	}
}

func checkCIDR(kind Kind, text string) string {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil || prefix.Addr().Is4In6():
		return "must be addresses such as 10.0.3.0/24 or fd00::/8, not " + quoted(text)
	case prefix != prefix.Masked():
		return "has bits beyond its length; did you mean " + prefix.Masked().String() + "?"
	case overlaps(prefix, "169.254.0.0/16", "fe80::/10"):
		return "reaches link-local addresses, where instance credentials are served"
	case kind == KindAWS && overlaps(prefix, "127.0.0.0/8", "::1/128"):
		return "reaches loopback, where Lambda's own interface is"
	}
	return ""
}

func overlaps(p netip.Prefix, with ...string) bool {
	return slices.ContainsFunc(with, func(w string) bool { return p.Overlaps(netip.MustParsePrefix(w)) })
}

func (c *checker) models() {
	byName := map[string]Provider{}
	var known []string
	for _, p := range c.cfg.Providers {
		byName[p.Name] = p
		known = append(known, p.Name)
	}
	catchAll := ""
	for _, m := range c.cfg.Models {
		path := modelPath(m.Alias)
		if m.Any && c.ok(path+".any") {
			switch {
			case c.aws():
				c.fault(path+".any", "is refused on aws: each model that can be called is named")
			case catchAll != "":
				c.fault(path+".any", "is true for %s already; one model takes all other names", catchAll)
			default:
				catchAll = path
			}
		}
		c.modelLanes(path, m)
		targets := map[string]int{}
		for i, t := range m.Targets {
			at := targetPath(m.Alias, i)
			if first, taken := targets[t.Name]; taken && t.Name != "" {
				c.fault(at+".name", "%q is the name of targets[%d] already", t.Name, first)
			} else {
				targets[t.Name] = i
			}
			c.target(at, m, t, byName, known)
		}
	}
}

// modelLanes checks that both queues are there that every model has (FEATURES B1).
func (c *checker) modelLanes(path string, m Model) {
	if !c.ok(path + ".lanes") {
		return
	}
	for _, l := range []llmq.Lane{llmq.LaneRT, llmq.LaneBG} {
		if !slices.Contains(m.Lanes, l) {
			c.fault(path+".lanes", "must hold rt and bg; only bulk can be left out, and then uses the queue of bg")
			return
		}
	}
}

func (c *checker) target(path string, m Model, t Target, byName map[string]Provider, known []string) {
	if t.ModelID == "" && !m.Any && c.ok(path+".model_id") {
		c.fault(path+".model_id", "is missing: the provider's own name of the model; only a model with any: true passes the caller's on")
	}
	if t.Provider == "" || !c.ok(path+".provider") {
		return
	}
	p, found := byName[t.Provider]
	if !found {
		c.fault(path+".provider", "no provider is named %s%s", quoted(t.Provider), didYouMean(t.Provider, known, "providers"))
		return
	}
	if !c.ok(providerPath(p.Name)+".type", path+".wires") || p.Type == "" {
		return
	}
	for i, w := range t.Wires {
		if !slices.Contains(p.Wires(), w) {
			c.fault(listPath(path+".wires", i), "provider %s is of type %s, which can't speak %s; it speaks %s",
				segment(p.Name), p.Type, w, strings.Join(names(p.Wires()), ", "))
		}
	}
}
