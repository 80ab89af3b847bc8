package lambda

import (
	"bytes"
	"io"
)

// maxLine is where a line without end is cut: the largest event CloudWatch Logs takes, in bytes.
const maxLine = 1 << 20

// lineWriter hands on whole lines, each with its instance's name before it. One per output of a process; os/exec calls it
// from one goroutine, and flush comes after that has ended.
type lineWriter struct {
	dst    io.Writer
	prefix []byte
	rest   []byte // the beginning of a line whose end is still to come
}

func (i *instance) lines() *lineWriter {
	return &lineWriter{dst: i.fn.host.opts.Output, prefix: []byte("[" + i.fn.cfg.Name + " " + i.id + "] ")}
}

// Write never fails: a function must not die of a full disk under its log.
func (l *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			l.rest = append(l.rest, p...)
			if len(l.rest) >= maxLine {
				l.flush()
			}
			break
		}
		l.rest = append(l.rest, p[:end]...)
		p = p[end+1:]
		l.emit()
	}
	return n, nil
}

// flush hands on a last line that has no end.
func (l *lineWriter) flush() {
	if len(l.rest) > 0 {
		l.emit()
	}
}

func (l *lineWriter) emit() {
	line := make([]byte, 0, len(l.prefix)+len(l.rest)+1)
	line = append(append(append(line, l.prefix...), l.rest...), '\n')
	_, _ = l.dst.Write(line)
	l.rest = l.rest[:0]
}
