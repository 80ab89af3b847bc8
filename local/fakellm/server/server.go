package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// What bounds a request's body and the call log when Options don't.
	defaultBodyBytes    = 32 << 20
	defaultLogCalls     = 2000
	defaultCaptureBytes = 64 << 10
	defaultBodyTimeout  = time.Minute
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
	// CaptureBytes is how much of each request's body the log keeps; 0 means 64 KiB, and below 0
	// nothing, so that no prompt is kept. All bodies together keep at most 32 MiB: the oldest
	// calls leave first.
	CaptureBytes int
	// MaxBodyBytes bounds a request's body, above which the answer is 413; 0 means 32 MiB.
	MaxBodyBytes int64
	// BodyTimeout bounds the time in which a request's body must come, after which the answer is 408
	// and the connection ends; 0 means a minute. Answers may take as long as they are told to.
	BodyTimeout time.Duration
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
	if opts.LogCalls < 0 || opts.MaxBodyBytes < 0 || opts.BodyTimeout < 0 {
		faults = append(faults, errors.New("LogCalls, MaxBodyBytes and BodyTimeout: want 0 or more"))
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
	if opts.MaxBodyBytes == 0 {
		opts.MaxBodyBytes = defaultBodyBytes
	}
	if opts.BodyTimeout == 0 {
		opts.BodyTimeout = defaultBodyTimeout
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

// welcome is what GET / answers, with no key, as OpenAI's own does.
const welcome = "This is fakellm, a fake LLM provider. It speaks OpenAI's API under /v1 and Bedrock Runtime's under /model, each with its key, " +
	"and is programmed under /_admin with the admin key; local/fakellm/README.md shows how."

// ServeHTTP routes by path: / tells what this is, /_admin, /model/… (Bedrock), everything else OpenAI.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Not only while the body is read, but until it has been: an http.Server also waits for a body
	// that nobody wanted.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.opts.BodyTimeout)) // a recorder has none
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
	if path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		write(w, jsonReply(http.StatusOK, map[string]string{"message": welcome}))
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
