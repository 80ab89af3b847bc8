package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxRequestBytes bounds a request body; above it the answer is 413.
	maxRequestBytes = 32 << 20
	// defaultLogCalls and defaultCaptureBytes bound the call log when Options don't.
	defaultLogCalls     = 2000
	defaultCaptureBytes = 64 << 10
)

// Options say who may call a Server and what it keeps. The zero value lets nobody in.
type Options struct {
	// APIKeys are the bearer tokens that both wires take.
	APIKeys []string
	// AccessKeys are the AWS access key ids that the Bedrock wire takes in a SigV4 signature. The
	// signature itself is not verified, so treat them as secrets.
	AccessKeys []string
	// AdminKey is the bearer token of the admin API; empty turns that API off.
	AdminKey string
	// Models are the model ids that exist, in the order of GET /v1/models. Empty means that every
	// id exists and that the list is empty.
	Models []string
	// Hosts are further names that a request's Host may have, "name" with any port or
	// "name:port". 127.0.0.1, ::1 and localhost with the server's own port are always allowed,
	// and nothing else is, which keeps web pages of other sites out.
	Hosts []string
	// LogCalls is how many of the latest calls are kept; 0 means 2,000.
	LogCalls int
	// CaptureBytes is how much of each request's body the log keeps; 0 means 64 KiB. All bodies
	// together keep at most 32 MiB: the oldest calls leave first.
	CaptureBytes int
	// Logger gets one debug line a call, without keys and bodies. Nil discards it.
	Logger *slog.Logger
}

// Server is the fake provider. It is an [http.Handler], and safe for concurrent use.
type Server struct {
	opts   Options
	keys   keyring
	access keyring
	admin  keyring
	logger *slog.Logger
	state  *state
	closed chan struct{} // closed by Close
	close  func()
}

var _ http.Handler = (*Server)(nil)

// New makes a Server. It starts no goroutine; Close ends calls that wait.
func New(opts Options) (*Server, error) {
	var faults []error
	for name, keys := range map[string][]string{"APIKeys": opts.APIKeys, "AccessKeys": opts.AccessKeys} {
		if slices.Contains(keys, "") {
			faults = append(faults, fmt.Errorf("%s: an empty key would let everybody in", name))
		}
	}
	if opts.LogCalls < 0 || opts.CaptureBytes < 0 {
		faults = append(faults, errors.New("LogCalls and CaptureBytes: want 0 or more"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("fakellm options: %w", err)
	}
	if opts.LogCalls == 0 {
		opts.LogCalls = defaultLogCalls
	}
	if opts.CaptureBytes == 0 {
		opts.CaptureBytes = defaultCaptureBytes
	}
	s := &Server{
		opts:   opts,
		keys:   newKeyring(opts.APIKeys...),
		access: newKeyring(opts.AccessKeys...),
		logger: opts.Logger,
		state:  newState(opts.LogCalls),
		closed: make(chan struct{}),
	}
	if opts.AdminKey != "" {
		s.admin = newKeyring(opts.AdminKey)
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	return s, nil
}

// Close ends every call that waits, now and later, by dropping its connection, so that an
// http.Server around it can shut down. It may be called more than once.
func (s *Server) Close() { s.close() }

// ServeHTTP routes by path: /_admin, /model/… (Bedrock), everything else OpenAI.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	isAdmin := path == adminPrefix || strings.HasPrefix(path, adminPrefix+"/")
	wi := s.wireFor(path)
	if message := s.refuseBrowser(r); message != "" {
		if isAdmin {
			writeAdminError(w, http.StatusForbidden, message)
			return
		}
		write(w, wi.fault(fault{status: http.StatusForbidden, message: message}, requestID()))
		return
	}
	if isAdmin {
		s.serveAdmin(w, r)
		return
	}
	s.serveCall(w, r, wi)
}

func (s *Server) wireFor(path string) wire {
	if strings.HasPrefix(path, "/model/") {
		return bedrockWire{keys: s.keys, access: s.access, models: s.opts.Models}
	}
	return openAIWire{keys: s.keys, models: s.opts.Models}
}

// wire is one provider's protocol. It has no state.
type wire interface {
	name() string
	// authenticate finds who is calling. A nil fault lets the call in.
	authenticate(r *http.Request) (identity, *fault)
	// parse reads a call of the route that r asks for.
	parse(r *http.Request, body []byte) (ask, *fault)
	// fault writes an error as the provider does. Where f leaves a field empty, the provider's
	// own choice for its status or code is filled in.
	fault(f fault, id string) reply
}

// identity is who calls, as the log and the counters know it.
type identity struct {
	keyHash string // of the bearer token or the access key id
	region  string // of the SigV4 credential scope; empty for a bearer token
}

// ask is a call that was understood.
type ask struct {
	operation string // "chat", "embeddings", "models", "converse"
	model     string // empty for "models"
	// answer makes the normal reply. took is how long the call has waited so far.
	answer func(id string, took time.Duration) reply
}

// fault is an error before it has a wire's shape.
type fault struct {
	status  int    // 0: the wire's status for code
	code    string // OpenAI's "code", or the name of Bedrock's exception
	kind    string // OpenAI's "type"
	param   string // OpenAI's "param"
	message string
	model   string // for messages that name it
}

// reply is a whole response.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func write(w http.ResponseWriter, re reply) {
	header := w.Header()
	for name, values := range re.header {
		header[name] = values
	}
	w.WriteHeader(re.status)
	_, _ = w.Write(re.body) // a client that left needs no answer
}

// serveCall takes one call of a wire through its life.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, wi wire) {
	call := &call{id: requestID(), record: Call{At: time.Now(), Wire: wi.name(), Path: r.URL.EscapedPath()}}
	call.record.Header = visible(r.Header)
	a, f := s.understand(w, r, wi, &call.record)
	if f != nil {
		call.record.Outcome = Refused
		s.finish(r.Context(), w, call, wi.fault(*f, call.id))
		return
	}
	if a.operation == operationModels { // nothing runs, so nothing is programmed, slow or in flight
		call.record.Outcome = Replied
		s.finish(r.Context(), w, call, a.answer(call.id, 0))
		return
	}
	p := s.state.begin(call)
	call.record.Outcome = s.wait(r.Context(), call, p)
	switch call.record.Outcome {
	case Replied:
		s.finish(r.Context(), w, call, p.reply(wi, a, call))
	case Refused, Aborted, Reset:
		s.finish(r.Context(), w, call, reply{})
		dropConnection(w)
	}
}

// understand reads r and says what it asks for; what it finds goes into the record.
func (s *Server) understand(w http.ResponseWriter, r *http.Request, wi wire, record *Call) (ask, *fault) {
	who, f := wi.authenticate(r)
	if f != nil {
		return ask{}, f
	}
	record.KeyHash, record.Region = who.keyHash, who.region
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return ask{}, &fault{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("The request is larger than %d bytes.", maxRequestBytes)}
	} else if err != nil {
		return ask{}, &fault{status: http.StatusBadRequest, message: "The request body could not be read."}
	}
	record.captureBody(body, s.opts.CaptureBytes)
	a, f := wi.parse(r, body)
	record.Operation, record.Model = a.operation, a.model
	return a, f
}

// finish logs the call and, if there is something to say, says it; in that order (see the
// package's documentation).
func (s *Server) finish(ctx context.Context, w http.ResponseWriter, call *call, re reply) {
	call.record.Status = re.status
	call.record.Duration = time.Since(call.record.At)
	record := s.state.end(call)
	s.logger.LogAttrs(ctx, slog.LevelDebug, "call",
		slog.Uint64("seq", record.Seq),
		slog.String("wire", record.Wire),
		slog.String("operation", record.Operation),
		slog.String("model", record.Model),
		slog.String("outcome", string(record.Outcome)),
		slog.Int("status", record.Status),
		slog.Duration("took", record.Duration),
	)
	if re.status != 0 {
		write(w, re)
	}
}

// requestID makes an id that no other call has; replies carry it in the header of their wire.
func requestID() string { return strings.ToLower(rand.Text()) }
