package config

import (
	"cmp"
	"maps"
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
		if p.RemoteMedia == "pass" && len(p.AllowedCIDRs) > 0 {
			c.fault(path+".remote_media", "pass is for public providers: a private one would fetch from the network that it lies in")
		}
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
		default:
			if !c.declared(p) {
				c.fault(path+".type", "%s is none of llmq's own, nor do its targets name wires, as those of a program's own do%s",
					p.Type, didYouMean(string(p.Type), names(ProviderTypes()), "types"))
			}
		}
		if !c.ok(path + ".allowed_cidrs") {
			p.AllowedCIDRs = nil // what could not be read may have held the address
		}
		c.permitted(path, p)
		if p.BaseURL != "" && c.ok(path+".base_url", "kind") {
			if problem := checkBaseURL(c.cfg.Kind, p); problem != "" {
				c.fault(path+".base_url", "%s", problem)
			}
		}
	}
}

// declared reports whether p has targets and each names the wires that it speaks: then its type is no slip of the pen.
func (c *checker) declared(p Provider) bool {
	found := false
	for _, m := range c.cfg.Models {
		for _, t := range m.Targets {
			if t.Provider == p.Name && len(t.Wires) == 0 {
				return false
			}
			found = found || t.Provider == p.Name
		}
	}
	return found
}

// permitted holds a provider against what the deployment allows at all (FEATURES D8). Doors, clients and workers
// read the same file: where one may not send, none does.
func (c *checker) permitted(path string, p Provider) {
	if allowed := c.cfg.Routing.AllowedProviders; len(allowed) > 0 && c.ok("routing.allowed_providers") && !slices.Contains(allowed, p.Name) {
		c.fault(path, "is not among routing.allowed_providers: take it out, with the targets that name it, or allow it")
	}
	at, host := path+".base_url", ""
	if u, problem := parseURL(p.BaseURL); problem == "" {
		host = u.Hostname()
	} else if p.BaseURL == "" && p.Type == ProviderBedrock && p.Region != "" {
		at, host = path+".region", "bedrock-runtime."+p.Region+".amazonaws.com"
	}
	if c.ok(at, "routing.denied_hosts") && c.cfg.Routing.Denies(host) {
		c.fault(at, "leads to %s, which routing.denied_hosts holds or lies above", llmq.Clip(host, 100))
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
		c.skipped(path, m, targets)
		c.fallback(path, m)
	}
}

// skipped checks that what a chain leaves out is there, and that something is left.
func (c *checker) skipped(path string, m Model, targets map[string]int) {
	list := path + ".skip_targets"
	if !c.ok(list, path+".targets") {
		return
	}
	left := len(targets)
	for i, name := range m.SkipTargets {
		if _, found := targets[name]; !found {
			c.fault(listPath(list, i), "no target of %s is named %s%s", segment(m.Alias), quoted(name), didYouMean(name, slices.Sorted(maps.Keys(targets)), "targets"))
			continue
		}
		left--
	}
	if left <= 0 && len(m.SkipTargets) > 0 && len(m.Fallback) == 0 {
		c.fault(list, "leaves no target to serve %s, and no other model stands in for it", segment(m.Alias))
	}
}

// fallback checks that the models that stand in for m are others, and speak its language.
func (c *checker) fallback(path string, m Model) {
	var known []string
	for _, other := range c.cfg.Models {
		if other.Alias != m.Alias && !other.Any {
			known = append(known, other.Alias)
		}
	}
	seen := map[string]int{}
	for i, f := range m.Fallback {
		at := fallbackPath(m.Alias, i) + ".model"
		if f.Model == "" || !c.ok(at) {
			continue
		}
		first, twice := seen[f.Model]
		seen[f.Model] = i
		n := slices.IndexFunc(c.cfg.Models, func(o Model) bool { return o.Alias == f.Model })
		switch {
		case twice:
			c.fault(at, "%q is fallback[%d] already", f.Model, first)
		case f.Model == m.Alias:
			c.fault(at, "is the model itself; its own targets are tried anyhow")
		case n < 0:
			c.fault(at, "no model is named %s%s", quoted(f.Model), didYouMean(f.Model, known, "models"))
		case c.cfg.Models[n].Any:
			c.fault(at, "takes the caller's own name of a model, and so can't stand in for another")
		case !c.ok(path+".targets", modelPath(f.Model)+".targets"):
		case !shareWire(m, c.cfg.Models[n], llmq.Wires()...):
			c.fault(at, "speaks %s and %s speaks %s: a body is never translated, so it can't stand in",
				strings.Join(names(wiresOf(c.cfg.Models[n])), ", "), segment(m.Alias), strings.Join(names(wiresOf(m)), ", "))
		case !shareWire(m, c.cfg.Models[n], llmq.WireOpenAI, llmq.WireConverse):
			c.fault(at, "has no wire in common with %s but invoke, whose body is its model's own, so it can't stand in", segment(m.Alias))
		}
	}
}

// shareWire reports whether one of ws is common to both models. It is silent about one whose targets are wrong otherwise.
func shareWire(a, b Model, ws ...llmq.Wire) bool {
	as, bs := wiresOf(a), wiresOf(b)
	return len(as) == 0 || len(bs) == 0 || slices.ContainsFunc(ws, func(w llmq.Wire) bool { return slices.Contains(as, w) && slices.Contains(bs, w) })
}

// wiresOf are those of a model's targets, in a fixed order.
func wiresOf(m Model) []llmq.Wire {
	var ws []llmq.Wire
	for _, w := range llmq.Wires() {
		if slices.ContainsFunc(m.Targets, func(t Target) bool { return slices.Contains(t.Wires, w) }) {
			ws = append(ws, w)
		}
	}
	return ws
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

// burst holds a burst of calls against the budget that it is a part of.
func (c *checker) burst(path string, burst, rpm int) {
	switch {
	case burst <= rpm || !c.ok(path):
	case rpm == 0:
		c.fault(path, "needs rpm; with tpm alone a tenth of it can be spent at once, and with rate_window: fixed the whole")
	default:
		c.fault(path, "must be at most rpm, %d: no more than a minute's calls can be saved up", rpm)
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
	c.burst(path+".rate_burst", t.Limits.RateBurst, cmp.Or(t.Limits.RPM, m.Limits.RPM, p.Limits.RPM))
	if !c.ok(providerPath(p.Name)+".type", path+".wires") || p.Type == "" {
		return
	}
	for i, w := range t.Wires {
		if p.Wires() != nil && !slices.Contains(p.Wires(), w) {
			c.fault(listPath(path+".wires", i), "provider %s is of type %s, which can't speak %s; it speaks %s",
				segment(p.Name), p.Type, w, strings.Join(names(p.Wires()), ", "))
		}
	}
}
