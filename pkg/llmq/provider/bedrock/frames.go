package bedrock

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

var (
	errFrameTooLarge = errors.New("a frame of the stream is too large")
	errFrame         = errors.New("the stream holds what is no frame")
)

const (
	preludeBytes = 12 // total length, length of the headers, checksum of both
	leastFrame   = 16 // the prelude and the checksum of the whole
)

// frame is one message of an event stream. Its bytes are valid until the next one is read.
type frame struct {
	raw     []byte
	kind    string // :message-type: event, exception or error
	name    string // :event-type, :exception-type or :error-code
	message string // :error-message of an error
	payload []byte
}

// frameReader reads the messages of an event stream. A frame whose checksums are wrong is none.
type frameReader struct {
	src     *bufio.Reader
	most    int // bytes of one frame
	raw     []byte
	decoder *eventstream.Decoder
}

func newFrameReader(r io.Reader, most int) *frameReader {
	return &frameReader{src: bufio.NewReaderSize(r, 32<<10), most: most, decoder: eventstream.NewDecoder()}
}

// next reads one frame. io.EOF says that the input ended behind a whole one.
func (f *frameReader) next() (frame, error) {
	var prelude [preludeBytes]byte
	if _, err := io.ReadFull(f.src, prelude[:]); err != nil {
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(prelude[:])
	headers := binary.BigEndian.Uint32(prelude[4:])
	switch {
	case size < leastFrame || headers > size-leastFrame:
		return frame{}, errFrame
	case int64(size) > int64(f.most):
		return frame{}, errFrameTooLarge
	}
	f.raw = append(f.raw[:0], prelude[:]...)
	rest := bytes.NewBuffer(f.raw)
	if n, err := io.CopyN(rest, f.src, int64(size)-preludeBytes); err != nil {
		if n > 0 || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	f.raw = rest.Bytes()
	m, err := f.decoder.Decode(bytes.NewReader(f.raw), nil)
	if err != nil {
		return frame{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	x := frame{raw: f.raw, kind: header(m, ":message-type"), payload: m.Payload}
	switch x.kind {
	case "exception":
		x.name = header(m, ":exception-type")
	case "error":
		x.name, x.message = header(m, ":error-code"), header(m, ":error-message")
	default:
		x.name = header(m, ":event-type")
	}
	return x, nil
}

// header is the string under a name, or "".
func header(m eventstream.Message, name string) string {
	if s, ok := m.Headers.Get(name).(eventstream.StringValue); ok {
		return string(s)
	}
	return ""
}
