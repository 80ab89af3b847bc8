package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

// Quota is where one meter is now.
type Quota struct {
	Model, Region, Key string // what the rule counts apart
	// Rule and Phase are the numbers of what is in force, from 0, and Factor multiplies the quotas.
	Rule, Phase int
	Factor      float64
	// Limits are the quotas now, Factor included.
	Limits   quota.Limits
	InFlight int
	// Requests and Tokens are what is left of the rates; zero where there is no limit.
	Requests, Tokens quota.Left
}

// Quotas lists the meters that a call has asked and that a rule is still for, by model, region and
// key.
func (s *Server) Quotas() []Quota {
	now := time.Now()
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	all := make([]Quota, 0, len(s.state.meters))
	for sc, m := range s.state.meters {
		i := slices.IndexFunc(s.state.rules, func(r *liveRule) bool { return r.Match == sc.match })
		if i < 0 {
			continue
		}
		rule := s.state.rules[i]
		phase, number, factor := rule.at(now.Sub(rule.since))
		limits := phase.limits(factor, phase.Limits.Charge)
		q := Quota{
			Model: sc.model, Region: sc.region, Key: sc.key, Rule: i, Phase: number, Factor: factor, Limits: limits, InFlight: m.InFlight(),
		}
		q.Requests, q.Tokens = m.Left(now, limits)
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b Quota) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Key, b.Key), a.Rule-b.Rule)
	})
	return all
}

type leftJSON struct {
	Limit     float64 `json:"limit"`
	Remaining float64 `json:"remaining"`
	FullMs    millis  `json:"full_ms"`
}

type quotaJSON struct {
	Model       string    `json:"model"`
	Region      string    `json:"region"`
	Key         string    `json:"key"`
	Rule        int       `json:"rule"`
	Phase       int       `json:"phase"`
	Factor      float64   `json:"factor"`
	Concurrency int       `json:"concurrency"`
	InFlight    int       `json:"in_flight"`
	RPM         *leftJSON `json:"rpm"`
	TPM         *leftJSON `json:"tpm"`
}

func newQuotaJSON(q Quota) quotaJSON {
	left := func(l quota.Left) *leftJSON {
		if l.Limit == 0 {
			return nil
		}
		return &leftJSON{l.Limit, l.Remaining, newMillis(l.Full)}
	}
	return quotaJSON{
		Model: q.Model, Region: q.Region, Key: q.Key, Rule: q.Rule, Phase: q.Phase, Factor: q.Factor,
		Concurrency: q.Limits.Concurrency, InFlight: q.InFlight, RPM: left(q.Requests), TPM: left(q.Tokens),
	}
}
