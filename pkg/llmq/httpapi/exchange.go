package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/tracing"
)

// exchange is one request and its answer. Nothing of it outlives ServeHTTP.
type exchange struct {
	w       http.ResponseWriter
	r       *http.Request
	path    string // as it came, percent-encoded
	matched matched
	caller  auth.Caller
	id      string    // the request's id: the caller's once it is read, ours before
	lane    llmq.Lane // "" until it is read
	start   time.Time

	answered bool // the status is out
	gone     bool // the caller takes no more of a stream
	status   int
	err      *llmq.Error // how it failed; nil after a success
	span     tracing.Span
}

// health says that the door is there, to whoever asks.
func (h *Handler) health(x *exchange, _ auth.Caller) error {
	x.answer(http.StatusOK, "application/json", []byte(`{"status":"ok"}`))
	return nil
}

type modelJSON struct {
	ID      string      `json:"id"`
	Object  string      `json:"object"`
	Created int64       `json:"created"`
	OwnedBy string      `json:"owned_by"`
	Wires   []llmq.Wire `json:"wires"` // ours: the dialects that the model can be called in
}

// models lists what the caller's key may use of the configured models, in OpenAI's shape.
func (h *Handler) models(x *exchange, c auth.Caller) error {
	if err := c.May(x.matched.access.scope()); err != nil {
		return err
	}
	list := struct {
		Object string      `json:"object"`
		Data   []modelJSON `json:"data"`
	}{Object: "list", Data: []modelJSON{}}
	for _, m := range h.catalogue.Models() {
		m.Targets = slices.DeleteFunc(slices.Clone(m.Targets), func(t llmq.Target) bool { return !c.Models().Has(t) })
		if len(m.Targets) == 0 || m.Jobs() { // no SDK calls a job
			continue
		}
		list.Data = append(list.Data, modelJSON{ID: m.Alias, Object: "model", Created: h.since.Unix(), OwnedBy: "llmq", Wires: m.Wires()})
	}
	body, err := encode(list)
	if err != nil {
		return fmt.Errorf("list the models: %w", err)
	}
	x.answer(http.StatusOK, "application/json", body)
	return nil
}

// complete runs one call: read, resolve, hand over, wait, answer.
func (h *Handler) complete(x *exchange, c auth.Caller) error {
	req, err := h.read(x, c)
	if err != nil {
		return err
	}
	if req.Stream {
		return h.stream(x, req)
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), h.cfg.Wait)
	defer cancel()
	reply, err := h.calls.Do(ctx, req)
	switch {
	case err != nil:
		return x.explain(ctx, err, h.cfg.Wait)
	case reply == nil:
		return llmq.Errorf(llmq.CodeInternal, "the call ended without a reply").Because(errors.New("Calls.Do returned neither a reply nor an error"))
	case reply.Status < 200 || reply.Status > 299:
		return llmq.Errorf(llmq.CodeInternal, "the call ended without a reply").Because(fmt.Errorf("Calls.Do returned a reply of status %d", reply.Status))
	}
	x.setMeta(reply.Meta)
	contentType := reply.ContentType
	if contentType == "" {
		contentType = "application/json"
	}
	x.answer(reply.Status, contentType, reply.Body)
	return nil
}

// explain makes an error of Do one for the caller: who waited in vain is told how to
// go on, since the call itself goes on too.
func (x *exchange) explain(ctx context.Context, err error, wait time.Duration) error {
	if _, ours := errors.AsType[*llmq.Error](err); !ours && ctx.Err() != nil {
		err = llmq.Errorf(llmq.CodeTimeout, "no reply came in the %s that the door waits", wait).Because(err)
	}
	e := *llmq.AsError(err)                             // a copy: the error may be shared by all who wait for the id
	if e.Code == llmq.CodeTimeout && ctx.Err() != nil { // else it is the call's own end, which a repeat would get again
		e.Message = strings.TrimSuffix(e.Message, ".") + fmt.Sprintf("; to take up request %s, send it again with the same %s: %s", x.id, hdrIdempotency, x.id)
	}
	return &e
}

// answer writes the whole answer. It may be called once.
func (x *exchange) answer(status int, contentType string, body []byte) {
	x.answered, x.status = true, status
	x.set(hdrRequestID, x.id)
	x.set("X-Request-Id", x.id) // what OpenAI's SDKs show as the request's id
	x.set("Content-Type", contentType)
	x.set("Content-Length", strconv.Itoa(len(body)))
	x.set("Cache-Control", "no-store")
	x.w.WriteHeader(status)
	// A caller that has gone away is no fault of ours, and nobody is left to be told.
	_, _ = x.w.Write(body)
}

// fail answers with an error, unless an answer is under way already.
func (x *exchange) fail(e *llmq.Error) {
	x.err = e
	if x.answered {
		return
	}
	if x.matched.allow != "" && e.Code == llmq.CodeMethodNotAllowed {
		x.set("Allow", x.matched.allow)
	}
	x.setMeta(e.Meta)
	status, contentType, body := describe(x.w.Header(), x.path, e)
	x.answer(status, contentType, body)
}

// setMeta tells how the call was served, on success and error alike. Before a call
// is handed over there is nothing to tell but its lane.
func (x *exchange) setMeta(m llmq.Meta) {
	lane := m.Lane
	if lane == "" {
		lane = x.lane
	}
	for _, h := range []struct{ name, value string }{
		{"X-LLMQ-Lane", string(lane)},
		{"X-LLMQ-Model", m.Model},
		{"X-LLMQ-Target", m.Target},
		{"X-LLMQ-Provider", m.Provider},
		{"X-LLMQ-Model-Id", m.ModelID},
		{"X-LLMQ-Worker", m.Worker},
	} {
		if h.value != "" {
			x.set(h.name, h.value)
		}
	}
	x.setEta(m.Eta)
	if m == (llmq.Meta{Eta: m.Eta}) {
		return
	}
	if m.Direct {
		x.set("X-LLMQ-Direct", "true")
	}
	x.set("X-LLMQ-Fallback-Used", strconv.FormatBool(m.Fallback))
	x.set("X-LLMQ-Attempts", strconv.Itoa(m.Attempts))
	x.set("X-LLMQ-Queue-Wait-Ms", strconv.FormatInt(m.QueueWait.Milliseconds(), 10))
	x.set("X-LLMQ-Provider-Ms", strconv.FormatInt(m.Provided.Milliseconds(), 10))
}

// setEta tells how long a queued call was expected to wait for its start, in whole seconds from its sending.
func (x *exchange) setEta(eta *time.Duration) {
	if eta != nil {
		x.set("X-LLMQ-Eta", strconv.FormatInt(int64((*eta+time.Second-1)/time.Second), 10))
	}
}

func (x *exchange) set(name, value string) { setHeader(x.w.Header(), name, value) }

// setHeader keeps control characters out of our headers, wherever a value came from.
func setHeader(h http.Header, name, value string) {
	h.Set(name, strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, value))
}

// encode writes JSON with its angle brackets as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
