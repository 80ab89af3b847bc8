package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
	"github.com/llm-queue/llmq/pkg/llmq/internal/opbody"
	"github.com/llm-queue/llmq/pkg/llmq/internal/strictjson"
)

// read makes a call of an HTTP request, or refuses it. Whatever can't work is refused
// here, before anything is written or sent.
func (h *Handler) read(x *exchange, c auth.Caller) (llmq.Request, error) {
	if err := c.May(x.matched.access.scope()); err != nil {
		return llmq.Request{}, err
	}
	now := time.Now()
	o, err := readOptions(x.r.Header, now, h.cfg.Timeouts)
	if o.id != "" {
		x.id = o.id
	}
	if err != nil {
		return llmq.Request{}, err
	}
	x.lane = o.lane
	body, err := h.readBody(x, h.limits)
	if err != nil {
		return llmq.Request{}, err
	}
	op := x.matched.op
	ref, err := readModel(op, x.matched.param, body)
	if err != nil {
		return llmq.Request{}, err
	}
	targets, err := h.resolve(ref, op)
	if err != nil {
		return llmq.Request{}, err
	}
	if err := c.MayUse(o.lane, ref, targets); err != nil {
		return llmq.Request{}, err
	}
	if o.lapses && h.timeout != nil {
		if d := h.timeout(x.r.Context(), targets[0].Model, op, o.lane); d > 0 {
			o.deadline = now.Add(d)
		}
	}
	stream, err := opbody.Stream(op, body)
	if err != nil {
		return llmq.Request{}, err
	}
	if err := opbody.Check(op, body); err != nil {
		return llmq.Request{}, err
	}
	if err := mayChoose(c, op, body); err != nil {
		return llmq.Request{}, err
	}
	headers, err := readHeaders(op, x.r.Header)
	if err != nil {
		return llmq.Request{}, err
	}
	return h.beginSpan(x, llmq.Request{
		ID: x.id, Tenant: c.Tenant(), KeyID: c.KeyID(), Allowed: c.Models(), Op: op, Model: ref, Lane: o.lane, Fallback: o.fallback,
		Deadline: o.deadline, Body: body, Headers: headers, Stream: stream, User: h.hashID(o.user), Session: h.hashID(o.session), Trace: o.trace, OneOff: o.id == "",
	}), nil
}

// mayChoose refuses more choices than the caller's key may ask for: each has its own output, and is billed (IN3).
func mayChoose(c auth.Caller, op llmq.Op, body []byte) error {
	if n, member := opbody.Choices(op, body); n > c.MaxChoices() {
		return llmq.Errorf(llmq.CodeInvalidRequest, "%s is %d, and the key %s may ask for %d choices in one call", member, n, c.KeyID(), c.MaxChoices()).At(member)
	}
	return nil
}

// readBody takes the body's bytes: bounded first, then strictly checked (IN1, IN2).
func (h *Handler) readBody(x *exchange, limits strictjson.Limits) ([]byte, error) {
	if err := checkMedia(x.matched.op, x.r.Header); err != nil {
		return nil, err
	}
	tooLarge := llmq.Errorf(llmq.CodeTooLarge, "the body is larger than %d bytes", h.cfg.BodyLimit)
	if x.r.ContentLength > h.cfg.BodyLimit {
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, h.cfg.BodyLimit))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, tooLarge
		}
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "the body could not be read to its end").Because(err)
	}
	if err := strictjson.Check(body, limits); err != nil {
		return nil, fmt.Errorf("check the body: %w", err)
	}
	return body, nil
}

// checkMedia refuses what is compressed or not JSON (IN1).
func checkMedia(op llmq.Op, h http.Header) error {
	for _, v := range h.Values("Content-Encoding") {
		if v != "" && !strings.EqualFold(v, "identity") {
			return llmq.Errorf(llmq.CodeUnsupportedMedia, "the body is compressed; send it without Content-Encoding").At("Content-Encoding")
		}
	}
	bad := llmq.Errorf(llmq.CodeUnsupportedMedia, "the body must be sent as Content-Type: application/json, in UTF-8").At("Content-Type")
	values := h.Values("Content-Type")
	if len(values) == 0 && untyped(op) {
		return nil
	}
	if len(values) != 1 {
		return bad
	}
	mediaType, params, err := mime.ParseMediaType(values[0])
	if err == nil && mediaType == "application/octet-stream" && untyped(op) {
		return nil
	}
	if charset := params["charset"]; err != nil || mediaType != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return bad
	}
	return nil
}

// untyped reports whether an op's body may come as bytes of no particular type. So AWS's SDKs send an invocation whose caller
// names none: boto3 without the header, those for Go and JavaScript as application/octet-stream. Bedrock takes its body
// for the JSON that it has to be, and so does the check of it here.
func untyped(op llmq.Op) bool { return op.Wire() == llmq.WireInvoke }

// readHeaders takes what goes with the body of an invocation, such as the guardrail to run under. A media type that is
// asked for must be JSON, which is all that a result holds.
func readHeaders(op llmq.Op, h http.Header) (map[string]string, error) {
	if op.Wire() != llmq.WireInvoke {
		return nil, nil
	}
	accept := "Accept"
	if op == llmq.OpInvokeStream {
		accept = "X-Amzn-Bedrock-Accept" // Accept itself is of the frames
	}
	if !acceptsJSON(h.Values(accept)) {
		return nil, llmq.Errorf(llmq.CodeUnsupportedMedia, "%s leaves application/json out, and an invocation's reply is served as nothing else", accept).At(accept)
	}
	var taken map[string]string
	for _, name := range op.Headers() {
		v := h.Get(name)
		if v == "" {
			continue
		}
		if taken == nil {
			taken = map[string]string{}
		}
		taken[name] = v
	}
	return taken, op.CheckHeaders(taken)
}

// acceptsJSON reports whether an Accept header takes JSON. Who says nothing takes everything. Where several of its ranges
// cover JSON, the most exact one counts (RFC 9110, 12.5.1).
func acceptsJSON(values []string) bool {
	said, taken, exact := false, false, -1
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		said = true
		media, params, err := mime.ParseMediaType(part)
		how := slices.Index([]string{"*/*", "application/*", "application/json"}, media)
		if err != nil || how < exact || how < 0 {
			continue
		}
		weight, err := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64)
		taken, exact = err == nil && weight > 0, how
	}
	return !said || taken
}

// readModel finds the model that is called: in the body on OpenAI's wire, in the path
// on Bedrock's. The body has passed strictjson, so that gjson's view of it is
// everybody's view.
func readModel(op llmq.Op, escaped string, body []byte) (llmq.ModelRef, error) {
	if op.Wire() != llmq.WireOpenAI {
		return pathModel(escaped)
	}
	m := gjson.GetBytes(body, "model")
	if m.Exists() && m.Type != gjson.String {
		return llmq.ModelRef{}, llmq.Errorf(llmq.CodeInvalidRequest, "model must be a string").At("model")
	}
	ref, err := llmq.ParseModelRef(m.String())
	if err != nil {
		return llmq.ModelRef{}, fmt.Errorf("read the model: %w", err)
	}
	return ref, nil
}

// pathModel decodes a model id once (IN6). What is not one after that, for example
// because it is encoded twice, no model can have as its name.
func pathModel(escaped string) (llmq.ModelRef, error) {
	unknown := llmq.Errorf(llmq.CodeModelNotFound, "the path's model id is not of a model's form; it is percent-encoded once and has at most %d bytes", llmq.MaxModelRefBytes).At("modelId")
	id, err := url.PathUnescape(escaped)
	if err != nil || strings.Contains(id, "..") || strings.Contains(id, "//") {
		return llmq.ModelRef{}, unknown
	}
	ref, err := llmq.ParseModelRef(id) // refuses %, NUL, lengths
	if err != nil {
		return llmq.ModelRef{}, unknown
	}
	return ref, nil
}

// resolve refuses a model that is unknown or does not speak the path's wire, and says
// in the latter case where it can be called. It returns the targets that would serve it.
func (h *Handler) resolve(ref llmq.ModelRef, op llmq.Op) ([]llmq.Target, error) {
	m, targets, err := h.catalogue.Resolve(ref, op.Wire())
	if err == nil {
		return targets, nil
	}
	e := *llmq.AsError(err)
	if e.Code == llmq.CodeWrongWire {
		e.Message = fmt.Sprintf("model %q does not speak the %s wire; %s", llmq.Clip(ref.String(), 80), op.Wire(), h.wayOut(ref, op, m))
	}
	return nil, &e
}

// wayOut names the paths at which a model can be called: those for what op asks for, where it has such.
func (h *Handler) wayOut(ref llmq.ModelRef, op llmq.Op, m llmq.Model) string {
	var like, all []string
	for _, rt := range table() {
		if rt.op == "" {
			continue
		}
		if _, targets, err := h.catalogue.Resolve(ref, rt.op.Wire()); err != nil || len(targets) == 0 {
			continue
		}
		way := rt.Method + " " + strings.Replace(rt.Path, modelID, url.PathEscape(ref.String()), 1)
		all = append(all, way)
		if standsFor(rt.op, op) {
			like = append(like, way)
		}
	}
	switch {
	case len(like) > 0:
		return "call it at " + strings.Join(like, " or ")
	case len(all) > 0:
		return "it can be called at " + strings.Join(all, " or ")
	}
	if m.Jobs() {
		return "it is a queue of jobs, which POST " + native + "/calls takes as op job"
	}
	return fmt.Sprintf("no path serves its wires %v", m.Wires())
}

// standsFor reports whether an op of another wire asks for what op does: a whole reply or one that comes in
// events, a text or vectors. Whether an invocation's reply is the one or the other its model decides.
func standsFor(other, op llmq.Op) bool {
	if op == llmq.OpEmbeddings {
		return other == llmq.OpInvoke
	}
	if other == llmq.OpEmbeddings {
		return op == llmq.OpInvoke
	}
	return other.Streaming() == llmq.StreamByBody || op.Streaming() == llmq.StreamByBody || other.Streaming() == op.Streaming()
}
