package lambda

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	maxLine  = 1 << 20 // where a line without end is cut: the largest event CloudWatch Logs takes, in bytes
	tailSize = 4 << 10 // what LogType Tail returns, in bytes
)

// pump reads one output of a process. Its run is a goroutine of the instance; drain may be called at any time, so that all
// that a process wrote before it asked for more work is known before its caller hears of the end.
type pump struct {
	r    *os.File
	raw  syscall.RawConn
	logs *tail
	over chan struct{} // closed when run has ended

	mu    sync.Mutex // one reader at a time, which also passes on what it read: lines keep their order
	lines lineWriter
	buf   [8 << 10]byte
}

// attach gives cmd pipes for its outputs, and returns their readers and what closes our copies of the other ends.
func (i *instance) attach(cmd *exec.Cmd) (pumps []*pump, closeWriters func(), err error) {
	var writers []*os.File
	closeWriters = func() {
		for _, w := range writers {
			_ = w.Close() // the process has its own
		}
	}
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeWriters()
			for _, p := range pumps {
				_ = p.r.Close() // nothing was read
			}
			return nil, nil, fmt.Errorf("pipe: %w", err)
		}
		writers = append(writers, w)
		raw, err := r.SyscallConn()
		if err != nil {
			panic(err) // only a closed file has none
		}
		pumps = append(pumps, &pump{r: r, raw: raw, logs: &i.logs, over: make(chan struct{}), lines: i.lines()})
	}
	cmd.Stdout, cmd.Stderr = writers[0], writers[1]
	return pumps, closeWriters, nil
}

// run reads until the last writer has closed the pipe, or until finish gives up.
func (p *pump) run() {
	defer close(p.over)
	_ = p.raw.Read(p.read) // an error is finish's, and means the same as the end
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines.flush()
}

// drain takes what the process has written so far.
func (p *pump) drain() {
	_ = p.raw.Control(func(fd uintptr) { p.read(fd) }) // an error means that the pipe is closed and so empty
}

// finish waits until the output of a dead process has been read; for a while only, should something outside its group hold
// the pipe.
func (p *pump) finish() {
	timer := time.NewTimer(pipeGrace)
	defer timer.Stop()
	select {
	case <-p.over:
	case <-timer.C:
	}
	_ = p.r.Close() // ends run
}

// read takes what there is and says whether that was the end.
func (p *pump) read(fd uintptr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		n, err := syscall.Read(int(fd), p.buf[:])
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return false
		case err != nil || n <= 0:
			return true
		default:
			p.logs.add(p.buf[:n])
			p.lines.write(p.buf[:n])
		}
	}
}

// lineWriter hands on whole lines, each with its instance's name before it. A function must not die of a full disk under
// its log: errors of the destination are nobody's.
type lineWriter struct {
	dst    io.Writer
	prefix []byte
	rest   []byte // the beginning of a line whose end is still to come
}

func (i *instance) lines() lineWriter {
	return lineWriter{dst: i.fn.host.opts.Output, prefix: []byte("[" + i.fn.cfg.Name + " " + i.id + "] ")}
}

func (l *lineWriter) write(p []byte) {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			l.rest = append(l.rest, p...)
			if len(l.rest) >= maxLine {
				l.flush()
			}
			return
		}
		l.rest = append(l.rest, p[:end]...)
		p = p[end+1:]
		l.emit()
	}
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

// tail is the end of what an instance has written since its invocation began.
type tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(p) > tailSize {
		p = p[len(p)-tailSize:]
	}
	if over := len(t.buf) + len(p) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	t.buf = append(t.buf, p...)
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = t.buf[:0]
}

// report is the last 4 KB of an invocation's log, with the lines that the platform writes around it.
func (t *tail) report(inv *invocation, memoryMB, usedMB int, billedMS int64, outcome string) []byte {
	t.mu.Lock()
	text := bytes.Clone(t.buf)
	t.mu.Unlock()
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	log := fmt.Appendf(nil, "START RequestId: %s Version: %s\n%sEND RequestId: %s\n", inv.id, version, text, inv.id)
	log = fmt.Appendf(log, "REPORT RequestId: %s\tDuration: %.2f ms\tBilled Duration: %d ms\tMemory Size: %d MB\tMax Memory Used: %d MB\t",
		inv.id, ms(inv.ran), billedMS, memoryMB, usedMB)
	if inv.initTook > 0 {
		log = fmt.Appendf(log, "Init Duration: %.2f ms\t", ms(inv.initTook))
	}
	log = append(log, outcome...)
	log = append(log, '\n')
	return log[max(0, len(log)-tailSize):]
}
