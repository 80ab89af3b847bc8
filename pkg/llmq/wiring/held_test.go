package wiring

import (
	"context"
	"errors"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/opbody"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// own is a provider of a program's own; asked counts what reaches it.
type own struct{ asked *int }

func (o own) Call(context.Context, provider.Request) (*provider.Response, error) {
	*o.asked++
	return &provider.Response{}, nil
}

type (
	ownStream struct{ own }
	ownMeter  struct{ own }
	ownBoth   struct {
		ownStream
		ownMeter
	}
)

func (o ownStream) Stream(context.Context, provider.Request, provider.Emit) (*provider.Response, error) {
	*o.asked++
	return &provider.Response{}, nil
}

func (ownMeter) Measure(provider.Request) provider.Load { return provider.Load{MaxOutput: 7} }

func (o ownBoth) Call(ctx context.Context, r provider.Request) (*provider.Response, error) {
	return o.ownStream.Call(ctx, r)
}

// SEC12, IN5, EG4: a provider of a program's own is handed no body that is out of reach, whichever of the contracts it fulfils; those
// that it fulfils are what they were.
func TestHold_NothingOutOfReachIsHandedOn(t *testing.T) {
	t.Parallel()
	asked := 0
	o := own{&asked}
	for _, tt := range []struct {
		name              string
		p                 provider.Provider
		streams, measures bool
	}{
		{"calls", o, false, false},
		{"streams", ownStream{o}, true, false},
		{"measures", ownMeter{o}, false, true},
		{"both", ownBoth{ownStream{o}, ownMeter{o}}, true, true},
	} {
		h := hold(tt.p, opbody.Reach{})
		s, streams := h.(provider.Streamer)
		m, measures := h.(provider.Measurer)
		if streams != tt.streams || measures != tt.measures || measures && m.Measure(provider.Request{}).MaxOutput != 7 {
			t.Errorf("%s: streams %t, measures %t", tt.name, streams, measures)
		}
		for body, good := range map[string]bool{
			`{"messages":[{"content":[{"s3Location":{"uri":"s3://b/k"}}]}]}`:                            false,
			`{"base_url":"https://evil.example"}`:                                                       false,
			`{"tools":[{"type":"web_search"}]}`:                                                         true, // it is listed
			`{"tools":[{"type":"mcp"}]}`:                                                                false,
			`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x.example"}}]}]}`: false,
			`{"messages":[]}`: true,
		} {
			req := provider.Request{Op: llmq.OpChat, Body: []byte(body), HostedTools: []string{"web_search"}}
			do := []func() error{func() error { _, err := h.Call(t.Context(), req); return err }}
			if streams {
				do = append(do, func() error { _, err := s.Stream(t.Context(), req, nil); return err })
			}
			for i, ask := range do {
				before := asked
				err := ask()
				e, refused := errors.AsType[*provider.Error](err)
				if good && (err != nil || asked != before+1) || !good && (!refused || e.Class != provider.CallFatal || !e.Unsent || asked != before) {
					t.Errorf("%s, %d: %s: %v, asked %d times", tt.name, i, body, err, asked-before)
				}
			}
		}
	}
}
