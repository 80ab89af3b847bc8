// Package valkey starts the state store of the local cloud: a real valkey-server as a child
// process when one is on PATH, otherwise miniredis inside this process.
//
// The child is what the deployed store is (cluster mode, one node that owns every slot), so
// scripts meet the same slot checks and the same Lua there. miniredis is a stand-in for a machine
// without valkey-server: it checks no slots, keeps digits in Lua that Valkey loses, and serves a
// tenth of the calls, so whoever starts it should say [Server.Kind] aloud.
//
// Both listen on 127.0.0.1 only, on a port that the system chose, and ask for a random password.
// In cluster mode Valkey also opens a cluster bus on loopback, which has no password of its own.
package valkey

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
)

// Engine says which server Start may use.
type Engine int

const (
	// Auto takes valkey-server when it is on PATH, else miniredis.
	Auto Engine = iota
	// Real takes valkey-server, and fails when it is not on PATH.
	Real
	// InProcess takes miniredis.
	InProcess
)

// Options are what Start may be told. The zero value asks for the best this machine has, in
// cluster mode.
type Options struct {
	// Dir is where the server's own directory (0700) is made and, by Close, removed.
	// Empty means the system's temporary directory.
	Dir string
	// Logger gets the server's own log at debug level and its unexpected end at error level.
	// Nil discards both.
	Logger *slog.Logger
	// Engine is which server to start; zero is Auto.
	Engine Engine
	// Standalone starts valkey-server without cluster mode: ready in about 60 ms instead of the
	// 2.1 s that Valkey takes to trust a new cluster, at the price of no slot checks.
	// miniredis is always standalone.
	Standalone bool
}

// ErrNotFound is returned by Start for the engine Real when valkey-server is not on PATH.
var ErrNotFound = errors.New("valkey-server is not on PATH")

// binary is the program looked for on PATH.
const binary = "valkey-server"

// backend is a running server, whichever it is.
type backend interface {
	// close stops the server, waits until it has ended and removes what it left.
	close() error
	// done is closed when the server has ended, by close or by itself.
	done() <-chan struct{}
}

// Server is a running state store. Its methods may be called from any goroutine.
type Server struct {
	addr     string
	password string
	kind     string
	cluster  bool

	mu      sync.Mutex // guards backend; held over a restart, so that Close ends what that starts
	backend backend
}

// Start starts a server and returns when it answers commands, which takes up to 2.1 s in cluster
// mode. ctx bounds the start alone; the server runs until Close, or at the latest until this
// process ends (on Linux even if that is killed). When Start fails it leaves nothing behind.
func Start(ctx context.Context, opts Options) (*Server, error) {
	logger := opts.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	password := rand.Text() // 26 characters of base32: 130 bits, safe in a config line and in a URL
	if opts.Engine == InProcess {
		return startInProcess(password)
	}
	path, err := exec.LookPath(binary)
	switch {
	case err == nil:
		return startProcess(ctx, path, password, opts, logger)
	case opts.Engine == Real:
		return nil, fmt.Errorf("start valkey: %w: %w", ErrNotFound, err)
	default:
		return startInProcess(password)
	}
}

// Addr is the server's address, 127.0.0.1:port.
func (s *Server) Addr() string { return s.addr }

// Password is what AUTH wants, for the default user. It is made anew by every Start.
func (s *Server) Password() string { return s.password }

// Cluster says whether the server is in cluster mode, so needs a cluster client.
func (s *Server) Cluster() bool { return s.cluster }

// Kind names the server for people: "valkey 8.0.1 (cluster mode)", "valkey 8.0.1 (standalone)" or
// "miniredis (in process; limits are approximate)".
func (s *Server) Kind() string { return s.kind }

// Done is closed when the server has ended, whether by Close or Restart or because it died.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backend.done()
}

// ErrNotRestartable is returned by Restart where the server is no process of its own.
var ErrNotRestartable = errors.New("miniredis can't be restarted: valkey-server is needed")

// Restart kills the server, as a crash would, and starts it again on the same address, with the
// same password and, since nothing is ever saved, without data. It returns when the server
// answers again; ctx bounds that. When it fails, the server is down.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.backend.(*process)
	if !ok {
		return ErrNotRestartable
	}
	next, err := p.restart(ctx, s.addr, s.password, s.cluster)
	if next != nil {
		s.backend = next
	}
	if err != nil {
		return fmt.Errorf("restart valkey: %w", err)
	}
	return nil
}

// Close stops the server, waits for its end and removes its directory. Data is not kept. Calling
// it again, or after the server died, is fine.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backend.close()
}
