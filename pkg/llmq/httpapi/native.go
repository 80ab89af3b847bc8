package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/auth"
)

// submit leaves a call (FEATURES A9) and answers 202, or 200 where it ends within the time that its caller prefers to wait.
// Once it is left no error is told but its own: the id is what a caller must get.
func (h *Handler) submit(x *exchange, c auth.Caller) error {
	if err := c.May(x.matched.access.scope()); err != nil {
		return err
	}
	req, err := h.readSubmission(x, c)
	if err != nil {
		return err
	}
	waits := preferredWait(x.r.Header, h.cfg.Wait)
	ctx, cancel := context.WithTimeout(x.r.Context(), h.cfg.Wait)
	defer cancel()
	call, err := h.calls.Submit(ctx, req)
	if err != nil {
		return x.explain(ctx, err, h.cfg.Wait)
	}
	if waits > 0 && !call.State.Over() {
		waiting, done := context.WithTimeout(ctx, waits)
		defer done()
		if now, err := h.calls.Wait(waiting, req.Tenant, req.ID); err == nil {
			now.Eta, call = call.Eta, now
		} else {
			h.log.WarnContext(x.r.Context(), "submitted call not waited for", "request_id", x.id, "error", err)
		}
	}
	if waits > 0 {
		x.set("Preference-Applied", "wait="+strconv.Itoa(int(waits/time.Second)))
	}
	x.set("Location", "calls/"+call.ID)
	x.setEta(call.Eta)
	return x.answerCall(call, "calls/")
}

// call tells where a call stands, after a wait for its end if that is asked for.
func (h *Handler) call(x *exchange, c auth.Caller) error {
	call, err := h.look(x, c)
	if err != nil {
		return err
	}
	return x.answerCall(call, "./")
}

// result is a done call's reply: the provider's bytes and media type. A call that has ended otherwise answers as its error, one
// that has not ended by where it stands.
func (h *Handler) result(x *exchange, c auth.Caller) error {
	call, err := h.look(x, c)
	switch {
	case err != nil:
		return err
	case call.Err != nil:
		return call.Err
	case call.Reply == nil:
		return x.answerCall(call, "../")
	}
	x.setMeta(call.Reply.Meta)
	x.answer(http.StatusOK, mediaType(call.Reply), call.Reply.Body)
	return nil
}

// withdraw cancels a call for everybody who waits for it. One that has ended stays as it is: the state says so.
func (h *Handler) withdraw(x *exchange, c auth.Caller) error {
	if err := c.May(x.matched.access.scope()); err != nil {
		return err
	}
	id, err := x.readCallID()
	if err != nil {
		return err
	}
	if _, err := readWait(x.r.URL.RawQuery, 0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), h.cfg.Wait)
	defer cancel()
	call, err := h.calls.Withdraw(ctx, c.Tenant(), id)
	if err != nil {
		return x.explain(ctx, err, h.cfg.Wait)
	}
	return x.answerCall(call, "./")
}

// look finds the path's call, among those of the caller's tenant.
func (h *Handler) look(x *exchange, c auth.Caller) (llmq.Call, error) {
	if err := c.May(x.matched.access.scope()); err != nil {
		return llmq.Call{}, err
	}
	id, err := x.readCallID()
	if err != nil {
		return llmq.Call{}, err
	}
	waits, err := readWait(x.r.URL.RawQuery, h.cfg.Wait)
	if err != nil {
		return llmq.Call{}, err
	}
	if waits == 0 {
		ctx, cancel := context.WithTimeout(x.r.Context(), h.cfg.Wait)
		defer cancel()
		call, err := h.calls.Find(ctx, c.Tenant(), id)
		if err != nil {
			return llmq.Call{}, x.explain(ctx, err, h.cfg.Wait)
		}
		return call, nil
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), waits)
	defer cancel()
	call, err := h.calls.Wait(ctx, c.Tenant(), id)
	if err != nil {
		return llmq.Call{}, x.explain(ctx, err, waits)
	}
	return call, nil
}

// callJSON is a call as our routes tell of it. Its result follows as the last member.
type callJSON struct {
	ID        string     `json:"id"`
	State     llmq.State `json:"state"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty"`
	Attempts  int        `json:"attempts"`
	// NotBefore is when a queued call is tried again at the earliest.
	NotBefore *time.Time   `json:"not_before,omitempty"`
	URLs      urlsJSON     `json:"urls"`
	Meta      *llmq.Meta   `json:"meta,omitempty"`
	Error     *nativeError `json:"error,omitempty"`
}

// urlsJSON are relative to the URL that was asked, since what stands before the door may add to its paths.
type urlsJSON struct {
	Self   string `json:"self"`
	Result string `json:"result"`
	Stream string `json:"stream"`
}

// resultJSON is a reply as a member of its call: what is JSON stands as its body, byte for byte, anything else in base64.
type resultJSON struct {
	ContentType string `json:"content_type"`
	BodyBase64  []byte `json:"body_base64,omitempty"`
}

// pause is when who waits for a call's end should ask again.
const pause = time.Second

// answerCall answers with a call: 200 where it has ended, else 202 and when to ask again. base leads from the URL
// that was asked to the calls.
func (x *exchange) answerCall(c llmq.Call, base string) error {
	body, err := encodeCall(c, base+c.ID)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if !c.State.Over() {
		status = http.StatusAccepted
		after := min(max(time.Until(c.Next), pause), time.Minute)
		x.set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	x.answer(status, "application/json", body)
	return nil
}

func encodeCall(c llmq.Call, self string) ([]byte, error) {
	out := callJSON{
		ID: c.ID, State: c.State, CreatedAt: moment(c.Created), Deadline: moment(c.Deadline), Attempts: c.Attempts, NotBefore: moment(c.Next),
		URLs: urlsJSON{Self: self, Result: self + "/result", Stream: self + "/stream"},
	}
	if c.Err != nil {
		e := nativeShape(c.Err, c.Err.Code.Info().Retry) // under a new id
		out.Error, out.Meta = &e, &c.Err.Meta
	}
	if c.Reply == nil {
		return encode(out)
	}
	out.Meta = &c.Reply.Meta
	head, err := encode(out)
	if err != nil {
		return nil, err
	}
	result, err := encodeResult(c.Reply)
	if err != nil {
		return nil, err
	}
	return join(head, "result", result), nil
}

func encodeResult(r *llmq.Reply) ([]byte, error) {
	out := resultJSON{ContentType: mediaType(r)}
	if r.Stream || !json.Valid(r.Body) {
		out.BodyBase64 = r.Body
		return encode(out)
	}
	head, err := encode(out)
	if err != nil {
		return nil, err
	}
	return join(head, "body", r.Body), nil
}

// join adds a member to an object that has some, its value untouched.
func join(object []byte, name string, value []byte) []byte {
	out := make([]byte, 0, len(object)+len(name)+len(value)+4)
	out = append(append(out, object[:len(object)-1]...), `,"`+name+`":`...)
	return append(append(out, value...), '}')
}

func mediaType(r *llmq.Reply) string {
	if r.ContentType == "" {
		return "application/json"
	}
	return r.ContentType
}

// moment is a time as documents have it: in UTC, and left out where it is not known.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}
