package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/pkg/llmq/wiring"
)

// check is one thing that a client does; note is what was seen.
type check struct {
	name string
	run  func(ctx context.Context) (note string, err error)
}

// client is one client with its checks.
type client struct {
	name   string
	checks []check
}

// runGo checks the Go SDKs at the door, and then behind the HTTP client of a Go program, which has no door before it.
func runGo(ctx context.Context, w *world, r *report) error {
	env := append(w.Environ(), "AWS_ACCESS_KEY_ID="+cloud.Producer, "AWS_SECRET_ACCESS_KEY=local")
	restore, err := asProducer()
	if err != nil {
		return err
	}
	defer restore()
	program, err := wiring.Open(ctx, env, "default", quiet())
	if err != nil {
		return err
	}
	defer func() { //nolint:contextcheck // an end has a bound of its own
		if closed := program.Close(); closed != nil {
			r.add(result{Client: "go", Check: "closes", Note: closed.Error()})
		}
	}()
	tls, err := trusting(w.CAFile)
	if err != nil {
		return err
	}
	defer tls.CloseIdleConnections()
	plain := &http.Client{Transport: &http.Transport{}}
	defer plain.CloseIdleConnections()
	ai, bedrock := version("github.com/openai/openai-go/v3"), version("github.com/aws/aws-sdk-go-v2/service/bedrockruntime")
	for _, c := range []client{
		{"openai-go " + ai, openAIChecks(w, plain, w.URL+"/v1", w.Key, true)},
		{"bedrockruntime " + bedrock + " (Go)", bedrockChecks(w, tls, w.TLSURL, w.Key)},
		{"openai-go " + ai + ", drop-in", openAIChecks(w, program.HTTPClient(), "https://api.openai.com/v1", "none", false)},
		{"bedrockruntime " + bedrock + ", drop-in", bedrockChecks(w, program.HTTPClient(), "", "")},
		{"llmq/client", programChecks(w, program)},
	} {
		for _, k := range c.checks {
			r.add(k.result(ctx, w, c.name))
		}
	}
	return nil
}

func (k check) result(ctx context.Context, w *world, name string) result {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	err := w.Replies(ctx)
	note := ""
	if err == nil {
		note, err = k.run(ctx)
	}
	if err != nil {
		note = err.Error()
	}
	return result{Client: name, Check: k.name, OK: err == nil, Note: fmt.Sprintf("%s (%d ms)", note, time.Since(began).Milliseconds())}
}

// version is that of a module that this program is built with.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "?"
}

// wants joins what is not as it should be.
type wants []error

func (w *wants) equal(what string, got, want any) {
	if got != want {
		*w = append(*w, fmt.Errorf("%s: got %v, want %v", what, got, want))
	}
}

func (w wants) err() error { return errors.Join(w...) }
