package wiring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/job"
)

// Option is what a program of one's own adds to what its configuration says.
type Option func(*options)

type options struct {
	makers map[config.ProviderType]NewProvider
	jobs   map[string]job.Func
	faults []error
}

// NewProvider makes a provider of a type of one's own. It is called once for each entry of that type, when the first call
// is to be run, and calls nobody itself.
type NewProvider func(ProviderConfig) (provider.Provider, error)

// ProviderConfig is what a provider is made from.
type ProviderConfig struct {
	config.Provider // as the file has it

	// Key fetches its api_key, and keeps it; nil where the file gives none.
	Key func(context.Context) (string, error)

	// Network is how the endpoint may be reached. The constructors of packages provider/openai and provider/bedrock take it; who
	// brings an HTTP client of its own has to hold to it.
	Network provider.Network
}

// WithProvider registers a type of providers (FEATURES D8): the configuration may say type: kind of a provider, whose targets
// then name the wires that it speaks. Every program that runs calls has to register it: workers, and doors and Go
// programs unless routing.direct is off. kind matches [a-z0-9-]{1,32} and is none of llmq's own.
func WithProvider(kind string, make NewProvider) Option {
	return func(o *options) {
		t := config.ProviderType(kind)
		switch _, twice := o.makers[t]; {
		case !kinds.MatchString(kind):
			o.faults = append(o.faults, llmq.Errorf(llmq.CodeConfiguration, "the type %q that is registered must match %s", llmq.Clip(kind, 60), kinds))
		case slices.Contains(config.ProviderTypes(), t) || twice:
			o.faults = append(o.faults, llmq.Errorf(llmq.CodeConfiguration, "the type %s is registered already", kind))
		case make == nil:
			o.faults = append(o.faults, llmq.Errorf(llmq.CodeConfiguration, "the type %s is registered without what makes its providers", kind))
		default:
			if o.makers == nil {
				o.makers = map[config.ProviderType]NewProvider{}
			}
			o.makers[t] = make
		}
	}
}

// WithJob registers a function for the jobs of its name (FEATURES A6). A process that has one runs jobs and no calls of models: it is a
// worker of one of the configuration's queues of jobs.
func WithJob(name string, do job.Func) Option {
	return func(o *options) {
		switch {
		case !jobNames.MatchString(name):
			o.faults = append(o.faults, llmq.Errorf(llmq.CodeConfiguration, "the job %q that is registered must match %s", llmq.Clip(name, 80), jobNames))
		case o.jobs[name] != nil:
			o.faults = append(o.faults, llmq.Errorf(llmq.CodeConfiguration, "the job %s is registered already", name))
		case do == nil:
			o.faults = append(o.faults, llmq.Errorf(llmq.CodeConfiguration, "the job %s is registered without its function", name))
		default:
			if o.jobs == nil {
				o.jobs = map[string]job.Func{}
			}
			o.jobs[name] = do
		}
	}
}

var jobNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

var kinds = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// unmade names the providers of types that this program does not know.
func (p *Process) unmade() error {
	known := slices.Sorted(slices.Values(append(config.ProviderTypes(), slices.Collect(maps.Keys(p.makers))...)))
	var faults []error
	for _, c := range p.Config.Providers {
		if !slices.Contains(known, c.Type) {
			faults = append(faults, llmq.Errorf(llmq.CodeConfiguration, "providers.%s.type: this program knows no type %s; it knows %s", c.Name, c.Type, listed(known)))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("make providers: %w", err)
	}
	return nil
}

func listed(types []config.ProviderType) string {
	var b strings.Builder
	for i, t := range types {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(t))
	}
	return b.String()
}
