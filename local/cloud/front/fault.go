package front

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Fault is one way in which a gateway and the network before it fail. The function learns of none of them: on AWS it is
// not told either.
type Fault struct {
	// Path strikes requests whose path begins so; "" every one.
	Path string
	// Times is how many requests it strikes; 0 is all until it is removed.
	Times int

	// Delay passes before the function is called, or the request refused.
	Delay time.Duration
	// Refuse answers as the gateway does for a stage's throttle (429), without calling the function.
	Refuse bool
	// Cut breaks the client's connection once After bytes of the reply's body are passed on; with 0 before any of the
	// reply, while the function works. It works on to its end.
	Cut   bool
	After int
}

// Inject makes requests fail from now on, until remove is called or the fault is used up. Of several that strike a request
// the first injected counts. It is safe for concurrent use.
func (f *Front) Inject(fault Fault) (remove func()) {
	injected := &fault
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, injected)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults = slices.DeleteFunc(f.faults, func(other *Fault) bool { return other == injected })
	}
}

// fault is what strikes a request.
func (f *Front) fault(path string) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fault := range f.faults {
		if !strings.HasPrefix(path, fault.Path) {
			continue
		}
		struck := *fault
		if fault.Times == 1 {
			f.faults = slices.Delete(f.faults, i, i+1)
		} else if fault.Times > 1 {
			fault.Times--
		}
		return struck
	}
	return Fault{}
}

// struck lets a fault do its work. It returns where the reply goes now, or nil when there is nothing more to do.
func (f *Front) struck(w http.ResponseWriter, r *http.Request, id string) http.ResponseWriter {
	fault := f.fault(rawPath(r))
	if fault.Delay > 0 {
		timer := time.NewTimer(fault.Delay)
		defer timer.Stop()
		<-timer.C // though the client may leave: the gateway does not look
	}
	switch {
	case fault.Refuse:
		f.fail(w, id, throttled, nil)
		return nil
	case fault.Cut && fault.After <= 0:
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			reset(conn)
		}
		return nowhere{http.Header{}}
	case fault.Cut:
		return &cutting{ResponseWriter: w, left: fault.After}
	}
	return w
}

// reset closes a connection as a network that broke does.
func reset(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn() // or the client would be told in TLS's own words
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // what remains is a plain close
	}
	_ = conn.Close() // nobody is there to be told
}

// nowhere takes a reply whose client is gone.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) WriteHeader(int)             {}
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) Flush()                      {}

// cutting passes on a part of a reply.
type cutting struct {
	http.ResponseWriter
	left int
}

// Write breaks the connection when its part is passed on.
func (c *cutting) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left]) // it is about to break
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// Unwrap lets http.ResponseController flush.
func (c *cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }
