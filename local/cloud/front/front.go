// Package front is the HTTP side of an API Gateway REST API whose one resource is /{proxy+}: it turns a request into the
// proxy event, runs a Lambda function and turns its reply into the response.
//
// New serves an integration with response transfer mode STREAM: the function replies with a prelude (status and headers),
// eight NUL bytes and a body that passes chunk by chunk. NewBuffered serves the older kind: a JSON object with the body as
// a string. A function must be of the kind its integration is; the wrong one is a 502 here as on AWS.
//
// What the function must not see never reaches it: a body over 10 MB, a header over 10,240 bytes, a Host that isn't ours, a
// request with an Origin. What fails on the way is answered by a gateway response (errors.go), as Options.Responses sets it
// up. Front.Inject makes more fail.
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
	"strings"
	"sync"
	"time"

	"github.com/llm-queue/llmq/local/cloud/internal/ids"
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

	// Timeout bounds the wait for the reply, and a streamed reply as a whole: 50ms to 15min. Then the answer is 504, or a
	// stream is cut. A buffered integration gets at most 29s of it, which is AWS's limit without a quota request.
	Timeout time.Duration

	// IdleTimeout cuts a stream in which nothing comes for so long, the wait for its first byte included, which is then a
	// 504: 5min, or 30s for an edge-optimised API.
	IdleTimeout time.Duration

	// MaxBody bounds a request's body, and MaxHeader its line and the values of its header together; both in bytes, and
	// neither can be raised on AWS.
	MaxBody   int64
	MaxHeader int

	// Responses are the API's gateway responses by type, such as INTEGRATION_FAILURE; DEFAULT_4XX and DEFAULT_5XX stand
	// for types that are missing. Nil is an API that sets up none.
	Responses map[string]Response

	// Users may sign their requests for execute-api in Region. A signature that doesn't hold is refused; a request without one goes on to
	// the function, which knows no user then.
	Users  []User
	Region string

	Logger *slog.Logger // never given headers, bodies or paths; nil discards
}

// DefaultOptions returns AWS's limits for a Regional API in STREAM mode, the gateway responses of the deployed door, and
// made-up ids.
func DefaultOptions() Options {
	return Options{
		Stage: "local", AccountID: "000000000000", APIID: "local", Timeout: 15 * time.Minute, IdleTimeout: 5 * time.Minute,
		MaxBody: maxBody, MaxHeader: maxHeader, Responses: Deployed(), Region: "us-east-1",
	}
}

// Limits of the gateway.
const (
	maxBody     = 10 << 20         // bytes of a request
	maxHeader   = 10_240           // bytes of a request's line and header values
	maxPrelude  = 16 << 10         // bytes of a streamed reply, delimiter included
	maxBuffered = 29 * time.Second // wait for a buffered reply
)

func (o *Options) check() error {
	var faults []error
	if o.Function == "" || o.Stage == "" || o.AccountID == "" || o.APIID == "" {
		faults = append(faults, errors.New("function, stage, account id and API id are required"))
	}
	if o.Timeout < 50*time.Millisecond || o.Timeout > 15*time.Minute {
		faults = append(faults, fmt.Errorf("timeout %v is not within 50ms and 15m", o.Timeout))
	}
	if len(o.Users) > 0 && o.Region == "" {
		faults = append(faults, errors.New("users sign for a region"))
	}
	if o.IdleTimeout <= 0 {
		faults = append(faults, fmt.Errorf("idle timeout %v is not positive", o.IdleTimeout))
	}
	if o.MaxBody <= 0 || o.MaxBody > maxBody || o.MaxHeader <= 0 || o.MaxHeader > maxHeader {
		faults = append(faults, fmt.Errorf("body of %d and header of %d bytes are not within 1 and %d, and 1 and %d", o.MaxBody, o.MaxHeader, maxBody, maxHeader))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("front: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// New returns a handler for a STREAM integration.
func New(opts Options, functions streamer) (*Front, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	f := &Front{opts: opts}
	f.integrate = func(w http.ResponseWriter, r *http.Request, id string, event []byte) {
		f.stream(w, r, id, event, functions)
	}
	return f, nil
}

// NewBuffered returns a handler for an integration that buffers.
func NewBuffered(opts Options, functions invoker) (*Front, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	opts.Timeout = min(opts.Timeout, maxBuffered)
	f := &Front{opts: opts}
	f.integrate = func(w http.ResponseWriter, r *http.Request, id string, event []byte) {
		f.buffered(w, r, id, event, functions)
	}
	return f, nil
}

// Front is an API before a function, an http.Handler.
type Front struct {
	opts      Options
	integrate func(w http.ResponseWriter, r *http.Request, requestID string, event []byte)

	mu     sync.Mutex // guards faults
	faults []*Fault
}

// ServeHTTP answers one request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := ids.UUID()
	w.Header().Set("X-Amzn-Requestid", id)
	switch {
	case !f.ours(r):
		f.fail(w, id, forbidden, nil)
		return
	case headerSize(r) > f.opts.MaxHeader:
		f.fail(w, id, headerTooLarge, nil)
		return
	case strings.ContainsAny(r.URL.RawQuery, "|{}"):
		f.fail(w, id, badRequest, nil) // they must be encoded
		return
	case r.ContentLength > f.opts.MaxBody:
		f.fail(w, id, requestTooLarge, nil)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, f.opts.MaxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			f.fail(w, id, requestTooLarge, nil)
			return
		}
		f.fail(w, id, badRequest, nil) // cut off; most likely nobody is there to read this
		return
	}
	var by *User
	if len(f.opts.Users) > 0 && signed(r) {
		if by, err = f.opts.signer(r, body, time.Now()); err != nil {
			f.refuse(w, id, err)
			return
		}
	}
	event, err := f.event(r, id, body, by, time.Now())
	if err != nil {
		f.fail(w, id, noFunction, err)
		return
	}
	if w = f.struck(w, r, id); w != nil {
		f.integrate(w, r, id, event)
	}
}

// headerSize is what the gateway's limit counts: the request line and the values of the header.
func headerSize(r *http.Request) int {
	size := len(r.Method) + len(r.RequestURI) + len(r.Proto) + len("  \r\n") + len(r.Host)
	for _, values := range r.Header {
		for _, v := range values {
			size += len(v)
		}
	}
	return size
}
