// Package front is the HTTP side of an API Gateway REST API whose one resource is /{proxy+}: it turns a request into the
// proxy event, runs a Lambda function and turns its reply into the response.
//
// New serves an integration with response transfer mode STREAM: the function replies with a prelude (status and headers),
// eight NUL bytes and a body that passes chunk by chunk. NewBuffered serves the older kind: a JSON object with the body as
// a string. A function must be of the kind its integration is; the wrong one is a 502 here as on AWS.
//
// What the function must not see never reaches it: a body over 10 MB, a Host that isn't ours, a request with an Origin.
// What fails on the way is answered by a gateway response (errors.go), in AWS's own form unless Options.Respond says else.
//
// A client that leaves does not stop the function: AWS does not tell it, so neither does this front.
//
// Handlers must be mounted as they are, not under an http.ServeMux, which would clean paths that API Gateway keeps.
package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/llm-queue/llmq/local/cloud/lambda"
)

// streamer runs a function and gives its reply as it is written; *lambda.Host is one.
type streamer interface {
	InvokeStream(ctx context.Context, name string, payload []byte) (*lambda.Stream, error)
}

// invoker runs a function and gives its whole reply; *lambda.Host is one.
type invoker interface {
	Invoke(ctx context.Context, name string, payload []byte, opts lambda.InvokeOptions) (lambda.Result, error)
}

var (
	_ streamer = (*lambda.Host)(nil)
	_ invoker  = (*lambda.Host)(nil)
)

// Options configure a handler. Start from DefaultOptions.
type Options struct {
	Function  string // name of the function
	Stage     string // name of the stage; appears in requestContext only, as the address has none
	AccountID string
	APIID     string

	// Hosts are the names besides 127.0.0.1 and localhost by which clients may reach the server. One without a port stands
	// for that name at any port, as behind a container's port mapping.
	Hosts []string

	// Timeout bounds the wait for the reply, and a streamed reply as a whole: 50ms to 15min for a stream. A buffered
	// integration on AWS has at most 29s without a quota request. Then the answer is 504, or a stream is cut.
	Timeout time.Duration

	// IdleTimeout cuts a stream in which nothing comes for so long.
	IdleTimeout time.Duration

	// Respond gives the gateway's own answers another form; nil is AWS's. It must not change the status.
	Respond func(GatewayError) (contentType string, body []byte)

	Logger *slog.Logger // never given headers, bodies or paths; nil discards
}

// DefaultOptions returns AWS's limits for a Regional API in STREAM mode, and made-up ids.
func DefaultOptions() Options {
	return Options{Stage: "local", AccountID: "000000000000", APIID: "local", Timeout: 15 * time.Minute, IdleTimeout: 5 * time.Minute}
}

// Limits of the gateway, in bytes.
const (
	maxBody    = 10 << 20 // of a request
	maxPrelude = 16 << 10 // of a streamed reply, delimiter included
)

func (o *Options) check() error {
	var faults []error
	if o.Function == "" || o.Stage == "" || o.AccountID == "" || o.APIID == "" {
		faults = append(faults, errors.New("function, stage, account id and API id are required"))
	}
	if o.Timeout < 50*time.Millisecond || o.Timeout > 15*time.Minute {
		faults = append(faults, fmt.Errorf("timeout %v is not within 50ms and 15m", o.Timeout))
	}
	if o.IdleTimeout <= 0 {
		faults = append(faults, fmt.Errorf("idle timeout %v is not positive", o.IdleTimeout))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("front: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Respond == nil {
		o.Respond = awsForm
	}
	return nil
}

// New returns a handler for a STREAM integration.
func New(opts Options, functions streamer) (http.Handler, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	f := &front{opts: opts}
	f.integrate = func(w http.ResponseWriter, r *http.Request, id string, event []byte) {
		f.stream(w, r, id, event, functions)
	}
	return f, nil
}

// NewBuffered returns a handler for an integration that buffers.
func NewBuffered(opts Options, functions invoker) (http.Handler, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	f := &front{opts: opts}
	f.integrate = func(w http.ResponseWriter, r *http.Request, id string, event []byte) {
		f.buffered(w, r, id, event, functions)
	}
	return f, nil
}

// front is what both kinds share: all that comes before the function.
type front struct {
	opts      Options
	integrate func(w http.ResponseWriter, r *http.Request, requestID string, event []byte)
}

// ServeHTTP answers one request.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := newRequestID()
	w.Header().Set("X-Amzn-Requestid", id)
	if !f.ours(r) {
		f.fail(w, id, forbidden, nil)
		return
	}
	if r.ContentLength > maxBody {
		f.fail(w, id, requestTooLarge, nil)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			f.fail(w, id, requestTooLarge, nil)
			return
		}
		f.fail(w, id, badRequest, nil) // cut off; most likely nobody is there to read this
		return
	}
	event, err := f.event(r, id, body, time.Now())
	if err != nil {
		f.fail(w, id, serverError, err)
		return
	}
	f.integrate(w, r, id, event)
}
