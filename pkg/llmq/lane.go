package llmq

import (
	"fmt"
	"strings"
	"time"
)

// Lane says how urgent a request is. The zero value is no lane; callers that
// name none get [LaneRT].
type Lane string

const (
	// LaneRT is for a caller who waits.
	LaneRT Lane = "rt"
	// LaneBG is for work that should be done soon; its queue is the default one.
	LaneBG Lane = "bg"
	// LaneBulk is for work that may take hours.
	LaneBulk Lane = "bulk"
)

// Lanes lists every lane, the most urgent first.
func Lanes() []Lane { return []Lane{LaneRT, LaneBG, LaneBulk} }

// ParseLane reads a lane's name. An empty name is [LaneRT].
func ParseLane(s string) (Lane, error) {
	switch l := Lane(s); l {
	case "":
		return LaneRT, nil
	case LaneRT, LaneBG, LaneBulk:
		return l, nil
	}
	return "", Errorf(CodeInvalidRequest, "lane %q is unknown; use rt, bg or bulk", Clip(s, 40)).At("lane")
}

// DefaultTimeout is a request's deadline, counted from its arrival, when its
// caller names none (FEATURES A2).
func (l Lane) DefaultTimeout() time.Duration {
	switch l {
	case LaneBG:
		return 300 * time.Second
	case LaneBulk:
		return 900 * time.Second
	default:
		return 90 * time.Second
	}
}

// MaxTimeout is the longest deadline that a caller may ask for (FEATURES A2).
func (l Lane) MaxTimeout() time.Duration {
	switch l {
	case LaneBG:
		return time.Hour
	case LaneBulk:
		return 12 * time.Hour
	default:
		return 300 * time.Second
	}
}

// Wire is the HTTP dialect of a body. Bodies are passed through, never translated
// from one wire to another, so a target is only called on a wire that it declares.
type Wire string

const (
	// WireOpenAI is the OpenAI API's dialect: /v1/chat/completions, /v1/responses, /v1/embeddings.
	WireOpenAI Wire = "openai"
	// WireConverse is Bedrock's Converse dialect: /model/{id}/converse.
	WireConverse Wire = "converse"
	// WireInvoke is Bedrock's InvokeModel, /model/{id}/invoke, whose body is the model's own. No other model
	// understands it, so a call on this wire stays with the model that it names.
	WireInvoke Wire = "invoke"
)

// WireJob is that of jobs (FEATURES A6): no provider speaks it, for functions of one's own serve it.
const WireJob Wire = "job"

// Wires lists the wires that providers speak.
func Wires() []Wire { return []Wire{WireOpenAI, WireConverse, WireInvoke} }

// ParseWire reads a wire's name.
func ParseWire(s string) (Wire, error) {
	for _, w := range Wires() {
		if s == string(w) {
			return w, nil
		}
	}
	return "", fmt.Errorf("wire %q is unknown; use openai, converse or invoke", Clip(s, 40))
}

// Op is what a request asks for. Each op belongs to one wire.
type Op string

const (
	// OpChat is OpenAI's chat completion.
	OpChat Op = "chat"
	// OpResponses is OpenAI's Responses.
	OpResponses Op = "responses"
	// OpEmbeddings is OpenAI's embeddings call.
	OpEmbeddings Op = "embeddings"
	// OpConverse is Bedrock's Converse.
	OpConverse Op = "converse"
	// OpConverseStream is Bedrock's ConverseStream: the same body, and a reply that comes in events.
	OpConverseStream Op = "converse_stream"
	// OpInvoke is Bedrock's InvokeModel.
	OpInvoke Op = "invoke"
	// OpInvokeStream is Bedrock's InvokeModelWithResponseStream: the same body, and a reply that comes in events.
	OpInvokeStream Op = "invoke_stream"
	// OpJob is a job: the body is what its function is given, the model reference names it, as queue@function.
	OpJob Op = "job"
)

// Ops lists every op that this release serves.
func Ops() []Op {
	return []Op{OpChat, OpResponses, OpEmbeddings, OpConverse, OpConverseStream, OpInvoke, OpInvokeStream, OpJob}
}

// Wire is the wire that o belongs to, or "" for an unknown op.
func (o Op) Wire() Wire {
	switch o {
	case OpChat, OpResponses, OpEmbeddings:
		return WireOpenAI
	case OpConverse, OpConverseStream:
		return WireConverse
	case OpInvoke, OpInvokeStream:
		return WireInvoke
	case OpJob:
		return WireJob
	}
	return ""
}

// ParseLane reads the name of a lane that a request of o is to run in. An empty name is [LaneRT]; jobs have one lane,
// [LaneBulk].
func (o Op) ParseLane(s string) (Lane, error) {
	if o != OpJob {
		return ParseLane(s)
	}
	if l := Lane(s); l != "" && l != LaneBulk {
		return "", Errorf(CodeInvalidRequest, "lane %q is none of a job's, which run in bulk; leave it out", Clip(s, 40)).At("lane")
	}
	return LaneBulk, nil
}

// Streaming says how a caller asks for a reply while it comes.
type Streaming int

const (
	// StreamNever is of ops whose reply comes whole.
	StreamNever Streaming = iota
	// StreamByBody is of ops whose body says so, by the member stream.
	StreamByBody
	// StreamAlways is of ops whose reply comes in events.
	StreamAlways
)

// Streaming says how o's reply comes.
func (o Op) Streaming() Streaming {
	switch o {
	case OpChat, OpResponses:
		return StreamByBody
	case OpConverseStream, OpInvokeStream:
		return StreamAlways
	case OpEmbeddings, OpConverse, OpInvoke, OpJob:
	}
	return StreamNever
}

// ParseOp reads an op's name.
func ParseOp(s string) (Op, error) {
	for _, o := range Ops() {
		if s == string(o) {
			return o, nil
		}
	}
	return "", Errorf(CodeBadEnvelope, "op %q is unknown; use %s", Clip(s, 40), opNames()).At("op")
}

// opNames lists the ops for people.
func opNames() string {
	names := make([]string, len(Ops()))
	for i, o := range Ops() {
		names[i] = string(o)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
