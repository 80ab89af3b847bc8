package cassette_test

import (
	"bytes"
	"compress/bzip2"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
)

const token = "tok0123456789abcdefXYZ"

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// says answers with these very bytes and headers, which a server of net/http would mend.
func says(body string, h http.Header) http.RoundTripper {
	return transportFunc(func(r *http.Request) (*http.Response, error) {
		if h == nil {
			h = http.Header{}
		}
		return &http.Response{StatusCode: 200, Header: h.Clone(), Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}, nil
	})
}

// exchange records one, and returns the files and what Close says.
func exchange(t *testing.T, secrets []string, body, reply string, h http.Header, edit ...func(*http.Request)) (*rig, error) {
	t.Helper()
	r := &rig{dir: t.TempDir()}
	tape, err := cassette.New(cassette.Options{Dir: r.dir, Mode: cassette.Record, Env: recordEnv(), Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	mustSend(t, &http.Client{Transport: tape.Wrap(says(reply, h))}, "http://h.example/v1/x", body, edit...)
	return r, tape.Close()
}

func packed(t *testing.T, make func(io.Writer) io.WriteCloser, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := make(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// SEC31: nothing that can't be read is stored, whoever says what about its coding.
func TestSecrets_WhatCantBeReadIsRefused(t *testing.T) {
	t.Parallel()
	gz := func(s string) string {
		return packed(t, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, s)
	}
	zl := packed(t, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, token)
	deflated := packed(t, func(w io.Writer) io.WriteCloser {
		f, err := flate.NewWriter(w, flate.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}, strings.Repeat(token, 3))
	if _, err := io.ReadAll(bzip2.NewReader(strings.NewReader("BZh91AY&SY"))); err == nil {
		t.Fatal("half a bzip2 file is read")
	}
	for _, tt := range []struct {
		name, body string
		codings    []string
	}{
		{"gzip and more behind it", gz(token) + "junk", []string{"gzip"}},
		{"gzip that is cut off", gz(token)[:20], []string{"gzip"}},
		{"gzip that is none", "plain text", []string{"gzip"}},
		{"gzip in gzip", gz(gz(token)), []string{"gzip"}},
		{"gzip twice", gz(gz(token)), []string{"gzip, gzip"}},
		{"gzip twice, in two lines", gz(gz(token)), []string{"gzip", "gzip"}},
		{"x-gzip", gz(token) + "junk", []string{"X-GZIP"}},
		{"deflate", deflated, []string{"deflate"}},
		{"deflate, in the second line", deflated, []string{"identity", "deflate"}},
		{"br", "?", []string{"br"}},
		{"unheard of", "?", []string{"rot13"}},
		{"gzip, undeclared", gz(token), nil},
		{"gzip, declared as nothing", gz(token), []string{"identity"}},
		{"zlib", zl, nil},
		{"zlib, fast", "x\x01...", nil},
		{"zlib, best", "x\xda...", nil},
		{"zstd", "\x28\xb5\x2f\xfd...", nil},
		{"xz", "\xfd7zXZ\x00...", nil},
		{"lz4", "\x04\x22\x4d\x18...", nil},
		{"bzip2", "BZh91AY&SY\xff...", nil},
		{"zip", "PK\x03\x04...", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := exchange(t, []string{token}, tt.body, "{}", nil, func(req *http.Request) { req.Header["Content-Encoding"] = tt.codings })
			if err == nil || len(r.files(t)) != 0 {
				t.Errorf("request: error %v, files %v", err, r.files(t))
			}
			r, err = exchange(t, []string{token}, "{}", tt.body, http.Header{"Content-Encoding": tt.codings})
			if err == nil || len(r.files(t)) != 0 {
				t.Errorf("reply: error %v, files %v", err, r.files(t))
			}
		})
	}
	// The twins: one layer that is told is undone, and text may begin with such letters.
	for _, tt := range []struct{ body, coding string }{{gz("hello"), "gzip"}, {gz("hello"), "X-Gzip"}, {"x^2 + 1", ""}, {"BZh is not a word", "identity"}, {"PKs", ""}} {
		if r, err := exchange(t, []string{token}, tt.body, tt.body, http.Header{"Content-Encoding": {tt.coding}},
			func(req *http.Request) { req.Header.Set("Content-Encoding", tt.coding) }); err != nil || len(r.files(t)) != 1 {
			t.Errorf("%q: error %v, files %v", tt.body, err, r.files(t))
		}
	}
}

func percent(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

func escapes(s string) string {
	var b strings.Builder
	for _, c := range s {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}

// Up to three layers of any encodings, in every order, for known secrets and for shapes.
func TestScan_UndoesThreeLayers(t *testing.T) {
	t.Parallel()
	layers := []func(string) string{
		percent, escapes, url.QueryEscape,
		func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(":" + s)) },
	}
	for _, text := range []string{token, "sk-abcdefghijklmnopqrstuvwx", "s3cr3t\tvalue\r\n+&\b\f 0123456"} {
		for i, a := range layers {
			for j, b := range layers {
				for k, c := range layers {
					for _, spelled := range []string{a(text), b(a(text)), c(b(a(text)))} {
						if cassette.Scan([]byte("p="+spelled), token, "s3cr3t\tvalue\r\n+&\b\f 0123456") == nil {
							t.Errorf("%q is not found under %d, %d, %d: %s", text, i, j, k, spelled)
						}
					}
				}
			}
		}
	}
}

// Base64 is found behind other characters of its alphabet, as in a path.
func TestScan_FindsBase64BehindAnything(t *testing.T) {
	t.Parallel()
	for n := range 9 {
		text := "/path/so"[:n] + base64.StdEncoding.EncodeToString([]byte(token)) + "/more"
		if cassette.Scan([]byte(text), token) == nil {
			t.Errorf("not found in %s", text)
		}
	}
}

// Hosts are stored in small letters, and so may their caller have written them.
func TestSecrets_InAURLCapitalsDontCount(t *testing.T) {
	t.Parallel()
	for _, host := range []string{token, strings.ToLower(token), strings.ToUpper(token)} {
		r, err := exchange(t, []string{token}, "{}", "{}", nil, func(req *http.Request) { req.URL.Host = host + ".example" })
		wantRefused(t, r, err, token, host)
	}
}

// Each escape of JSON is its own character.
func TestScan_EscapesAreWhatTheySay(t *testing.T) {
	t.Parallel()
	for esc, plain := range map[string]string{`\b`: "\b", `\f`: "\f", `\n`: "\n", `\r`: "\r", `\t`: "\t", `\/`: "/", `\\`: `\`, `\"`: `"`} {
		if cassette.Scan([]byte(`{"p":"s3cr3t`+esc+`value"}`), "s3cr3t"+plain+"value") == nil {
			t.Errorf("a secret with %q is not found as %s", plain, esc)
		}
	}
}

func frame(payload string) string {
	header := "\x0b:event-type\x07\x00\x05chunk"
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(header)+len(payload)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(header)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, header...), payload...)
	return string(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

// A model that repeats a secret does so in deltas, and no line holds it whole.
func TestSecrets_OverDeltasAreFound(t *testing.T) {
	t.Parallel()
	b64 := func(s string) string {
		return `{"bytes":"` + base64.StdEncoding.EncodeToString([]byte(s)) + `","p":"abcd"}`
	}
	for _, secret := range []string{token, "sk-abcdefghijklmnopqrstuvwx"} {
		var parts []string
		for s := secret; s != ""; s = s[min(len(s), 3):] {
			parts = append(parts, s[:min(len(s), 3)])
		}
		for name, tt := range map[string]struct{ media, before, each, after string }{
			"SSE":             {"text/event-stream", "", "data: {\"delta\":\"%s\"}\n\n", "data: [DONE]\n\n"},
			"SSE of OpenAI":   {"text/event-stream", ": hello\n\n", "data: {\"id\":\"c-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"}}]}\n\n", "data: [DONE]\n\n"},
			"two choices":     {"text/event-stream", "", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"noise\"},\"index\":1}]}\n\n", ""},
			"SSE of Claude":   {"text/event-stream", "event: message_start\ndata: {\"type\":\"message_start\"}\n\n", "event: content_block_delta\r\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"%s\"}}\r\n\r\n", ""},
			"over data lines": {"text/event-stream", "", "data: {\ndata:  \"t\":\"%s\"}\n\n", ""},
			"NDJSON":          {"application/x-ndjson", "", "{\"model\":\"m\",\"response\":\"%s\"}\n", ""},
			"one document":    {"application/json", `{"content":[`, `{"type":"text","text":"%s"},`, `{}]}`},
		} {
			body := tt.before
			for _, p := range parts {
				body += fmt.Sprintf(tt.each, p)
			}
			body += tt.after
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r, err := exchange(t, []string{token}, "{}", body, http.Header{"Content-Type": {tt.media}})
				wantRefused(t, r, err, secret)
			})
		}
		var converse, invoke string
		for _, p := range parts {
			converse += frame(`{"contentBlockIndex":0,"delta":{"text":"` + p + `"},"p":"abcdefgh"}`)
			invoke += frame(b64(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + p + `"}}`))
		}
		for name, body := range map[string]string{"frames": converse, "frames of base64": invoke, "frames that break off": converse[:len(converse)-3]} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if cassette.Scan([]byte(body), token) == nil {
					t.Error("it is not found in the bytes themselves")
				}
				r, err := exchange(t, []string{token}, "{}", body, http.Header{"Content-Type": {"application/vnd.amazon.eventstream"}})
				wantRefused(t, r, err, secret)
			})
		}
	}
}

// An id inside a secret is no reason not to find it.
func TestSecrets_AroundAnIDAreFound(t *testing.T) {
	t.Parallel()
	const around = "org-AbCdEfGhIjKlMnOpQrSt:hunter2hunter2"
	for name, edit := range map[string]func(*http.Request){
		"path":   func(r *http.Request) { r.URL.Path = "/v1/" + around },
		"query":  func(r *http.Request) { r.URL.RawQuery = "api-version=" + url.QueryEscape(around) },
		"header": func(r *http.Request) { r.Header.Set("Accept", around) },
		"host":   func(r *http.Request) { r.URL.Host = "org-AbCdEfGhIjKlMnOpQrSt.hunter2hunter2" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := exchange(t, []string{around, "org-AbCdEfGhIjKlMnOpQrSt.hunter2hunter2"}, "{}", "{}", nil, edit)
			wantRefused(t, r, err, around)
		})
	}
	for name, tt := range map[string][2]string{"request": {`{"p":"` + around + `"}`, "{}"}, "text": {around, "{}"}, "reply": {"{}", around}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := exchange(t, []string{around}, tt[0], tt[1], nil)
			wantRefused(t, r, err, around)
		})
	}
	r, err := exchange(t, []string{around}, "{}", "{}", http.Header{"X-Ratelimit-Of": {around}})
	wantRefused(t, r, err, around)
}

// Credentials are known in whichever form a request carries them.
func TestSecrets_CredentialsAreTakenApart(t *testing.T) {
	t.Parallel()
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, edit := range map[string]func(*http.Request){
		"cookie":                header("Cookie", "a=b; session="+token+"; c=d"),
		"quoted cookie":         header("Cookie", `session="`+token+`"`),
		"parameter":             header("Authorization", `Token token="`+token+`", x=y`),
		"parameter of Digest":   header("Authorization", `Digest username="u", response=`+token),
		"token after blanks":    header("Authorization", "Bearer   "+token),
		"token after a tab":     header("Authorization", "Bearer\t"+token),
		"token without padding": header("Authorization", "Bearer "+token+"=="),
		"no scheme":             header("Authorization", token),
		"credential":            header("Authorization", "AWS4-HMAC-SHA256 Credential="+token+"/20260101/x/y/aws4_request, SignedHeaders=host;x-amz-date, Signature=0"),
		"basic":                 header("Authorization", "basic "+base64.RawURLEncoding.EncodeToString([]byte("u:"+token))),
		"proxy":                 header("Proxy-Authorization", "Bearer "+token),
		"any header":            header("X-Session", token),
		"any header's part":     header("X-Session", "id="+token+"; v=1"),
		"query behind ;":        func(r *http.Request) { r.URL.RawQuery = "a=1;key=" + token },
		"query that is none":    func(r *http.Request) { r.URL.RawQuery = "%zz=1&key=" + token },
		"query of a value":      func(r *http.Request) { r.URL.RawQuery = token },
		"query's escaped name":  func(r *http.Request) { r.URL.RawQuery = "api%5Fke%79=" + token },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := exchange(t, nil, "{}", "wrong: "+token+".", nil, edit)
			wantRefused(t, r, err, token)
		})
	}
	for name, edit := range map[string]func(*http.Request){
		"agent": header("User-Agent", token), "idempotency": header("Idempotency-Key", token), "type": header("Content-Language", token), "id": header("X-Client-Request-Id", token), "what Bedrock asks": header("X-Amzn-Bedrock-Accept", token),
		"signed headers": header("Authorization", "AWS4-HMAC-SHA256 Credential=x/y, SignedHeaders=a;"+token+", Signature=0"),
	} {
		t.Run("no credential: "+name, func(t *testing.T) {
			t.Parallel()
			if r, err := exchange(t, nil, "{}", "see "+token+" ", nil, edit); err != nil || len(r.files(t)) != 1 {
				t.Errorf("error %v, files %v", err, r.files(t))
			}
		})
	}
}

func TestScan_KnowsShapesOfAnyLength(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a1B2", 12)
	huge := strings.Repeat("a1B2", 3000)
	for _, key := range []string{
		"eyJ" + long + ".eyJ" + huge + ".SflKxwRJSMeK", "eyJ" + huge + ".eyJ" + long + ".SflKxwRJSMeK", "eyJ" + huge + ".eyJ" + huge, "Bearer " + huge, "sk-ant-api03-" + huge,
		"ya29." + long, "GOCSPX-" + long, "ghp_" + long, "gho_" + long, "github_pat_" + long, "glpat-" + long, "xoxb-123456789012-" + long, "xoxp-" + long, "hf_" + long, "gsk_" + long, "r8_" + long, "AIza" + long,
	} {
		for _, text := range []string{key, `{"a":"` + key + `"}`, base64.StdEncoding.EncodeToString([]byte("<<" + key + ">>"))} {
			if err := cassette.Scan([]byte(text)); err == nil {
				t.Errorf("%.40s is not found in %.60s", key, text)
			}
		}
	}
}
