package llmq

import (
	"maps"
	"slices"
	"strings"
)

// MaxHeaderBytes bounds the headers of a request, names and values together.
const MaxHeaderBytes = 4 << 10

// headers are what Bedrock's InvokeModel takes beside its body, by canonical name. On other wires all of it stands in
// the body.
var headers = []string{
	"X-Amzn-Bedrock-Guardrailidentifier", "X-Amzn-Bedrock-Guardrailversion", "X-Amzn-Bedrock-Performanceconfig-Latency",
	"X-Amzn-Bedrock-Request-Metadata", "X-Amzn-Bedrock-Service-Tier", "X-Amzn-Bedrock-Trace",
}

// Headers lists the names, in canonical form, of the headers that a request of o may carry to its provider.
func (o Op) Headers() []string {
	if o.Wire() != WireInvoke {
		return nil
	}
	return slices.Clone(headers)
}

// CheckHeaders refuses headers that o does not have, or that no header line can carry.
func (o Op) CheckHeaders(h map[string]string) error {
	size := 0
	for _, name := range slices.Sorted(maps.Keys(h)) { // sorted: the same request gets the same answer
		value := h[name]
		if o.Wire() != WireInvoke || !slices.Contains(headers, name) {
			return Errorf(CodeInvalidRequest, "headers holds %q, which is not passed on with %s", Clip(name, 60), o).At("headers")
		}
		if value == "" || strings.TrimSpace(value) != value || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return Errorf(CodeInvalidRequest, "the header %s must be visible ASCII", name).At(name)
		}
		size += len(name) + len(value)
	}
	if size > MaxHeaderBytes {
		return Errorf(CodeInvalidRequest, "the headers have more than %d bytes", MaxHeaderBytes).At("headers")
	}
	return nil
}
