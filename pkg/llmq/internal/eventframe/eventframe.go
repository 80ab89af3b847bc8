// Package eventframe makes the frames that AWS SDKs read as the events of a stream.
package eventframe

import (
	"bytes"
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
