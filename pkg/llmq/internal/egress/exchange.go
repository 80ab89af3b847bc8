package egress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

// Reply is a whole HTTP answer, read within the limits.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte // outside 2xx empty when it was too large, compressed or cut off: the status says enough
}

// OK reports whether the status is 2xx.
func (r Reply) OK() bool { return r.Status/100 == 2 }

// RequestID is the value of the header that the provider puts its id of the exchange into, made
// harmless; at most 128 characters.
func (r Reply) RequestID(header string) string {
	return provider.CleanToken(r.Header.Get(header), llmq.MaxIDBytes)
}

// Do makes one exchange and reads the reply to its end. Every status is a Reply; a redirect is one
// too. An error is a *[provider.Error] and means that there was no reply, or none that may be used.
//
// Nothing is sent twice. net/http repeats a request by itself only when a kept connection proves
// dead before a byte of the request was written, which the provider can't notice, or when the
// method or an Idempotency-Key header says that repeating is harmless, which callers must avoid.
// req must not be used afterwards.
func (c *Client) Do(req *http.Request) (Reply, error) {
	ctx := req.Context()
	resp, err := c.begin(req)
	if err != nil {
		return Reply{}, fault(ctx, err)
	}
	defer resp.Body.Close() // Nothing is written through it; a fault showed in the read.

	reply := Reply{Status: resp.StatusCode, Header: resp.Header}
	limit := int64(MaxBodyBytes)
	if !reply.OK() {
		limit = maxErrorBodyBytes
	}
	body, err := readBody(resp, limit)
	switch {
	case err == nil:
		reply.Body = body
	case reply.OK() || ctx.Err() != nil:
		f := fault(ctx, fmt.Errorf("read the reply of %s: %w", c.base.Host, err))
		f.Status = reply.Status
		return Reply{}, f
	}
	return reply, nil
}

// begin sends the request and returns the reply with its body unread.
func (c *Client) begin(req *http.Request) (*http.Response, error) {
	if !c.owns(req.URL) || req.Host != "" && req.Host != req.URL.Host {
		return nil, fmt.Errorf("request to %s: %w", req.URL.Host, errOrigin)
	}
	req.Header.Set("User-Agent", userAgent())
	// net/http must neither ask for compression nor undo it: a few KB can inflate to GB.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := c.exchange.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", c.base.Host, err)
	}
	return resp, nil
}

// readBody reads at most limit bytes, and does not begin to read what announces more.
func readBody(resp *http.Response, limit int64) ([]byte, error) {
	if err := checkEncoding(resp); err != nil {
		return nil, err
	}
	if resp.ContentLength > limit {
		return nil, fmt.Errorf("%w: %d bytes announced, %d allowed", errTooLarge, resp.ContentLength, limit)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return body, nil
}

func checkEncoding(resp *http.Response) error {
	if enc := strings.TrimSpace(resp.Header.Get("Content-Encoding")); enc != "" && !strings.EqualFold(enc, "identity") {
		return fmt.Errorf("%w: Content-Encoding is %q", errEncoded, llmq.Clip(enc, 40))
	}
	return nil
}

// byteOrderMark may precede the JSON of some servers (case H19e); JSON itself does not allow it.
var byteOrderMark = []byte("\xef\xbb\xbf")

// JSON returns the body of a 2xx reply as it came, but for a byte order mark, once it is known to
// be valid JSON, and an object or a list. Otherwise it returns a *[provider.Error]:
//
//   - a page, a blank body, one that ends early, or a mere null is a passing fault of something on the way;
//   - whole JSON with an error inside (-Infinity, for instance, case H19d) would come again, and be
//     paid for again, so this target is given up, as is one that streams what nobody asked it to.
func (r Reply) JSON() ([]byte, error) {
	bad := func(class provider.Class, format string, args ...any) error {
		return &provider.Error{Class: class, Code: llmq.CodeProviderError, Status: r.Status, Message: fmt.Sprintf(format, args...)}
	}
	switch media, ok := r.media(); {
	case media == "text/event-stream":
		return nil, bad(provider.TargetFatal, "the provider answered %d with a stream, which the call did not ask for", r.Status)
	case !ok:
		return nil, bad(provider.Retryable, "the provider answered %d with something that is not JSON", r.Status)
	}
	body := bytes.TrimPrefix(r.Body, byteOrderMark)
	if json.Valid(body) {
		switch first := bytes.TrimLeft(body, " \t\r\n")[0]; {
		case first != '{' && first != '[':
			return nil, r.NoReply()
		case !utf8.Valid(body):
			return nil, bad(provider.TargetFatal, "the provider answered %d with JSON that is not in UTF-8", r.Status)
		case tooDeep(body):
			return nil, bad(provider.TargetFatal, "the provider answered %d with JSON of more than %d levels", r.Status, maxDepth)
		}
		return body, nil
	}
	var whole json.RawMessage
	syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(body, &whole))
	begun := bytes.HasPrefix(bytes.TrimSpace(body), []byte("{"))
	if ok && begun && syntax.Offset < int64(len(body)) {
		return nil, bad(provider.TargetFatal, "the provider answered %d with invalid JSON, wrong at byte %d", r.Status, syntax.Offset)
	}
	return nil, bad(provider.Retryable, "the provider answered %d with no JSON or only a part of it", r.Status)
}

// NoReply is the error of JSON that is not what was asked for, such as null.
func (r Reply) NoReply() *provider.Error {
	return &provider.Error{
		Class: provider.Retryable, Code: llmq.CodeProviderError, Status: r.Status, Kind: "bad_reply",
		Message: fmt.Sprintf("the provider answered %d with JSON that is no reply", r.Status),
	}
}

// Lacks is the error of JSON without the member that makes it a reply to its op: something on the way, or a server that is not
// well, answered in the model's place.
func (r Reply) Lacks(member string) *provider.Error {
	return &provider.Error{
		Class: provider.Retryable, Code: llmq.CodeProviderError, Status: r.Status, Kind: "bad_reply",
		Message: fmt.Sprintf("the provider answered %d with a reply that has no %s", r.Status, member),
	}
}

// media is the reply's media type, and whether that is JSON.
func (r Reply) media() (media string, isJSON bool) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return media, err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// Sound reports whether b is valid JSON in UTF-8 that nests no deeper than a result may.
func Sound(b []byte) bool { return json.Valid(b) && utf8.Valid(b) && !tooDeep(b) }

// maxDepth bounds how deep a reply's JSON nests. A result holds it one level deeper, and
// must still be read by decoders that stop at 10,000.
const maxDepth = 1000

// tooDeep reports whether valid JSON nests deeper than [maxDepth].
func tooDeep(body []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
