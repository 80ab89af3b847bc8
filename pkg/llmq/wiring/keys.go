package wiring

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/admin"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/internal/keystore"
)

// keyObjects is where the records of keys lie.
func (p *Process) keyObjects() (auth.Objects, error) {
	if p.Config.Storage.StateBucket == "" {
		return nil, llmq.Errorf(llmq.CodeConfiguration, "storage.state_bucket is missing, and keys lie there; the deployment sets LLMQ_S3_STATE_BUCKET")
	}
	return keystore.New(p.s3(), p.Config.Storage.StateBucket), nil
}

// Trail records what operators do.
func (p *Process) Trail() admin.Trail {
	t := admin.Trail{Log: p.Log}
	if objects, err := p.keyObjects(); err == nil { // else its records say that there is none
		t.Objects = objects
	}
	return t
}

// s3 is a client of the bucket server.
func (p *Process) s3() *s3.Client {
	endpoint := p.Config.Storage.Endpoint
	return s3.NewFromConfig(p.aws, func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = optional(endpoint), endpoint != "" })
}

// records reads keys for a door or a worker.
func (p *Process) records() (*auth.Records, error) {
	objects, err := p.keyObjects()
	if err != nil {
		return nil, err
	}
	return auth.NewRecords(objects), nil
}

// checker checks callers' keys. The pepper is fetched at once: a process that can't get it must not start.
func (p *Process) checker(ctx context.Context) (*auth.Checker, error) {
	records, err := p.records()
	if err != nil {
		return nil, err
	}
	if _, err := p.peppers(ctx); err != nil {
		return nil, err
	}
	return auth.NewChecker(p.Config.Env, p.peppers, records)
}

// peppers are the current version of the secret and the one before.
func (p *Process) peppers(ctx context.Context) ([][]byte, error) {
	versions, err := p.secrets.Versions(ctx, p.Config.KeyPepper)
	if err != nil {
		return nil, fmt.Errorf("key pepper: %w", err)
	}
	var out [][]byte
	for _, v := range versions {
		if len(v.Reveal()) < auth.MinPepperBytes {
			return nil, llmq.Errorf(llmq.CodeConfiguration, "key_pepper has %d characters; it must have at least %d", len(v.Reveal()), auth.MinPepperBytes)
		}
		out = append(out, []byte(v.Reveal()))
	}
	return out, nil
}

// Keys makes, changes and lists callers' keys.
func (p *Process) Keys() (*auth.Registry, error) {
	objects, err := p.keyObjects()
	if err != nil {
		return nil, err
	}
	return auth.NewRegistry(p.Config.Env, p.peppers, objects), nil
}
