package claims

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// BodyHash is the identity of what r asks for: operation, model reference, body and the headers that go with it.
// The order of a JSON object's members and the space between tokens don't count;
// numbers count as written, since 1 and 1.0 may not be the same to a provider. The
// body has passed the strict JSON check; one that is no JSON is hashed as it is.
func BodyHash(r llmq.Request) string {
	body := jsontext.Value(r.Body).Clone()
	if err := body.Format(
		jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false),
	); err != nil {
		body = r.Body
	}
	h := sha256.New()
	for _, part := range []string{string(r.Op), r.Model.String()} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	h.Write(body)
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		h.Write([]byte("\x00" + name + ":" + r.Headers[name]))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
