package server

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// titanDimensions are those of amazon.titan-embed-text-v2, whose default is the first.
func titanDimensions() []int { return []int{1024, 512, 256} }

// parseTitan reads a request for one embedding. The first version of the model takes only the
// text, and the second the rest too.
func parseTitan(a *ask, body []byte) *fault {
	var in struct {
		InputText      *string  `json:"inputText"`
		Dimensions     *int     `json:"dimensions"`
		Normalize      *bool    `json:"normalize"`
		EmbeddingTypes []string `json:"embeddingTypes"`
	}
	if err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true)); err != nil {
		return malformed("body", "extraneous key or wrong type")
	}
	if in.InputText == nil || *in.InputText == "" {
		return malformed("/inputText", "expected minLength: 1, actual: 0")
	}
	if a.stream {
		return validation("The model is unsupported for streaming.")
	}
	dimensions := titanDimensions()[0]
	if in.Dimensions != nil {
		if dimensions = *in.Dimensions; !slices.Contains(titanDimensions(), dimensions) {
			return malformed("/dimensions", fmt.Sprintf("%d is not a valid enum value", dimensions))
		}
	}
	for i, t := range in.EmbeddingTypes {
		if t != "float" && t != "binary" {
			return malformed(fmt.Sprintf("/embeddingTypes/%d", i), fmt.Sprintf("%s is not a valid enum value", t))
		}
	}
	a.silent, a.input = true, Tokens(*in.InputText)
	model, text, types := a.model, *in.InputText, in.EmbeddingTypes
	a.render = func(c completion, id string, took time.Duration) reply {
		return renderTitan(vector(model, []byte("text:"+text), dimensions), types, c, id, took)
	}
	return nil
}

func renderTitan(v []float32, types []string, c completion, id string, took time.Duration) reply {
	body := struct {
		Embedding           []float32      `json:"embedding,omitzero"`
		EmbeddingsByType    map[string]any `json:"embeddingsByType"`
		InputTextTokenCount int            `json:"inputTextTokenCount"`
	}{EmbeddingsByType: map[string]any{}, InputTextTokenCount: c.input}
	if len(types) == 0 {
		types = []string{"float"}
	}
	if slices.Contains(types, "float") {
		body.Embedding = v
		body.EmbeddingsByType["float"] = v
	}
	if slices.Contains(types, "binary") {
		bits := make([]int, len(v))
		for i, x := range v {
			if x > 0 {
				bits[i] = 1
			}
		}
		body.EmbeddingsByType["binary"] = bits
	}
	re := bedrockReply(http.StatusOK, id, body)
	tellInvocation(re.header, c, took)
	return re
}

// parseCountTokens reads CountTokens, which is free and runs no model. Its input is the body of
// one of the other operations.
func parseCountTokens(a *ask, body []byte) *fault {
	var in struct {
		Input struct {
			Converse    *jsontext.Value `json:"converse"`
			InvokeModel *struct {
				Body []byte `json:"body"`
			} `json:"invokeModel"`
		} `json:"input"`
	}
	if json.Unmarshal(body, &in) != nil {
		return &fault{code: "SerializationException"}
	}
	counted := ask{model: a.model}
	var f *fault
	switch {
	case in.Input.Converse != nil && in.Input.InvokeModel == nil:
		f = parseConverse(&counted, *in.Input.Converse)
	case in.Input.Converse == nil && in.Input.InvokeModel != nil:
		f = parseInvoke(&counted, in.Input.InvokeModel.Body)
	default:
		f = validation("The input must set one of the following keys: invokeModel, converse.")
	}
	a.operation = operationCountTokens
	if f != nil {
		return f
	}
	a.instant, a.input = true, counted.input
	a.render = func(c completion, id string, _ time.Duration) reply {
		return bedrockReply(http.StatusOK, id, struct {
			InputTokens int `json:"inputTokens"`
		}{c.input})
	}
	return nil
}
