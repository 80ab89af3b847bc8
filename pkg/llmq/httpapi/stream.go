package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/eventframe"
)

const (
	// firstQuiet is how long nothing is sent of a stream that has not begun: until then an error still has
	// its status (FEATURES A11).
	firstQuiet = 20 * time.Second
	// quiet is how long a stream that has begun may be silent before a comment says that it is alive, well within
	// what proxies and clients bear.
	quiet = 15 * time.Second
)

// eventStream is the media type of a stream on Bedrock's wires.
const eventStream = "application/vnd.amazon.eventstream"

// framing is how an op's stream is framed.
type framing struct {
	contentType string
	inner       string // media type of what the chunks of an invocation hold; "" on other wires
	alive       []byte // says that the stream is alive, and nothing else; nil where the wire has no such thing
	end         []byte // says that the reply is whole; nil where its own last event does
	failure     func(*llmq.Error) []byte
}

// framingOf is that of an op. Responses ends with an event that says so (response.completed and its like), which is
// part of the reply.
func framingOf(op llmq.Op) framing {
	sse := framing{contentType: "text/event-stream", alive: []byte(": waiting\n\n")}
	switch op {
	case llmq.OpConverseStream:
		return framing{contentType: eventStream, failure: exceptionFrame}
	case llmq.OpInvokeStream:
		return framing{contentType: eventStream, inner: "application/json", failure: exceptionFrame}
	case llmq.OpResponses:
		sse.failure = responsesError
	default:
		sse.end, sse.failure = []byte("data: [DONE]\n\n"), errorEvent
	}
	return sse
}

// errorEvent is what OpenAI's SDKs raise as an error.
func errorEvent(e *llmq.Error) []byte {
	return fmt.Appendf(nil, "data: %s\n\n", mustEncode(openAIShape(e)))
}

// responsesError is the event "error" of Responses. OpenAI documents its members at the top and sends them below error, by
// which its SDKs know what to raise, so that both are here.
func responsesError(e *llmq.Error) []byte {
	shape := openAIShape(e).Error
	return fmt.Appendf(nil, "event: error\ndata: %s\n\n", mustEncode(struct {
		Type    string      `json:"type"`
		Code    string      `json:"code"`
		Message string      `json:"message"`
		Param   *string     `json:"param"`
		Error   openAIError `json:"error"`
	}{"error", shape.Code, shape.Message, shape.Param, shape}))
}

// exceptionFrame is what AWS SDKs raise as an error.
func exceptionFrame(e *llmq.Error) []byte {
	return eventframe.Exception(streamException(e.Code.Info()), mustEncode(bedrockBody{Message: wording(e)}))
}

// streamException is the exception, of those that Bedrock has within a stream, that says most nearly the same.
func streamException(info llmq.CodeInfo) string {
	switch exception, _ := bedrockError(info); exception {
	case "ThrottlingException", "ServiceQuotaExceededException":
		return "throttlingException"
	case "ServiceUnavailableException":
		return "serviceUnavailableException"
	case "ModelTimeoutException", "ModelErrorException":
		return "modelStreamErrorException"
	case "InternalServerException":
		return "internalServerException"
	default:
		return "validationException"
	}
}

// stream runs one call whose reply is passed on while it comes. Nothing is sent before its first piece, its error, or
// the time after which a connection must not be silent.
func (h *Handler) stream(x *exchange, req llmq.Request) error {
	ctx, cancel := context.WithTimeout(x.r.Context(), h.cfg.Wait)
	defer cancel()
	s, err := h.calls.Stream(ctx, req)
	if err != nil {
		return x.explain(ctx, err, h.cfg.Wait)
	}
	defer s.Close()
	if q, ok := s.(interface{ Eta() *time.Duration }); ok {
		x.setEta(q.Eta())
	}
	f := framingOf(req.Op)
	for {
		piece, err := nextWithin(ctx, s, x.patience(f))
		switch {
		case err == nil:
			x.send(f, piece)
		case errors.Is(err, io.EOF):
			x.send(f, f.end)
			return nil
		case errors.Is(err, errQuiet):
			x.send(f, f.alive)
		default:
			err = x.explain(ctx, err, h.cfg.Wait)
			if x.answered {
				x.send(f, f.failure(llmq.AsError(err)))
			}
			return err
		}
		if x.gone {
			return nil // nobody is left to be told; the call goes on, and its id takes it up again
		}
	}
}

// errQuiet says that nothing came for a while.
var errQuiet = errors.New("nothing came")

// nextWithin is the stream's Next, given up after a while; 0 is never.
func nextWithin(ctx context.Context, s llmq.Stream, d time.Duration) ([]byte, error) {
	if d == 0 {
		return s.Next(ctx)
	}
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	piece, err := s.Next(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, errQuiet
	}
	return piece, err
}

// patience is how long the answer may be silent from now on; 0 is as long as the door waits.
func (x *exchange) patience(f framing) time.Duration {
	switch {
	case f.alive == nil:
		return 0
	case x.answered:
		return quiet
	default:
		return firstQuiet
	}
}

// send writes a part of a stream, the head before the first.
func (x *exchange) send(f framing, part []byte) {
	if !x.answered {
		x.answered, x.status = true, http.StatusOK
		x.set(hdrRequestID, x.id)
		x.set("X-Request-Id", x.id)
		x.set("Content-Type", f.contentType)
		if f.inner != "" {
			x.set("X-Amzn-Bedrock-Content-Type", f.inner)
		}
		x.set("Cache-Control", "no-store")
		if x.lane != "" { // who follows a call by its id says none
			x.set("X-LLMQ-Lane", string(x.lane))
		}
		x.w.WriteHeader(http.StatusOK)
	}
	_, err := x.w.Write(part)
	if err == nil {
		err = http.NewResponseController(x.w).Flush()
	}
	x.gone = x.gone || err != nil && !errors.Is(err, http.ErrNotSupported)
}
