package lambda

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/local/cloud/internal/ids"
	"github.com/llm-queue/llmq/local/cloud/internal/localonly"
)

// maxRequest is how much of a request body is read before the connection is given up: enough to answer one over MaxPayload.
const maxRequest = 2 * MaxPayload

// API returns Lambda's HTTP API as far as callers of functions need it, for the AWS SDKs and aws-cli with this host as
// their endpoint: Invoke in its three types, InvokeWithResponseStream, GetFunctionConfiguration, and put, get and delete of
// reserved concurrency. Signatures are not checked, so it is for loopback only: it refuses requests under another name than
// a loopback one, and those of web pages.
func (h *Host) API() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /2015-03-31/functions/{name}/invocations", h.serveInvoke)
	mux.HandleFunc("POST /2021-11-15/functions/{name}/response-streaming-invocations", h.serveStream)
	mux.HandleFunc("GET /2015-03-31/functions/{name}/configuration", h.serveConfiguration)
	mux.HandleFunc("GET /2019-09-30/functions/{name}/concurrency", h.serveGetConcurrency)
	mux.HandleFunc("PUT /2017-10-31/functions/{name}/concurrency", h.servePutConcurrency)
	mux.HandleFunc("DELETE /2017-10-31/functions/{name}/concurrency", h.serveDeleteConcurrency)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeFault(w, http.StatusNotFound, "UnknownOperationException", fault{Message: "unknown operation"})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !localonly.Allows(r) {
			writeFault(w, http.StatusForbidden, "AccessDeniedException", fault{Message: "only local programs may call this"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// request is what the three kinds of invocation read alike.
type request struct {
	function string
	payload  []byte
	opts     InvokeOptions
}

// readRequest reads an invocation, or answers why it can't.
func (h *Host) readRequest(w http.ResponseWriter, r *http.Request) (request, bool) {
	name, err := h.named(r)
	if err != nil {
		writeError(w, err)
		return request{}, false
	}
	payload, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) {
		return request{}, false // the caller has gone
	}
	opts := InvokeOptions{TraceHeader: r.Header.Get("X-Amzn-Trace-Id"), LogTail: r.Header.Get("X-Amz-Log-Type") == "Tail"}
	if encoded := r.Header.Get("X-Amz-Client-Context"); encoded != "" {
		opts.ClientContext, err = base64.StdEncoding.DecodeString(encoded)
		if err != nil || !json.Valid(opts.ClientContext) {
			writeError(w, &Error{Code: CodeInvalidContent, Function: name, Reason: "Client context must be a valid Base64-encoded JSON object."})
			return request{}, false
		}
	}
	return request{name, payload, opts}, true
}

// named returns the name of the function that a request is for: a name, an ARN or part of one, with or without a version.
func (h *Host) named(r *http.Request) (string, error) {
	id := r.PathValue("name")
	missing := &Error{Code: CodeNotFound, Function: id, Reason: "Function not found: " + id}
	name, qualifier := id, r.URL.Query().Get("Qualifier")
	if before, after, ok := strings.Cut(id, "function:"); ok {
		prefix := "arn:aws:lambda:" + h.opts.Region + ":" + h.opts.AccountID + ":"
		if before != prefix && before != h.opts.AccountID+":" {
			return "", missing
		}
		name = after
	}
	if before, after, ok := strings.Cut(name, ":"); ok {
		name, qualifier = before, after
	}
	if qualifier != "" && qualifier != version {
		return "", missing // there are no other versions, and no aliases
	}
	return name, nil
}

func (h *Host) serveInvoke(w http.ResponseWriter, r *http.Request) {
	req, ok := h.readRequest(w, r)
	if !ok {
		return
	}
	w.Header().Set("X-Amz-Executed-Version", version)
	switch kind := r.Header.Get("X-Amz-Invocation-Type"); kind {
	case "", "RequestResponse":
		result, err := h.Invoke(r.Context(), req.function, req.payload, req.opts)
		if err != nil {
			answerError(w, r, err)
			return
		}
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("X-Amzn-Requestid", result.RequestID)
		if result.FunctionError != "" {
			header.Set("X-Amz-Function-Error", result.FunctionError)
		}
		if req.opts.LogTail {
			header.Set("X-Amz-Log-Result", base64.StdEncoding.EncodeToString(result.LogTail))
		}
		_, _ = w.Write(result.Payload) // the function has run, whether or not its caller is still there
	case "Event":
		id, err := h.InvokeAsync(req.function, req.payload, req.opts)
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("X-Amzn-Requestid", id)
		w.WriteHeader(http.StatusAccepted)
	case "DryRun":
		h.serveDryRun(w, req)
	default:
		writeError(w, &Error{Code: CodeInvalidConfig, Function: req.function, Reason: "Unknown invocation type: " + kind})
	}
}

func (h *Host) serveDryRun(w http.ResponseWriter, req request) {
	if _, _, err := h.accept(req.function, req.payload); err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("X-Amzn-Requestid", ids.UUID())
	w.WriteHeader(http.StatusNoContent)
}

func (h *Host) serveConfiguration(w http.ResponseWriter, r *http.Request) {
	name, err := h.named(r)
	if err != nil {
		writeError(w, err)
		return
	}
	f, err := h.function(name)
	if err != nil {
		writeError(w, err)
		return
	}
	architecture := runtime.GOARCH
	if architecture == "amd64" {
		architecture = "x86_64"
	}
	// The environment is left out: it holds keys, and this API asks for none.
	writeJSON(w, http.StatusOK, map[string]any{
		"FunctionName": name, "FunctionArn": h.arn(name), "Runtime": "provided.al2023", "Handler": f.cfg.Handler,
		"Timeout": int(f.cfg.Timeout / time.Second), "MemorySize": f.cfg.MemoryMB, "Version": version, "PackageType": "Zip",
		"State": "Active", "LastUpdateStatus": "Successful", "Architectures": []string{architecture},
	})
}

func (h *Host) serveGetConcurrency(w http.ResponseWriter, r *http.Request) {
	name, err := h.named(r)
	if err != nil {
		writeError(w, err)
		return
	}
	n, reserved, err := h.Reserved(name)
	switch {
	case err != nil:
		writeError(w, err)
	case reserved:
		writeJSON(w, http.StatusOK, map[string]int{"ReservedConcurrentExecutions": n})
	default:
		writeJSON(w, http.StatusOK, map[string]int{})
	}
}

func (h *Host) servePutConcurrency(w http.ResponseWriter, r *http.Request) {
	name, err := h.named(r)
	if err != nil {
		writeError(w, err)
		return
	}
	var in struct {
		ReservedConcurrentExecutions *int
	}
	err = json.NewDecoder(http.MaxBytesReader(w, r.Body, maxErrorBody)).Decode(&in)
	if err != nil || in.ReservedConcurrentExecutions == nil || *in.ReservedConcurrentExecutions < 0 {
		writeError(w, &Error{Code: CodeInvalidConfig, Function: name, Reason: "ReservedConcurrentExecutions must be a number of 0 or more"})
		return
	}
	if err := h.SetReserved(name, *in.ReservedConcurrentExecutions); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]int{"ReservedConcurrentExecutions": *in.ReservedConcurrentExecutions})
}

func (h *Host) serveDeleteConcurrency(w http.ResponseWriter, r *http.Request) {
	name, err := h.named(r)
	if err == nil {
		err = h.ClearReserved(name)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// fault is the body of an error. Some of Lambda's errors spell the field Message, some message.
type fault struct {
	Type     string `json:"Type,omitempty"`
	Reason   string `json:"Reason,omitempty"`
	Message  string `json:"Message,omitempty"`
	LMessage string `json:"message,omitempty"`
}

// answerError is writeError, unless the caller has gone.
func answerError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil || !errors.Is(err, context.Cause(r.Context())) {
		writeError(w, err)
	}
}

func writeError(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: CodeClosed, Reason: "Service failed"}
	}
	f := fault{Type: "User", LMessage: e.Reason}
	status := http.StatusBadRequest
	switch e.Code {
	case CodeThrottled:
		status, f.Reason = http.StatusTooManyRequests, e.Throttle
	case CodeNotFound:
		status, f.Message, f.LMessage = http.StatusNotFound, e.Reason, ""
	case CodeConflict:
		status = http.StatusConflict
	case CodeTooLarge:
		status = http.StatusRequestEntityTooLarge
	case CodeClosed:
		status, f = http.StatusInternalServerError, fault{Type: "Service", Message: e.Reason}
	case CodeInvalidContent, CodeInvalidConfig:
	}
	writeFault(w, status, string(e.Code), f)
}

func writeFault(w http.ResponseWriter, status int, code string, f fault) {
	w.Header().Del("X-Amz-Executed-Version")
	w.Header().Set("X-Amzn-Errortype", code)
	writeJSON(w, status, f)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Amzn-Requestid", ids.UUID())
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that has gone needs no answer
}
