package valkey

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// logTail takes the server's output: each whole line goes to the logger, and the last tailBytes
// are kept for an error. Valkey logs neither keys nor values.
type logTail struct {
	logger *slog.Logger

	mu      sync.Mutex
	tail    []byte // guarded by mu
	pending []byte // an unfinished line, at most tailBytes of it; guarded by mu
}

// Write never fails.
func (l *logTail) Write(b []byte) (int, error) {
	for _, line := range l.take(b) {
		l.logger.Debug("valkey-server", slog.String("line", line))
	}
	return len(b), nil
}

// take keeps b and returns the lines that it finished.
func (l *logTail) take(b []byte) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = last(append(l.tail, b...))
	var lines []string
	rest := append(l.pending, b...)
	for {
		line, after, found := bytes.Cut(rest, []byte("\n"))
		if !found {
			l.pending = last(rest)
			return lines
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			lines = append(lines, text)
		}
		rest = after
	}
}

// String is the end of what was written.
func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(string(l.tail))
}

// last copies the end of b that is kept, so that a large b can be freed.
func last(b []byte) []byte {
	return bytes.Clone(b[max(0, len(b)-tailBytes):])
}
