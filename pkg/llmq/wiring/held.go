package wiring

import (
	"context"

	"github.com/llm-queue/llmq/pkg/llmq/internal/opbody"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// hold keeps from a provider of a program's own what its configuration lets no body reach (SECURITY-DESIGN IN5): llmq's own look at the bytes that
// they send, last; what one that we do not know sends is its own affair, but it is handed nothing that is out of reach. It
// streams and measures where the one held does.
func hold(p provider.Provider, r opbody.Reach) provider.Provider {
	h := held{p, r}
	s, streams := p.(provider.Streamer)
	m, measures := p.(provider.Measurer)
	switch {
	case streams && measures:
		return struct {
			held
			heldStream
			provider.Measurer
		}{h, heldStream{s, r}, m}
	case streams:
		return struct {
			held
			heldStream
		}{h, heldStream{s, r}}
	case measures:
		return struct {
			held
			provider.Measurer
		}{h, m}
	}
	return h
}

// held is a provider behind the look at each body.
type held struct {
	held  provider.Provider
	reach opbody.Reach
}

// Call implements [provider.Provider].
func (h held) Call(ctx context.Context, req provider.Request) (*provider.Response, error) {
	if err := checkReach(h.reach, req); err != nil {
		return nil, err
	}
	return h.held.Call(ctx, req)
}

// heldStream is what such a provider streams.
type heldStream struct {
	stream provider.Streamer
	reach  opbody.Reach
}

// Stream implements [provider.Streamer].
func (h heldStream) Stream(ctx context.Context, req provider.Request, emit provider.Emit) (*provider.Response, error) {
	if err := checkReach(h.reach, req); err != nil {
		return nil, err
	}
	return h.stream.Stream(ctx, req, emit)
}

func checkReach(r opbody.Reach, req provider.Request) error {
	r.HostedTools = req.HostedTools
	if err := r.Check(req.Op, req.Body); err != nil {
		return provider.OutOfReach(err)
	}
	return nil
}
