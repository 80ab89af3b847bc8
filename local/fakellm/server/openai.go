package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	operationChat       = "chat"
	operationEmbeddings = "embeddings"
	operationModels     = "models"
)

// openAIWire speaks OpenAI's API as of version 2020-10-01, the only one there is.
type openAIWire struct {
	keys   keyring
	models []string // empty: every id exists
}

func (openAIWire) name() string { return "openai" }

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
		"/v1/embeddings":       {http.MethodPost, o.parseEmbeddings},
		"/v1/models":           {http.MethodGet, o.parseModels},
	}
	route, found := routes[r.URL.EscapedPath()]
	if !found {
		return ask{}, &fault{
			status:  http.StatusNotFound,
			kind:    kindInvalidRequest,
			code:    noCode,
			message: fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.EscapedPath()),
		}
	}
	if r.Method != route.method {
		return ask{}, &fault{
			status:  http.StatusMethodNotAllowed,
			kind:    kindInvalidRequest,
			code:    "method_not_supported",
			message: fmt.Sprintf("Not allowed to %s on %s. (HINT: Perhaps you meant to use a different HTTP method?)", r.Method, r.URL.EscapedPath()),
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

// parseModels answers the list of models; each of them was made when time began.
func (o openAIWire) parseModels([]byte) (ask, *fault) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	list := make([]model, 0, len(o.models))
	for _, id := range o.models {
		list = append(list, model{ID: id, Object: "model", Created: 1_700_000_000, OwnedBy: "fakellm"})
	}
	return ask{operation: operationModels, answer: func(id string, took time.Duration) reply {
		return openAIReply(http.StatusOK, id, took, struct {
			Object string  `json:"object"`
			Data   []model `json:"data"`
		}{"list", list})
	}}, nil
}

// openAIReply makes a response with the headers that every one of OpenAI's has.
func openAIReply(status int, id string, took time.Duration, body any) reply {
	re := jsonReply(status, body)
	re.header.Set("X-Request-Id", "req_"+id)
	re.header.Set("Openai-Version", "2020-10-01")
	re.header.Set("Openai-Processing-Ms", strconv.FormatInt(took.Milliseconds(), 10))
	return re
}

// jsonReply panics if body can't be encoded, which none of ours is.
func jsonReply(status int, body any) reply {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("fakellm: encode %T: %v", body, err))
	}
	return reply{status: status, header: http.Header{"Content-Type": {"application/json"}}, body: encoded}
}
