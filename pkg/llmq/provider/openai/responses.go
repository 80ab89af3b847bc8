package openai

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// responsesTalk is the stream of a response: typed events, of which one of three is the last. All of them are passed on with
// their names, since they are numbered.
type responsesTalk struct {
	emit provider.Emit

	usage *provider.Usage
	begun bool
	frame []byte
}

func (r *responsesTalk) used() *provider.Usage { return r.usage }

// finished is never so: the event that ends a reply ends the reading.
func (r *responsesTalk) finished() bool { return false }

// take ends at the event that tells how the response has ended. One that failed before it said anything may be had from
// elsewhere; after that, how it ended is what the caller must know, in the provider's own words.
func (r *responsesTalk) take(e sseEvent) step {
	if string(e.data) == doneMark { // the mark of chats, from a server that ends all its streams so
		return misleads
	}
	if !egress.Sound(e.data) {
		return garbles
	}
	top := gjson.ParseBytes(e.data)
	kind := top.Get("type").Str
	last := false
	switch {
	case e.name == "error" || kind == "error" || tellsOf(top.Get("error")):
		return fails
	case kind == "response.failed" && !r.begun:
		return fails
	case kind == "response.completed" || kind == "response.incomplete" || kind == "response.failed":
		last = true
		r.usage = usageOf([]byte(top.Get("response").Raw))
	case !strings.HasPrefix(kind, "response.") && kind != "keepalive": // keepalive is numbered too
		return goesOn
	}
	says := last || saysSomething(kind)
	r.frame = appendSSE(r.frame[:0], e.name, e.data)
	r.emit(r.frame, says)
	switch {
	case last:
		return ends
	case says:
		r.begun = true
		return begins
	}
	return goesOn
}

// saysSomething reports whether an event tells more than that a response, or a part of it, begins.
func saysSomething(kind string) bool {
	switch kind {
	case "keepalive", "response.created", "response.queued", "response.in_progress":
		return false
	}
	return !strings.HasSuffix(kind, ".added")
}
