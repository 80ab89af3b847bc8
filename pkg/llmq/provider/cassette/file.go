package cassette

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// version of the file format. A file of a newer one is refused, as is a member that is unknown: it
// would be lost on rewriting, and might matter.
const version = 1

// recording is one exchange.
type recording struct {
	name     string // of the file
	request  request
	response response
}

// request is what is kept of a request. body and url are as they are matched; see [Key].
type request struct {
	method  string
	url     *url.URL
	header  http.Header
	body    []byte
	json    node // of body
	isJSON  bool
	secrets []string // that it carried; never written
	before  []string // what was read where ids are blanked now: a secret may have been around one
	refused error    // why it must not be written
}

// response is a reply.
type response struct {
	status int
	header http.Header
	wait   time.Duration // from the request to the header
	length int64         // that the header told; -1 when it told none
	chunks []chunk
	end    ending
}

// chunk is what came at once.
type chunk struct {
	after time.Duration // since the chunk before, or the header
	body  []byte
}

// ending is how a reply ended.
type ending string

const (
	complete ending = "complete"
	broken   ending = "broken" // the connection broke off
	closed   ending = "closed" // its reader wanted no more
)

func (r response) joined() []byte {
	var b []byte
	for _, c := range r.chunks {
		b = append(b, c.body...)
	}
	return b
}

// The form of a file. Bodies are text where they are; a request's JSON is set out in lines, for
// people and for diffs.
type (
	fileForm struct {
		Version  int          `json:"cassette"`
		Request  requestForm  `json:"request"`
		Response responseForm `json:"response"`
	}
	requestForm struct {
		Method string         `json:"method"`
		URL    string         `json:"url"`
		Header http.Header    `json:"header,omitzero"`
		JSON   jsontext.Value `json:"json,omitzero"`
		Text   *string        `json:"text,omitzero"`
		Base64 []byte         `json:"base64,omitzero"`
	}
	responseForm struct {
		Status int         `json:"status"`
		Header http.Header `json:"header,omitzero"`
		WaitMS int64       `json:"wait_ms"`
		Length *int64      `json:"length,omitzero"`
		Chunks []chunkForm `json:"chunks"`
		End    ending      `json:"end"`
	}
	chunkForm struct {
		AfterMS int64   `json:"after_ms"`
		Text    *string `json:"text,omitzero"`
		Base64  []byte  `json:"base64,omitzero"`
	}
)

// encode renders a recording. The same one gives the same bytes.
func encode(r *recording) ([]byte, error) {
	f := fileForm{
		Version: version,
		Request: requestForm{Method: r.request.method, URL: r.request.url.String(), Header: r.request.header},
		Response: responseForm{
			Status: r.response.status, Header: r.response.header, WaitMS: r.response.wait.Milliseconds(), Chunks: []chunkForm{}, End: r.response.end,
		},
	}
	if len(f.Request.Header) == 0 {
		f.Request.Header = nil
	}
	if len(f.Response.Header) == 0 {
		f.Response.Header = nil
	}
	switch {
	case r.request.isJSON:
		f.Request.JSON = r.request.body
	case len(r.request.body) > 0:
		f.Request.Text, f.Request.Base64 = textOr64(r.request.body)
	}
	if r.response.length >= 0 {
		f.Response.Length = &r.response.length
	}
	for _, c := range r.response.chunks {
		form := chunkForm{AfterMS: c.after.Milliseconds()}
		form.Text, form.Base64 = textOr64(c.body)
		f.Response.Chunks = append(f.Response.Chunks, form)
	}
	out, err := json.Marshal(f, json.Deterministic(true), jsontext.WithIndent("  "), jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append(out, '\n'), nil
}

// textOr64 is b as text, if people can read it and JSON gives it back, or else in base64.
func textOr64(b []byte) (*string, []byte) {
	if utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' }) {
		s := string(b)
		return &s, nil
	}
	return nil, b
}

// list names a folder's recordings, in the order in which they play.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of recordings: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ".json") && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	if len(names) > maxRecordings {
		return nil, fmt.Errorf("folder %s has %d recordings; at most %d are read", dir, len(names), maxRecordings)
	}
	return names, nil // ReadDir sorts
}

// read reads a file. Errors name it, and the line.
func read(dir, name string) (*recording, error) {
	path := filepath.Join(dir, name)
	data, err := readRegular(path)
	if err != nil {
		return nil, fmt.Errorf("cassette: %w", err)
	}
	r, err := decode(data)
	if err != nil {
		if at, ok := errors.AsType[*placeError](err); ok {
			return nil, fmt.Errorf("cassette: %s:%d: %w", path, at.line, at.err)
		}
		return nil, fmt.Errorf("cassette: %s: %w", path, err)
	}
	r.name = name
	return r, nil
}

// readRegular reads a file that is one: a pipe would wait for ever, a device never end, and what a
// link points to is not the folder's.
func readRegular(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s has %d bytes; at most %d are read", path, info.Size(), maxFileBytes)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	opened, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(info, opened) {
		return nil, fmt.Errorf("%s was replaced while it was read", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFileBytes)
	}
	return data, nil
}

// placeError is a fault with its line.
type placeError struct {
	line int
	err  error
}

func (e *placeError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *placeError) Unwrap() error { return e.err }

// decode reads a file's bytes, strictly.
func decode(data []byte) (*recording, error) {
	var f fileForm
	if err := json.Unmarshal(data, &f, json.RejectUnknownMembers(true)); err != nil {
		return nil, placed(data, err)
	}
	at := func(p jsontext.Pointer, format string, args ...any) error {
		return &placeError{lineOf(data, p), fmt.Errorf(format, args...)}
	}
	if f.Version != version {
		return nil, at("/cassette", "format %d is not known; this release reads %d", f.Version, version)
	}
	r := &recording{
		request:  request{method: f.Request.Method, header: f.Request.Header},
		response: response{status: f.Response.Status, header: f.Response.Header, length: -1, end: f.Response.End},
	}
	u, err := url.Parse(f.Request.URL)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, at("/request/url", "url is no absolute URL")
	}
	r.request.url = u
	if r.request.method == "" || strings.ContainsAny(r.request.method, " \r\n") {
		return nil, at("/request/method", "method is missing or malformed")
	}
	for p, h := range map[jsontext.Pointer]http.Header{"/request/header": f.Request.Header, "/response/header": f.Response.Header} {
		if !sound(h) {
			return nil, at(p, "a header's name or value is malformed")
		}
	}
	bodies := 0
	if f.Request.JSON != nil {
		bodies, r.request.body = bodies+1, f.Request.JSON
	}
	if f.Request.Text != nil {
		bodies, r.request.body = bodies+1, []byte(*f.Request.Text)
	}
	if f.Request.Base64 != nil {
		bodies, r.request.body = bodies+1, f.Request.Base64
	}
	if bodies > 1 {
		return nil, at("/request", "the request has more than one of json, text and base64")
	}
	r.request = r.request.scrubbed()
	if f.Request.JSON != nil && !r.request.isJSON {
		return nil, at("/request/json", "json is no object or array, or nests more than %d deep; use text", maxDepth)
	}
	if err := f.Response.into(&r.response, at); err != nil {
		return nil, err
	}
	return r, nil
}

func (f responseForm) into(r *response, at func(p jsontext.Pointer, format string, args ...any) error) error {
	switch {
	case f.Status < 200 || f.Status > 599:
		return at("/response/status", "status %d is not within 200 and 599", f.Status)
	case !slices.Contains([]ending{complete, broken, closed}, f.End):
		return at("/response/end", "end must be complete, broken or closed")
	case len(f.Chunks) > maxChunks:
		return at("/response/chunks", "the reply has %d chunks; at most %d are read", len(f.Chunks), maxChunks)
	case f.Length != nil && *f.Length < 0:
		return at("/response/length", "length is negative")
	}
	var ok bool
	if r.wait, ok = millis(f.WaitMS); !ok {
		return at("/response/wait_ms", "wait_ms is not within 0 and an hour")
	}
	if f.Length != nil {
		r.length = *f.Length
	}
	for i, form := range f.Chunks {
		p := jsontext.Pointer(fmt.Sprintf("/response/chunks/%d", i))
		c := chunk{body: form.Base64}
		if (form.Text == nil) == (form.Base64 == nil) {
			return at(p, "a chunk has exactly one of text and base64")
		}
		if form.Text != nil {
			c.body = []byte(*form.Text)
		}
		if c.after, ok = millis(form.AfterMS); !ok {
			return at(p+"/after_ms", "after_ms is not within 0 and an hour")
		}
		r.chunks = append(r.chunks, c)
	}
	return nil
}

// sound reports whether a header can be sent: no name or value that ends a line.
func sound(h http.Header) bool {
	for name, values := range h {
		if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c) }) {
			return false
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				return false
			}
		}
	}
	return true
}

func millis(ms int64) (time.Duration, bool) {
	if ms < 0 || ms > time.Hour.Milliseconds() {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// placed gives a decoder's error its line.
func placed(data []byte, err error) error {
	offset := int64(math.MaxInt64)
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		offset = e.ByteOffset
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		offset = e.ByteOffset
		err = fmt.Errorf("%s: not what the format has here", e.JSONPointer)
		if errors.Is(e.Err, json.ErrUnknownName) {
			err = fmt.Errorf("%s: unknown member", e.JSONPointer)
		}
	}
	return &placeError{1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n")), err}
}

// lineOf finds the line on which a value of valid JSON begins, or that of the nearest one around it.
func lineOf(data []byte, p jsontext.Pointer) int {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	for p != "" {
		dec.Reset(bytes.NewReader(data))
		for {
			if _, err := dec.ReadToken(); err != nil {
				break
			}
			if dec.StackPointer() == p {
				return 1 + bytes.Count(data[:dec.InputOffset()], []byte("\n"))
			}
		}
		p = p.Parent()
	}
	return 1
}
