package server

import (
	"net/http"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

// wire is one provider's protocol. It has no state.
type wire interface {
	name() string
	// authenticate finds who is calling. A nil fault lets the call in.
	authenticate(r *http.Request) (identity, *fault)
	// parse reads a call of the route that r asks for.
	parse(r *http.Request, body []byte) (ask, *fault)
	// fault writes an error as the provider does. Where f leaves a field empty, the provider's
	// own choice for its status or code is filled in.
	fault(f fault, id string) reply
	// throttle says in the provider's words what a quota refuses. Cause is empty for chance.
	throttle(a ask, r quota.Refusal) fault
	// tooLong says that the input and the answer don't fit into a model's context.
	tooLong(a ask, context int) fault
	// charge is how the provider counts tokens if a rule doesn't say.
	charge() quota.Charge
	// tellQuotas sets the headers that tell what is left; a Left without a limit is not told.
	tellQuotas(h http.Header, requests, tokens quota.Left)
	// tellWait sets the headers that the provider has for a wait if a rule doesn't say.
	tellWait(h http.Header, wait time.Duration)
}

// identity is who calls, as the log and the counters know it.
type identity struct {
	keyHash string // of the bearer token or the access key id
	region  string // of the SigV4 credential scope or the host's name; empty if neither has one
}

// Operations, as the log names them.
const (
	operationChat        = "chat"
	operationEmbeddings  = "embeddings"
	operationModels      = "models"
	operationResponses   = "responses"
	operationConverse    = "converse"
	operationInvoke      = "invoke"
	operationCountTokens = "count_tokens"
)

// ask is a call that was understood.
type ask struct {
	operation string
	model     string // empty for a list of models
	stream    bool
	// instant calls run no model: nothing is programmed, slow, limited or in flight.
	instant bool
	// silent calls have no text for an answer: embeddings.
	silent    bool
	lastUser  string // the text to echo
	input     int    // tokens
	maxTokens int    // of the answer; 0 if the call doesn't say
	choices   int    // answers to make; 0 is one
	// render gives the answer its shape. took is how long the call has waited so far.
	render func(c completion, id string, took time.Duration) reply
}

// fault is an error before it has a wire's shape.
type fault struct {
	status  int    // 0: the wire's status for code
	code    string // OpenAI's "code", or the name of Bedrock's exception
	kind    string // OpenAI's "type"
	param   string // OpenAI's "param"
	message string
	model   string // for messages that name it
}

// reply is a whole response.
type reply struct {
	status int
	header http.Header
	body   []byte
	// events make a stream, written and flushed one by one; body is empty then.
	events []event
	// broken is an error as it comes within the stream.
	broken func(f fault) []byte
}

// event is one piece of a stream.
type event struct {
	data []byte
	// late makes the data when it is due, for what tells of the time that passed.
	late func(took time.Duration) []byte
	// tokens of the answer that come with it, and so the time that comes before it.
	tokens int
	// end marks what tells a client that the stream is whole.
	end bool
}

func (e event) bytes(took time.Duration) []byte {
	if e.late != nil {
		return e.late(took)
	}
	return e.data
}

func write(w http.ResponseWriter, re reply) {
	header := w.Header()
	for name, values := range re.header {
		header[name] = values
	}
	w.WriteHeader(re.status)
	_, _ = w.Write(re.body) // a client that left needs no answer
}
