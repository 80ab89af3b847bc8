package front

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// bufferedReply is what a function of a buffering integration returns.
type bufferedReply struct {
	StatusCode        json.RawMessage            `json:"statusCode"` // a number, or a string that holds one
	Headers           map[string]json.RawMessage `json:"headers"`    // strings, numbers, booleans
	MultiValueHeaders map[string][]string        `json:"multiValueHeaders"`
	Body              *string                    `json:"body"`
	IsBase64Encoded   bool                       `json:"isBase64Encoded"`
}

// buffered runs the function and answers with its reply.
func (f *Front) buffered(w http.ResponseWriter, r *http.Request, id string, event []byte, functions invoker) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), f.opts.Timeout) // as in stream
	defer cancel()
	result, err := functions.Invoke(ctx, f.opts.Function, event, lambda.InvokeOptions{})
	if err != nil {
		f.fail(w, id, classify(err), err)
		return
	}
	if result.FunctionError != "" {
		f.fail(w, id, functionFailed, fmt.Errorf("function failed: %s", result.ErrorType))
		return
	}
	status, reply, body, err := parseReply(result.Payload)
	if err != nil {
		f.fail(w, id, badReply, err)
		return
	}
	single := make(map[string]string, len(reply.Headers))
	for name, raw := range reply.Headers {
		single[name] = headerText(raw)
	}
	writeHeaders(w.Header(), single, reply.MultiValueHeaders, nil)
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json") // API Gateway's default
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has left needs no answer
}

func parseReply(payload []byte) (status int, reply bufferedReply, body []byte, err error) {
	if err := json.Unmarshal(payload, &reply); err != nil {
		return 0, reply, nil, errors.New("reply is not the JSON object it should be") // the decoder's error would quote it
	}
	status, err = strconv.Atoi(string(bytes.Trim(reply.StatusCode, `"`)))
	if err != nil || status < 200 || status > 599 {
		return 0, reply, nil, errors.New("reply has no status code")
	}
	for name, raw := range reply.Headers {
		if len(raw) > 0 && (raw[0] == '{' || raw[0] == '[') {
			return 0, reply, nil, fmt.Errorf("header %s is not a string", name)
		}
	}
	if reply.Body == nil {
		return status, reply, nil, nil
	}
	if !reply.IsBase64Encoded {
		return status, reply, []byte(*reply.Body), nil
	}
	body, err = base64.StdEncoding.DecodeString(*reply.Body)
	if err != nil {
		return 0, reply, nil, errors.New("body is not base64")
	}
	return status, reply, body, nil
}

// headerText returns a string's text, and a number or boolean as it is written.
func headerText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
