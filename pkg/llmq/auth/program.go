package auth

import "github.com/llm-queue/llmq/pkg/llmq"

// Program is a Go program as a caller of its own door: one without a connection, in its own process. There is no key to
// check, for whoever can run code there can use all that the program has; what a queue lets the program send is what
// bounds it. It may do everything with the models, as its tenant.
//
// It is the one caller that no [Checker] makes. A door that listens must never be given it.
func Program(tenant string, models []llmq.Model) Caller {
	r := &Record{Tenant: tenant, Scopes: Scopes(), Lanes: llmq.Lanes(), MaxChoices: MaxChoices}
	for _, m := range models {
		r.Models = append(r.Models, m.Alias)
	}
	return Caller{key: r}
}
