package opbody

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Reach is what the bodies sent to one target may reach besides the model (SECURITY-DESIGN IN5, EG4). The zero value is
// nothing.
type Reach struct {
	HostedTools []string // tools that the provider runs itself, by their type; "web_search" is its dated versions too
	RemoteMedia bool     // media by http and https URLs, which the provider fetches
	// Routed is of an endpoint that chooses models and vendors by members of the body, as OpenRouter does: what the
	// configuration chose would not hold.
	Routed bool
}

// Check is [Check] and refuses what is out of reach besides. It is for the bytes that are sent, after all changes to them.
func (r Reach) Check(op llmq.Op, body []byte) error { return check(op, body, &r) }

// Check refuses what no target serves: an input of embeddings that is none anywhere; output bounded by what is no plain number; a body that says where to send it,
// or with which key; and what lies under the provider's account or in this deployment's buckets, which is all tenants' together. The
// body has passed strictjson. An error is [llmq.CodeInvalidRequest], or [llmq.CodeUnsupported] for what a vendor
// would take, and names the field.
func Check(op llmq.Op, body []byte) error { return check(op, body, nil) }

func check(op llmq.Op, body []byte, r *Reach) error {
	if op == llmq.OpJob { // it is its function's own, and reaches no provider
		return nil
	}
	top := gjson.ParseBytes(body)
	if err := counts(op, top); err != nil {
		return err
	}
	if op == llmq.OpEmbeddings {
		if err := checkInput(top.Get("input")); err != nil {
			return err
		}
	}
	// One pass, whatever the depth. Names given twice are strictjson's affair; here each of them is looked at.
	w := walker{op: op, reach: r, dec: jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	w.value("")
	if _, err := w.dec.ReadToken(); w.err == nil && !errors.Is(err, io.EOF) {
		w.err = llmq.Errorf(llmq.CodeInvalidJSON, "the body is not one JSON value")
	}
	return w.err
}

// walker looks through a body once. It stops at the first error.
type walker struct {
	op    llmq.Op
	reach *Reach // nil where no target is known yet
	dec   *jsontext.Decoder
	err   error
}

// refuse names the member that was read last.
func (w *walker) refuse(code llmq.Code, format string, args ...any) {
	var path []string
	for token := range w.dec.StackPointer().Tokens() {
		path = append(path, token)
	}
	field := llmq.Clip(strings.Join(path, "."), 200) // its names may be anybody's
	w.err = llmq.Errorf(code, "%s "+format, append([]any{field}, args...)...).At(field)
}

// token reads one; of the kinds of the grammar alone where the body is none.
func (w *walker) token() jsontext.Token {
	t, err := w.dec.ReadToken()
	if err != nil && w.err == nil {
		w.err = llmq.Errorf(llmq.CodeInvalidJSON, "the body is not strict JSON at byte %d", w.dec.InputOffset())
	}
	return t
}

// value looks through a value that lies under a name; so do the elements of a list that does. "" is the body itself.
func (w *walker) value(under string) {
	switch w.token().Kind() {
	case '[':
		for w.err == nil && w.dec.PeekKind() != ']' {
			w.value(under)
		}
	case '{':
		for w.err == nil && w.dec.PeekKind() != '}' {
			w.member(under, w.token().String())
		}
	default:
		return
	}
	if w.err == nil {
		w.token()
	}
}

// member looks at a member whose name was read.
func (w *walker) member(under, name string) {
	kind := w.dec.PeekKind()
	if kind == 'n' || w.callers(under, name) {
		if err := w.dec.SkipValue(); err != nil {
			w.token() // says the same
		}
		return
	}
	if depth := w.dec.StackDepth(); depth == 1 || depth == 2 && under == vendorFields {
		w.first(name, kind)
	}
	w.named(name, kind)
	switch {
	case w.err != nil:
	case kind != '"':
		w.value(name)
	default:
		if text := w.token(); w.err == nil && texts[name] {
			w.text(under, name, text.String())
		}
	}
}

// vendorFields is where Converse takes members of the vendor's own wire.
const vendorFields = "additionalModelRequestFields"

// callers reports whether what a member holds is the caller's own data, in which any name may stand: a schema, labels, what a tool
// was called with or has returned.
func (w *walker) callers(under, name string) bool {
	switch name {
	case "parameters", "schema", "input_schema", "inputSchema", "outputSchema", "json", "guided_json", "metadata", "requestMetadata":
		return true
	case "input":
		return under == "toolUse" || under == "content" && w.op.Wire() != llmq.WireOpenAI
	}
	return false
}

// first looks at a member of the body itself.
func (w *walker) first(name string, kind jsontext.Kind) {
	switch name {
	case "api_base", "base_url", "api_key", "extra_body", "extra_headers":
		w.refuse(llmq.CodeInvalidRequest, "is not taken: where a call goes, and with what, the deployment's configuration says")
	case "models", "route", "provider", "plugins":
		if w.reach != nil && w.reach.Routed {
			w.refuse(llmq.CodeUnsupported, "is not served on this target: which model and vendor serve a call the deployment's configuration says")
		}
	case "prompt_cache_key", "cache_salt":
		if w.op.Wire() == llmq.WireOpenAI && kind != '"' {
			w.refuse(llmq.CodeInvalidRequest, "must be a string")
		}
	}
	if w.op != llmq.OpResponses {
		return
	}
	switch name {
	case "background":
		if kind != 'f' {
			w.refuse(llmq.CodeUnsupported, "is not served by this release; leave it out, and send the call in lane bg or bulk")
		}
	case "previous_response_id", "conversation":
		w.refuse(llmq.CodeUnsupported, "is not served by this release, which reads nothing that a provider has stored; send the earlier items in input")
	case "prompt":
		w.refuse(llmq.CodeUnsupported, "is not served by this release, which reads nothing that a provider has stored; send the prompt's text in instructions and input")
	}
}

const (
	ownRights = "is not served: it would be read with this deployment's own rights; send the bytes in the body"
	stored    = "is not served: what is stored under the provider's account belongs to all who call here; send the content in the body"
)

// named looks at a member whose name says enough.
func (w *walker) named(name string, kind jsontext.Kind) {
	switch name {
	case "s3Location":
		w.refuse(llmq.CodeUnsupported, ownRights)
	case "file_id", "file_ids", "vector_store_ids", "container_id":
		if kind == '"' || kind == '[' {
			w.refuse(llmq.CodeUnsupported, stored)
		}
	case "container":
		if kind == '"' {
			w.refuse(llmq.CodeUnsupported, stored)
		}
	case "mcp_servers":
		w.hosted("mcp")
	case "web_search_options":
		w.hosted("web_search")
	}
}

// texts are the members whose strings are looked at.
var texts = map[string]bool{ //nolint:gochecknoglobals // a table
	"uri": true, "s3Uri": true, "s3_uri": true, "image_url": true, "video_url": true, "audio_url": true, "file_url": true, "url": true,
	"type": true, "id": true, "name": true,
}

// text looks at a string.
func (w *walker) text(under, name, s string) {
	switch name {
	case "uri", "s3Uri", "s3_uri":
		if len(s) >= 5 && strings.EqualFold(s[:5], "s3://") {
			w.refuse(llmq.CodeUnsupported, ownRights)
		}
	case "image_url", "video_url", "audio_url", "file_url":
		w.media(s)
	case "url":
		switch under {
		case "image_url", "video_url", "audio_url", "file_url", "source": // source is Anthropic's
			w.media(s)
		}
	case "type":
		switch {
		case s == "item_reference" && w.op == llmq.OpResponses:
			w.refuse(llmq.CodeUnsupported, stored)
		case under == "tools" && !isListed(ownTools(), s):
			w.hosted(s)
		}
	case "id":
		if under == "container" {
			w.refuse(llmq.CodeUnsupported, stored)
		}
	case "name":
		if under == "systemTool" {
			w.hosted(s)
		}
	}
}

// media looks at the URL of an image or the like.
func (w *walker) media(s string) {
	scheme, _, _ := strings.Cut(s[:min(len(s), 10)], ":")
	switch scheme = strings.ToLower(scheme); {
	case scheme == "data":
	case scheme != "http" && scheme != "https":
		w.refuse(llmq.CodeUnsupported, "holds no URL that is served; send the bytes as a data: URL")
	case w.reach != nil && !w.reach.RemoteMedia:
		w.refuse(llmq.CodeUnsupported, "names something to fetch, which this deployment does not let this provider do (remote_media); send the bytes as a data: URL")
	}
}

// ownTools are those that the caller runs itself, on the wires that are served.
func ownTools() []string {
	return []string{
		"function", "custom", "local_shell", "apply_patch", "computer", "computer_use", // OpenAI
		"bash", "text_editor", "memory", // Anthropic
	}
}

func (w *walker) hosted(kind string) {
	if w.reach != nil && !isListed(w.reach.HostedTools, kind) {
		w.refuse(llmq.CodeUnsupported, "is the tool %s, which the provider would run and which the model's hosted_tools do not list", llmq.Clip(kind, 40))
	}
}

// isListed reports whether a kind, or the one of which it is a version, is in a list.
func isListed(list []string, kind string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return kind == l || strings.HasPrefix(kind, l+"_") })
}
