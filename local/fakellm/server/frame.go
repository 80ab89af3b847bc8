package server

import (
	"bytes"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/go-json-experiment/json"
)

// eventStreamType is the content type of Amazon's event streams.
const eventStreamType = "application/vnd.amazon.eventstream"

// eventFrame is an event as Bedrock frames it.
func eventFrame(name string, payload any) []byte { return frame(":event-type", name, "event", payload) }

// exceptionFrame is an error within the stream: decoders that know only :event-type drop it (H24).
func exceptionFrame(name string, payload any) []byte {
	return frame(":exception-type", name, "exception", payload)
}

// frame panics if the payload can't be framed, which none of ours is: their size is bounded.
func frame(header, name, kind string, payload any) []byte {
	encoded, err := json.Marshal(payload)
	if err != nil {
		panic(fmt.Sprintf("fakellm: encode %T: %v", payload, err))
	}
	message := eventstream.Message{Payload: encoded}
	message.Headers.Set(header, eventstream.StringValue(name))
	message.Headers.Set(":content-type", eventstream.StringValue("application/json"))
	message.Headers.Set(":message-type", eventstream.StringValue(kind))
	var out bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&out, message); err != nil {
		panic(fmt.Sprintf("fakellm: frame %s: %v", name, err))
	}
	return out.Bytes()
}
