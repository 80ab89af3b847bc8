package bedrock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/internal/egress"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

var _ provider.Streamer = (*Provider)(nil)

// eventStream is the media type of a stream's frames.
const eventStream = "application/vnd.amazon.eventstream"

// Stream makes exactly one attempt; see [provider.Streamer]. An event is emitted as the frame that came. The frames from
// messageStop on, which end a reply, are emitted once nothing but the end of the exchange follows: who has read
// them need not ask whether more was to come.
func (p *Provider) Stream(ctx context.Context, req provider.Request, emit provider.Emit) (*provider.Response, error) {
	if req.Op != llmq.OpConverseStream {
		return nil, wrongOp(req.Op)
	}
	hreq, secret, err := p.prepare(ctx, req, "/converse-stream", eventStream)
	if err != nil {
		return nil, err
	}
	s, err := p.egress.Open(hreq, req.Pace, eventStream)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if !s.OK() {
		return nil, classify(s.Reply, time.Now(), secret)
	}
	r := relay{stream: s, secret: secret, emit: emit}
	if err := r.run(); err != nil {
		return nil, err
	}
	return &provider.Response{Status: s.Status, ContentType: eventStream, RequestID: s.RequestID("X-Amzn-Requestid"), Usage: r.usage}, nil
}

// relay passes a stream's frames on.
type relay struct {
	stream *egress.Stream
	secret string
	emit   provider.Emit

	usage   *provider.Usage
	content bool // some was emitted
	stopped bool // messageStop has come
	end     [][]byte
}

// run reads to the end of the reply, which is whole when the exchange ends behind a frame, and messageStop
// was among them.
func (r *relay) run() error {
	frames := newFrameReader(r.stream, provider.MaxEventBytes)
	for {
		f, err := frames.next()
		switch {
		case errors.Is(err, errFrameTooLarge):
			return &provider.Error{
				Class: provider.TargetFatal, Code: llmq.CodeProviderError, Status: r.stream.Status,
				Message: fmt.Sprintf("an event of the provider's stream has more than %d MiB", provider.MaxEventBytes>>20), Err: err,
			}
		case errors.Is(err, errFrame):
			return &provider.Error{
				Class: provider.Retryable, Code: llmq.CodeProviderError, Status: r.stream.Status, Message: "the provider's stream holds what is no event", Err: err,
			}
		case err == io.EOF && r.stopped: //nolint:errorlint // a connection that broke off has another one
			for _, raw := range r.end {
				r.pass(raw, true)
			}
			return nil
		case err != nil:
			return r.stream.Fault(fmt.Errorf("read a stream: %w", err))
		case f.kind != "event":
			return r.failed(f)
		}
		r.event(f)
	}
}

// event passes one event on, or keeps it to the end.
func (r *relay) event(f frame) {
	switch f.name {
	case "messageStop":
		r.stopped = true
	case "metadata":
		r.usage = usageOf(f.payload)
	default:
	}
	if r.stopped {
		r.end = append(r.end, append([]byte(nil), f.raw...))
		return
	}
	r.pass(f.raw, f.name != "messageStart")
}

func (r *relay) pass(raw []byte, content bool) {
	if content && !r.content {
		r.content = true
		r.stream.Begun()
	}
	r.emit(raw, content)
}

// statuses are those that the same exceptions have as refusals.
var statuses = map[string]int{ //nolint:gochecknoglobals // a table
	"throttlingException": http.StatusTooManyRequests, "modelNotReadyException": http.StatusTooManyRequests,
	"serviceUnavailableException": http.StatusServiceUnavailable, "modelTimeoutException": http.StatusRequestTimeout,
	"modelStreamErrorException": http.StatusFailedDependency, "modelErrorException": http.StatusFailedDependency,
	"validationException": http.StatusBadRequest, "accessDeniedException": http.StatusForbidden, "serviceQuotaExceededException": http.StatusBadRequest,
}

// failed makes an error of a frame that tells of one (case H24): it means what the same exception means in place of
// a reply.
func (r *relay) failed(f frame) error {
	status, known := statuses[f.name]
	if !known {
		status = http.StatusInternalServerError
	}
	body := f.payload
	if f.kind == "error" {
		body, _ = json.Marshal(map[string]string{"message": f.message}) // a map of strings can be encoded
	}
	h := http.Header{}
	if f.name != "" {
		h.Set("X-Amzn-Errortype", strings.ToUpper(f.name[:1])+f.name[1:])
	}
	return classify(egress.Reply{Status: status, Header: h, Body: body}, time.Now(), r.secret)
}
