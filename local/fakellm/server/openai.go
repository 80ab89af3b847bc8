package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llm-queue/llmq/local/fakellm/quota"
)

// openAIWire speaks OpenAI's API as of version 2020-10-01, the only one there is.
type openAIWire struct {
	keys   keyring
	models []string // empty: every id exists
}

func (openAIWire) name() string { return "openai" }

func (openAIWire) charge() quota.Charge { return quota.Estimate }

func (o openAIWire) authenticate(r *http.Request) (identity, *fault) {
	token, found := bearer(r)
	if !found {
		return identity{}, &fault{
			status: http.StatusUnauthorized,
			kind:   kindInvalidRequest,
			code:   noCode,
			message: "You didn't provide an API key. You need to provide your API key in an Authorization header " +
				"using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
		}
	}
	if !o.keys.has(token) {
		return identity{}, &fault{code: "invalid_api_key"}
	}
	return identity{keyHash: KeyHash(token)}, nil
}

func (o openAIWire) parse(r *http.Request, body []byte) (ask, *fault) {
	routes := map[string]struct {
		method string
		parse  func([]byte) (ask, *fault)
	}{
		"/v1/chat/completions": {http.MethodPost, o.parseChat},
		"/v1/responses":        {http.MethodPost, o.parseResponses},
		"/v1/embeddings":       {http.MethodPost, o.parseEmbeddings},
		"/v1/models":           {http.MethodGet, o.parseModels},
	}
	path := r.URL.EscapedPath()
	route, found := routes[path]
	if id, isModel := strings.CutPrefix(path, "/v1/models/"); isModel && id != "" {
		route.method, found = http.MethodGet, true
		route.parse = func([]byte) (ask, *fault) { return o.parseOneModel(id) }
	}
	if !found {
		return ask{}, &fault{
			status:  http.StatusNotFound,
			kind:    kindInvalidRequest,
			code:    noCode,
			message: fmt.Sprintf("Invalid URL (%s %s)", r.Method, path),
		}
	}
	if r.Method != route.method {
		return ask{}, &fault{
			status:  http.StatusMethodNotAllowed,
			kind:    kindInvalidRequest,
			code:    "method_not_supported",
			message: fmt.Sprintf("Not allowed to %s on %s. (HINT: Perhaps you meant to use a different HTTP method?)", r.Method, path),
		}
	}
	return route.parse(body)
}

// decode reads a body into v, which has only fields that can't mismatch: raw ones. Like the
// provider, and unlike encoding/json, it wants names in their exact case and each only once.
func decode(body []byte, v any) *fault {
	if err := json.Unmarshal(body, v); err != nil {
		return &fault{
			status: http.StatusBadRequest,
			kind:   kindInvalidRequest,
			code:   noCode,
			message: "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library " +
				"correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)",
		}
	}
	return nil
}

// parseModel reads the field "model", and refuses a model that does not exist.
func (o openAIWire) parseModel(raw jsontext.Value) (string, *fault) {
	if absent(raw) {
		return "", &fault{status: http.StatusBadRequest, kind: kindInvalidRequest, code: noCode, message: "you must provide a model parameter"}
	}
	var model string
	if json.Unmarshal(raw, &model) != nil {
		return "", wrongType("model", "a string", raw)
	}
	if model == "" {
		return "", &fault{status: http.StatusBadRequest, kind: kindInvalidRequest, code: noCode, message: "you must provide a model parameter"}
	}
	if len(o.models) > 0 && !slices.Contains(o.models, model) {
		return model, &fault{code: "model_not_found", model: model}
	}
	return model, nil
}

// absent says whether a field is not there, or null.
func absent(raw jsontext.Value) bool { return len(raw) == 0 || string(raw) == "null" }

// parseInt reads an optional number of at least 1. Absent is 0.
func parseInt(param string, raw jsontext.Value) (int, *fault) {
	if absent(raw) {
		return 0, nil
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0, wrongType(param, "an integer", raw)
	}
	if n < 1 {
		return 0, invalid(param, "integer_below_min_value",
			fmt.Sprintf("Invalid '%s': integer below minimum value. Expected a value >= 1, but got %d instead.", param, n))
	}
	return n, nil
}

func missing(param string) *fault {
	return invalid(param, "missing_required_parameter", fmt.Sprintf("Missing required parameter: '%s'.", param))
}

func wrongType(param, want string, raw jsontext.Value) *fault {
	return invalid(param, "invalid_type",
		fmt.Sprintf("Invalid type for '%s': expected %s, but got %s instead.", param, want, describe(raw)))
}

func invalid(param, code, message string) *fault {
	return &fault{status: http.StatusBadRequest, kind: kindInvalidRequest, code: code, param: param, message: message}
}

// describe names the type of a JSON value with its article, as OpenAI's messages do.
func describe(raw jsontext.Value) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// openAIReply makes a response with the headers that every one of OpenAI's has.
func openAIReply(status int, id string, took time.Duration, body any) reply {
	re := jsonReply(status, body)
	tellOpenAI(re.header, id, took)
	return re
}

func tellOpenAI(h http.Header, id string, took time.Duration) {
	h.Set("X-Request-Id", "req_"+id)
	h.Set("Openai-Version", "2020-10-01")
	h.Set("Openai-Processing-Ms", itoa(int(took.Milliseconds())))
}

// openAIStream is a reply of server-sent events.
func openAIStream(id string, took time.Duration, events []event, broken func(fault) []byte) reply {
	h := http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}, "Cache-Control": {"no-cache"}}
	tellOpenAI(h, id, took)
	return reply{status: http.StatusOK, header: h, events: events, broken: broken}
}

// jsonReply panics if body can't be encoded, which none of ours is.
func jsonReply(status int, body any) reply {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("fakellm: encode %T: %v", body, err))
	}
	return reply{status: status, header: http.Header{"Content-Type": {"application/json"}}, body: encoded}
}

func parseBool(param string, raw jsontext.Value) (bool, *fault) {
	if absent(raw) {
		return false, nil
	}
	var v bool
	if json.Unmarshal(raw, &v) != nil {
		return false, wrongType(param, "a boolean", raw)
	}
	return v, nil
}
