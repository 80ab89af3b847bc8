//go:build !llmq_cassette

package wiring

import (
	"net/http"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// cassettes refuses: what is deployed links no cassette (SECURITY-DESIGN LM2), and a program that
// ignored the setting would call a provider that nobody meant to pay.
func (p *Process) cassettes() (func(http.RoundTripper) http.RoundTripper, error) {
	return nil, llmq.Errorf(llmq.CodeConfiguration,
		"cassette.mode is %s, but this program was built without cassettes; build it with -tags llmq_cassette", p.Config.Cassette.Mode)
}
