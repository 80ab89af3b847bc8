package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// wireError is what a refusal says of itself. Fields that it lacks are "".
type wireError struct {
	code, typ, message string
	delay              string // the wait that Google's RetryInfo asks for
}

// kind is the error's name: its code, else its type. A code that repeats the HTTP status as a
// number (vLLM, OpenRouter) is no name, and parse leaves it out.
func (w wireError) kind(secret string) string {
	name := w.code
	if name == "" {
		name = w.typ
	}
	return provider.CleanToken(provider.CleanMessage(name, secret), 64)
}

// relayed is what OpenRouter says of an error that is not its own; what the provider behind it said is in metadata.raw.
const relayed = "Provider returned error"

// parse reads the forms that servers of this API have for an error:
//
//	{"error":{"message":"...","type":"...","code":"..."}}   OpenAI; Anthropic without code; OpenRouter with a number
//	{"error":"..."}                                         Ollama's own routes
//	{"object":"error","message":"...","type":"..."}         vLLM before 0.10
//	{"detail":"..."}, {"detail":[{"msg":"..."}]}            FastAPI: vLLM, SGLang, proxies
//	[{"error":{"message":"...","status":"..."}}]            Gemini
//
// Anything else, a page of HTML for instance, says nothing.
func parse(body []byte) wireError {
	body = bytes.TrimSpace(body)
	if list := []json.RawMessage(nil); json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var top struct {
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &top) != nil {
		return wireError{}
	}
	switch {
	case text(top.Error) != "":
		return wireError{message: text(top.Error)}
	case len(top.Error) > 0 && top.Error[0] == '{':
		return fields(top.Error)
	case text(top.Detail) != "":
		return wireError{message: text(top.Detail)}
	case len(top.Detail) > 0 && top.Detail[0] == '[':
		var details []struct {
			Msg json.RawMessage `json:"msg"`
		}
		if json.Unmarshal(top.Detail, &details) == nil && len(details) > 0 {
			return wireError{message: text(details[0].Msg)}
		}
	}
	return fields(body)
}

func fields(object json.RawMessage) wireError {
	var f struct {
		Code    json.RawMessage `json:"code"`
		Type    json.RawMessage `json:"type"`
		Status  json.RawMessage `json:"status"`
		Message json.RawMessage `json:"message"`
	}
	if json.Unmarshal(object, &f) != nil {
		return wireError{}
	}
	w := wireError{code: text(f.Code), typ: text(f.Type), message: text(f.Message)}
	if strings.Trim(w.code, "0123456789") == "" { // Azure writes the status as a text
		w.code = ""
	}
	gjson.GetBytes(object, "details").ForEach(func(_, d gjson.Result) bool {
		if strings.HasSuffix(d.Get("@type").Str, "google.rpc.RetryInfo") {
			w.delay = d.Get("retryDelay").Str
		}
		return w.delay == ""
	})
	if raw := gjson.GetBytes(object, "metadata.raw").Str; raw != "" && w.message == relayed {
		if inner := parse([]byte(raw)).message; inner != "" {
			raw = inner
		}
		w.message = raw
	}
	if w.typ == "" {
		w.typ = text(f.Status)
	}
	return w
}

// text is the JSON string in v, or "" where v is something else: a field of a wrong type must not
// cost us the others.
func text(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}
