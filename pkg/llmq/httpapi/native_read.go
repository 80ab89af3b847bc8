package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
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

// submission is what a native call says: what headers say on the wires of others, and the wire's own body.
type submission struct {
	ID, Op, Model, Lane, Fallback, Deadline, User, Session string
	TimeoutSecs                                            json.Number
	Headers                                                map[string]string
	Body                                                   json.RawMessage // as it came
}

// fields maps each name to where its value goes.
func (s *submission) fields() map[string]any {
	return map[string]any{
		"id": &s.ID, "op": &s.Op, "model": &s.Model, "lane": &s.Lane, "fallback": &s.Fallback, "timeout_secs": &s.TimeoutSecs, "deadline": &s.Deadline,
		"user": &s.User, "session": &s.Session, "headers": &s.Headers, "body": &s.Body,
	}
}

// parseSubmission reads what has passed strictjson. Names are matched exactly, and one that is unknown is named.
func parseSubmission(b []byte) (submission, error) {
	var s submission
	fields := s.fields()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return s, llmq.Errorf(llmq.CodeInvalidJSON, "the body is not a JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) { // sorted: the same request gets the same answer
		raw, shown := members[name], llmq.Clip(name, 60)
		dst, known := fields[name]
		if !known {
			names := slices.Sorted(maps.Keys(fields))
			hint := "the known ones are " + strings.Join(names, ", ") + "; what the model is told belongs into body"
			if near := llmq.Nearest(name, names); near != "" {
				hint = "did you mean " + near + "?"
			}
			return s, llmq.Errorf(llmq.CodeInvalidRequest, "field %q is unknown; %s", shown, hint).At(shown)
		}
		if bytes.Equal(raw, []byte("null")) {
			return s, llmq.Errorf(llmq.CodeInvalidRequest, "%s is null; leave it out instead", name).At(name)
		}
		if _, isNumber := dst.(*json.Number); isNumber && raw[0] == '"' {
			return s, llmq.Errorf(llmq.CodeInvalidRequest, "%s must be a number", name).At(name)
		}
		if err := json.Unmarshal(raw, dst); err != nil {
			return s, llmq.Errorf(llmq.CodeInvalidRequest, "%s must be %s", name, kindOf(dst)).At(name)
		}
	}
	for _, need := range []struct{ name, value, hint string }{
		{"op", s.Op, "it is one of " + listOps()},
		{"model", s.Model, "GET /v1/models lists those that the key may use"},
		{"body", string(s.Body[:min(1, len(s.Body))]), "it is what the op's own route takes"},
	} {
		if need.value == "" {
			return s, llmq.Errorf(llmq.CodeInvalidRequest, "%s is missing; %s", need.name, need.hint).At(need.name)
		}
	}
	return s, nil
}

func listOps() string {
	var names []string
	for _, op := range llmq.Ops() {
		names = append(names, string(op))
	}
	return strings.Join(names, ", ")
}

func kindOf(dst any) string {
	switch dst.(type) {
	case *json.Number:
		return "a number"
	case *map[string]string:
		return "an object of strings"
	}
	return "a string"
}

// outside is what a submission may hold beside its body, within the limits of a whole: ten fields, and headers with theirs.
const outside = 20

// readSubmission makes a call of a native request, or refuses it, as [Handler.read] does for the other wires.
func (h *Handler) readSubmission(x *exchange, c auth.Caller) (llmq.Request, error) {
	now := time.Now()
	if err := refuseSteering(x.r.Header); err != nil {
		return llmq.Request{}, err
	}
	key, err := single(x.r.Header, hdrIdempotency)
	if err != nil {
		return llmq.Request{}, err
	}
	limits := h.limits // of the body, which lies a level deeper
	limits.Depth, limits.Members, limits.Guarded = limits.Depth+1, limits.Members+outside, nil
	whole, err := h.readBody(x, limits)
	if err != nil {
		return llmq.Request{}, err
	}
	s, err := parseSubmission(whole)
	if err != nil {
		return llmq.Request{}, err
	}
	r := llmq.Request{Tenant: c.Tenant(), KeyID: c.KeyID(), Allowed: c.Models(), Body: s.Body, User: h.hashID(s.User), Session: h.hashID(s.Session), Trace: readTrace(x.r.Header.Values(hdrTrace))}
	if r.ID, err = nativeID(s.ID, key); err != nil {
		return llmq.Request{}, err
	}
	if r.ID == "" {
		r.ID = x.id
	}
	x.id = r.ID
	if err := h.readTerms(&r, s, now); err != nil {
		return llmq.Request{}, err
	}
	x.lane = r.Lane
	targets, err := h.resolve(r.Model, r.Op)
	if err != nil {
		return llmq.Request{}, err
	}
	if err := c.MayUse(r.Lane, r.Model, targets); err != nil {
		return llmq.Request{}, err
	}
	if s.TimeoutSecs == "" && s.Deadline == "" && h.timeout != nil {
		if d := h.timeout(x.r.Context(), targets[0].Model, r.Op, r.Lane); d > 0 {
			r.Deadline = now.Add(d)
		}
	}
	if r.Headers, err = innerHeaders(r.Op, s.Headers); err != nil {
		return llmq.Request{}, err
	}
	if err := h.readInner(&r, s.Model); err != nil {
		return llmq.Request{}, err
	}
	if err := mayChoose(c, r.Op, r.Body); err != nil {
		return llmq.Request{}, within("body", err)
	}
	return h.beginSpan(x, r), nil
}

// refuseSteering refuses headers that mean something on the other wires: here they would be without effect, a guardrail too.
func refuseSteering(h http.Header) error {
	for _, name := range slices.Sorted(maps.Keys(h)) { // sorted: the same request gets the same answer
		for prefix, field := range map[string]string{llmqPrefix: steeringField(name), bedrockPrefix: "headers"} {
			if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
				continue
			}
			hint := "leave it out" // an unknown one
			if field != "" {
				hint = "say it in the field " + field + " of the body"
			}
			return llmq.Errorf(llmq.CodeInvalidRequest, "%s is not read here; %s", llmq.Clip(name, 60), hint).At(llmq.Clip(name, 60))
		}
	}
	return nil
}

// steeringField is the field of a native call that says what a header says elsewhere; "" is none.
func steeringField(header string) string {
	for name, field := range map[string]string{
		hdrLane: "lane", hdrTimeout: "timeout_secs", hdrDeadline: "deadline", hdrFallback: "fallback", hdrRequestID: "id", hdrUser: "user", hdrSession: "session",
	} {
		if strings.EqualFold(name, header) {
			return field
		}
	}
	return ""
}

// bedrockPrefix begins the headers of an invocation.
const bedrockPrefix = "X-Amzn-Bedrock-"

// innerHeaders are what an invocation is asked with beside its body. Their names count without case, as those of headers do.
func innerHeaders(op llmq.Op, given map[string]string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	taken := make(map[string]string, len(given))
	for name, value := range given {
		taken[http.CanonicalHeaderKey(name)] = value
	}
	if len(taken) < len(given) {
		return nil, llmq.Errorf(llmq.CodeInvalidRequest, "headers holds a name twice").At("headers")
	}
	return taken, op.CheckHeaders(taken)
}

// nativeID is the id that the caller chose, "" where none. An Idempotency-Key means the same as the field.
func nativeID(id, key string) (string, error) {
	for _, v := range []asked{{"id", id}, {hdrIdempotency, key}} {
		if v.text == "" {
			continue
		}
		if err := llmq.CheckID(v.name, v.text); err != nil {
			return "", fmt.Errorf("read the call's id: %w", err)
		}
	}
	if id != "" && key != "" && id != key {
		return "", llmq.Errorf(llmq.CodeInvalidRequest, "id and %s are both given and differ; they mean the same, send one", hdrIdempotency).At("id")
	}
	if id == "" {
		return key, nil
	}
	return id, nil
}

// readTerms reads what is asked for, of which model, how urgently.
func (h *Handler) readTerms(r *llmq.Request, s submission, now time.Time) (err error) {
	if r.Op, err = llmq.ParseOp(s.Op); err != nil {
		return llmq.Errorf(llmq.CodeInvalidRequest, "%s", llmq.AsError(err).Message).At("op")
	}
	if r.Model, err = llmq.ParseModelRef(s.Model); err != nil {
		return fmt.Errorf("read the model: %w", err)
	}
	if r.Lane, err = r.Op.ParseLane(s.Lane); err != nil {
		return err
	}
	if r.Fallback, err = llmq.ParseFallback(s.Fallback); err != nil {
		return err
	}
	for _, label := range []asked{{"user", s.User}, {"session", s.Session}} {
		if len(label.text) > llmq.MaxLabelBytes {
			return llmq.Errorf(llmq.CodeInvalidRequest, "%s holds at most %d bytes, has %d", label.name, llmq.MaxLabelBytes, len(label.text)).At(label.name)
		}
	}
	r.Deadline, err = readDeadline(asked{"timeout_secs", s.TimeoutSecs.String()}, asked{"deadline", s.Deadline}, now, r.Lane, h.cfg.Timeouts[r.Lane])
	return err
}

// readInner checks the wire's own body as its own route would, and that it names no other model.
func (h *Handler) readInner(r *llmq.Request, model string) (err error) {
	if err := strictjson.Check(r.Body, strictjson.For(r.Op)); err != nil {
		return within("body", err)
	}
	if m := gjson.GetBytes(r.Body, "model"); r.Op.Wire() == llmq.WireOpenAI && m.Exists() && (m.Type != gjson.String || m.Str != model) {
		return llmq.Errorf(llmq.CodeInvalidRequest, "body.model is not the text of model; leave it out or send the same").At("body.model")
	}
	if r.Stream, err = opbody.Stream(r.Op, r.Body); err != nil {
		return within("body", err)
	}
	if err := opbody.Check(r.Op, r.Body); err != nil {
		return within("body", err)
	}
	return nil
}

// within names an error's field as one of a field.
func within(field string, err error) error {
	e := *llmq.AsError(err)
	if e.Field != "" {
		field += "." + e.Field
	}
	e.Field = field
	return &e
}

// readCallID is the id in a path, decoded once.
func (x *exchange) readCallID() (string, error) {
	id, err := url.PathUnescape(x.matched.param)
	if err != nil {
		return "", llmq.Errorf(llmq.CodeInvalidRequest, "the path's id is not percent-encoded validly").At("id")
	}
	if err := llmq.CheckID("id", id); err != nil {
		return "", err
	}
	x.id = id
	return id, nil
}

// readWait is how long a query asks to wait, of whole seconds up to most. A query that says anything else is refused.
func readWait(query string, most time.Duration) (time.Duration, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, llmq.Errorf(llmq.CodeInvalidRequest, "the query is not encoded validly").At("query")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name != "wait" {
			return 0, llmq.Errorf(llmq.CodeInvalidRequest, "query parameter %q is unknown; the only one is wait", llmq.Clip(name, 60)).At(llmq.Clip(name, 60))
		}
	}
	if len(values["wait"]) == 0 {
		return 0, nil
	}
	secs := int64(most / time.Second)
	n, err := strconv.ParseUint(values.Get("wait"), 10, 32)
	if err != nil || len(values["wait"]) > 1 || int64(n) > secs {
		return 0, llmq.Errorf(llmq.CodeInvalidRequest, "wait must be given once, as whole seconds from 0 to %d", secs).At("wait")
	}
	return time.Duration(n) * time.Second, nil
}

// preferredWait is how long a caller would wait (RFC 7240), in whole seconds up to most. Preferences are wishes: what is not
// understood is as if it were missing.
func preferredWait(h http.Header, most time.Duration) time.Duration {
	for preference := range strings.SplitSeq(strings.Join(h.Values("Prefer"), ","), ",") {
		name, _, _ := strings.Cut(preference, ";")
		name, value, _ := strings.Cut(name, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 32)
		if err != nil {
			return 0
		}
		return min(time.Duration(n)*time.Second, most).Truncate(time.Second) // the first counts
	}
	return 0
}

// readLastEvent is the offset that a reader of a stream has come to.
func readLastEvent(h http.Header) (int64, error) {
	const name = "Last-Event-ID"
	text, err := single(h, name)
	if err != nil || text == "" {
		return 0, err
	}
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil || at < 0 || strconv.FormatInt(at, 10) != text {
		return 0, llmq.Errorf(llmq.CodeInvalidRequest, "%s must be the id of an event of this stream", name).At(name)
	}
	return at, nil
}
