package cloud

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// gateway counts what API Gateway bills of an API.
type gateway struct{ requests, bytesOut atomic.Int64 }

// requestBytes is how much of a reply is billed as one request.
const requestBytes = 10 << 20

func (g *gateway) meter(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := &meteredReply{ResponseWriter: w}
		defer func() { // a reply that is cut is billed too
			g.requests.Add(1 + max(m.bytes-1, 0)/requestBytes)
			g.bytesOut.Add(m.bytes)
		}()
		h.ServeHTTP(m, r)
	})
}

// meteredReply counts a reply's bytes, those of its header about.
type meteredReply struct {
	http.ResponseWriter

	headed bool
	bytes  int64
}

// WriteHeader implements http.ResponseWriter.
func (m *meteredReply) WriteHeader(status int) {
	if status >= http.StatusOK && !m.headed {
		m.headed = true
		for name, values := range m.Header() {
			for _, v := range values {
				m.bytes += int64(len(name) + len(": \r\n") + len(v))
			}
		}
	}
	m.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (m *meteredReply) Write(p []byte) (int, error) {
	if !m.headed {
		m.WriteHeader(http.StatusOK)
	}
	n, err := m.ResponseWriter.Write(p)
	m.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController flush and hijack.
func (m *meteredReply) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// bucketMeter counts S3's requests by what they cost. Deletions are free.
type bucketMeter struct{ writes, reads atomic.Int64 }

func (b *bucketMeter) meter(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		switch {
		case r.Method == http.MethodDelete:
		case r.Method == http.MethodGet && key != "", r.Method == http.MethodHead:
			b.reads.Add(1)
		default: // PUT, POST, and GET of a bucket, which lists it
			b.writes.Add(1)
		}
		h.ServeHTTP(w, r)
	})
}

// printed is what functions print on its way to a writer: its metrics are added up, its bytes counted. Its methods may be called at
// the same time.
type printed struct {
	to    io.Writer
	sum   *telemetry.Recorder
	bytes atomic.Int64

	mu     sync.Mutex // guards series
	series map[series]time.Time
}

// series is a metric that CloudWatch takes money for.
type series struct {
	metric telemetry.Metric
	labels telemetry.Labels
}

func newPrinted(to io.Writer) *printed {
	if to == nil {
		to = io.Discard
	}
	return &printed{to: to, sum: telemetry.NewLasting(), series: map[series]time.Time{}}
}

// Write implements io.Writer, for one line led by its instance's name.
func (p *printed) Write(line []byte) (int, error) {
	if i := bytes.Index(line, []byte("] ")); i >= 0 {
		text := line[i+2:]
		p.bytes.Add(int64(len(text)))
		if bytes.HasPrefix(text, []byte("{")) && p.sum.ReadEMF(text) {
			p.saw(text, time.Now())
		}
	}
	return p.to.Write(line)
}

// saw takes down that the series of a line have a value now.
func (p *printed) saw(line []byte, now time.Time) {
	one := telemetry.NewLasting()
	one.ReadEMF(line)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range one.Samples(context.Background()) { // it asks nobody
		p.series[series{s.Metric, s.Labels}] = now
	}
}
