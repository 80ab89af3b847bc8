//go:build llmq_cassette

package wiring

import (
	"context"
	"fmt"
	"net/http"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
)

// cassettes opens the tape that the configuration names. Every secret of the configuration is
// kept out of its files.
func (p *Process) cassettes() (func(http.RoundTripper) http.RoundTripper, error) {
	mode, err := cassette.ParseMode(p.Config.Cassette.Mode)
	if err != nil {
		return nil, llmq.Errorf(llmq.CodeConfiguration, "cassette.mode is of no known kind").Because(err)
	}
	refs := []config.Secret{p.Config.Valkey.Password, p.Config.Admin.Key, p.Config.IDSalt, p.Config.KeyPepper}
	for _, c := range p.Config.Providers {
		refs = append(refs, c.APIKey)
	}
	var known []string
	for _, ref := range refs {
		if ref.IsZero() {
			continue
		}
		// A variable's value: where there are cassettes, no secret lies anywhere else.
		secret, err := p.secrets.Resolve(context.Background(), ref)
		if err != nil {
			return nil, fmt.Errorf("secrets to keep out of cassettes: %w", err)
		}
		if len(secret.Reveal()) >= cassette.MinSecretBytes {
			known = append(known, secret.Reveal())
		}
	}
	tape, err := cassette.New(cassette.Options{
		Dir: p.Config.Cassette.Dir, Mode: mode, Secrets: known, Env: p.env, Logger: p.Log,
		AnyLoopbackPort: true, // the fake provider and local servers get another in each run
	})
	if err != nil {
		return nil, llmq.Errorf(llmq.CodeConfiguration, "recordings can't be used").Because(err)
	}
	return tape.Wrap, nil
}
