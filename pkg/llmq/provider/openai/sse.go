package openai

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// errEventTooLarge says that one event has more bytes than [provider.MaxEventBytes].
var errEventTooLarge = errors.New("an event of the stream is too large")

// sseEvent is one server-sent event. Its data is valid until the next one is read.
type sseEvent struct {
	name string
	data []byte // its lines, joined by line feeds
}

// sseReader reads server-sent events, as the HTML standard describes them, from bytes that may be cut anywhere.
type sseReader struct {
	src   *bufio.Reader
	most  int // bytes of one event
	begun bool
	line  []byte
	data  []byte
	crlf  bool // the last line ended with a carriage return: a line feed that follows is its own
}

func newSSEReader(r io.Reader, most int) *sseReader {
	return &sseReader{src: bufio.NewReaderSize(r, 32<<10), most: most}
}

// next reads the next event that has data. Comments and fields that mean nothing here are passed by. At the
// end of the input it returns io.EOF, and what was begun by then is lost: nobody knows whether it was whole. The one
// exception is the mark that ends a stream, which some servers send as their last bytes.
func (s *sseReader) next() (sseEvent, error) {
	var name string
	var some bool
	s.data = s.data[:0]
	for {
		line, err := s.readLine()
		if err != nil {
			if errors.Is(err, io.EOF) && bytes.HasPrefix(line, []byte("data:")) && !some {
				if _, value := field(line); string(value) == doneMark {
					return sseEvent{name: name, data: value}, nil
				}
			}
			return sseEvent{}, err
		}
		if len(line) == 0 {
			if some {
				return sseEvent{name: name, data: s.data}, nil
			}
			name = ""
			continue
		}
		switch key, value := field(line); key {
		case "event":
			name = string(value)
		case "data":
			if some {
				s.data = append(s.data, '\n')
			}
			if s.data, some = append(s.data, value...), true; len(s.data) > s.most {
				return sseEvent{}, errEventTooLarge
			}
		}
	}
}

// field splits a line into its name and value; a comment has the name "".
func field(line []byte) (name string, value []byte) {
	before, after, _ := bytes.Cut(line, []byte(":"))
	return string(before), bytes.TrimPrefix(after, []byte(" "))
}

// readLine reads one line without its end: a line feed, a carriage return, or both. With io.EOF it returns what had
// no end.
func (s *sseReader) readLine() ([]byte, error) {
	s.line = s.line[:0]
	for {
		c, err := s.src.ReadByte()
		if err != nil {
			return s.line, err
		}
		if !s.begun {
			s.begun = true
			if rest, _ := s.src.Peek(2); c == 0xef && string(rest) == "\xbb\xbf" {
				_, _ = s.src.Discard(2) // a byte order mark; they are in the buffer
				continue
			}
		}
		if wasCR := s.crlf; wasCR {
			s.crlf = false
			if c == '\n' {
				continue
			}
		}
		if c == '\n' || c == '\r' {
			s.crlf = c == '\r'
			return s.line, nil
		}
		if s.line = append(s.line, c); len(s.line) > s.most+len("data: ") {
			return nil, errEventTooLarge
		}
	}
}

// appendSSE frames data as an event, with a name where it has one.
func appendSSE(dst []byte, name string, data []byte) []byte {
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		dst = append(append(append(dst, "data: "...), line...), '\n')
	}
	return append(dst, '\n')
}
