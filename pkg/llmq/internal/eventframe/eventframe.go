// Package eventframe makes and reads the frames that AWS SDKs read as the events of a stream.
package eventframe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

// Exception is a frame that ends a stream with an error: name is the exception's as the service's model writes it, payload
// its JSON, of less than 24 MiB.
func Exception(name string, payload []byte) []byte {
	m := eventstream.Message{Payload: payload}
	m.Headers.Set(":message-type", eventstream.StringValue("exception"))
	m.Headers.Set(":exception-type", eventstream.StringValue(name))
	m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
	var b bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
		panic(fmt.Sprintf("eventframe: %s: %v", name, err)) // three short strings can be framed
	}
	return b.Bytes()
}

// Is reports whether bytes begin with a frame rather than with text: a frame begins with its length, whose first byte is 0 or 1.
func Is(b []byte) bool { return len(b) > 0 && b[0] <= maxFrameBytes>>24 }

// maxFrameBytes bounds a frame, as AWS's decoders do: 16 MiB of payload, 128 KiB of headers.
const maxFrameBytes = 16<<20 + 128<<10 + 16

// Next reads the frame that b begins with: its kind (of event or exception), its payload, and how many bytes it has. What is no
// whole frame, or has a wrong checksum, is an error.
func Next(b []byte) (kind string, payload []byte, n int, err error) {
	const least = 16 // two lengths, two checksums
	if len(b) < least {
		return "", nil, 0, errors.New("eventframe: cut short")
	}
	size := binary.BigEndian.Uint32(b)
	if size < least || size > maxFrameBytes || int(size) > len(b) {
		return "", nil, 0, errors.New("eventframe: no frame of its length")
	}
	m, err := eventstream.NewDecoder().Decode(bytes.NewReader(b[:size]), nil)
	if err != nil {
		return "", nil, 0, fmt.Errorf("eventframe: %w", err)
	}
	for _, name := range []string{":event-type", ":exception-type"} {
		if v := m.Headers.Get(name); v != nil {
			kind = v.String()
		}
	}
	return kind, m.Payload, int(size), nil
}
