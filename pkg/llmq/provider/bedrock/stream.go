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

// Stream makes exactly one attempt; see [provider.Streamer]. An event is emitted as the frame that came. The frames
// that end a reply are emitted once nothing but the end of the exchange follows: who has read them need not ask whether
// more was to come.
func (p *Provider) Stream(ctx context.Context, req provider.Request, emit provider.Emit) (*provider.Response, error) {
	var t talk
	switch req.Op {
	case llmq.OpConverseStream:
		t = &converseTalk{}
	case llmq.OpInvokeStream:
		t = &invokeTalk{}
	default:
		return nil, wrongOp(req.Op)
	}
	hreq, secret, err := p.prepare(ctx, req)
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
	if err := follow(s, t, emit, secret); err != nil {
		return nil, err
	}
	return &provider.Response{Status: s.Status, ContentType: eventStream, RequestID: s.RequestID("X-Amzn-Requestid"), Usage: t.used()}, nil
}

// talk is one op's stream.
type talk interface {
	// take looks at an event: whether it tells something of the reply, and how far the reply is with it.
	take(f frame) (content bool, at stage)
	// used is what the reply has told of its cost.
	used() *provider.Usage
}

// stage is how far a reply is.
type stage int

const (
	underway stage = iota
	whole          // the exchange may end here
	settled        // it tells its cost too, behind which Bedrock says no more
)

// restWithin is how long the end of the exchange may take once the reply is settled. It mostly comes at once; a connection
// that something on the way holds open loses nothing of the reply.
const restWithin = 3 * time.Second

// follow reads to the end of the reply, which is whole when the exchange ends behind a frame with which it was.
func follow(s *egress.Stream, t talk, emit provider.Emit, secret string) error {
	frames := newFrameReader(s, provider.MaxEventBytes)
	var end [][]byte
	release := func() {
		for _, raw := range end {
			emit(raw, true)
		}
		end = nil
	}
	for {
		f, err := frames.next()
		switch {
		case errors.Is(err, errFrameTooLarge):
			return s.TooLarge(err)
		case errors.Is(err, errFrame):
			return s.NoEvent(err)
		case len(end) > 0 && (err == io.EOF || err != nil && s.Rested()): //nolint:errorlint // a connection that broke off has another one
			release()
			return nil
		case err != nil:
			return s.Fault(fmt.Errorf("read a stream: %w", err))
		case f.kind != "event":
			return failed(f, secret)
		}
		content, at := t.take(f)
		if content {
			s.Begun()
		}
		if at == underway {
			release() // it went on: what looked like its end was that of one choice
			emit(f.raw, content)
			continue
		}
		end = append(end, append([]byte(nil), f.raw...))
		if at == settled {
			s.Rest(restWithin)
		}
	}
}

// converseTalk is ConverseStream's: messageStop, and metadata behind it.
type converseTalk struct {
	usage *provider.Usage
	at    stage
}

func (c *converseTalk) used() *provider.Usage { return c.usage }

func (c *converseTalk) take(f frame) (content bool, at stage) {
	switch f.name {
	case "messageStop":
		c.at = max(c.at, whole)
	case "metadata":
		c.usage = usageOf(f.payload)
		if c.at == whole {
			c.at = settled
		}
	}
	return f.name != "messageStart", c.at
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
func failed(f frame, secret string) error {
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
	return classify(egress.Reply{Status: status, Header: h, Body: body}, time.Now(), secret)
}
