package cassette_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
)

// secret has no shape that anybody knows, and characters that every spelling escapes.
const secret = `s3cr3t/"quoted" +&<value>\x`

// wantNone reads the raw bytes of everything in the folder and looks for what must not be there.
// It uses no code of the package.
func wantNone(t *testing.T, r *rig, values ...string) {
	t.Helper()
	for name, text := range r.files(t) {
		for _, v := range values {
			spelled, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			forms := []string{v, strings.Trim(string(spelled), `"`), url.QueryEscape(v), url.PathEscape(v)}
			for shift := range 3 {
				b64 := base64.StdEncoding.EncodeToString(append(make([]byte, shift), v...))
				forms = append(forms, b64[4:len(b64)-4])
			}
			for _, f := range forms {
				if strings.Contains(text, f) {
					t.Errorf("%s holds %q:\n%s", name, f, text)
				}
			}
		}
	}
}

// SEC31, the first half: what is in headers, the query and the URL's user never gets near the file.
func TestSecrets_InHeadersAndURLAreDropped(t *testing.T) {
	t.Parallel()
	const key, org, id, sig = "0123456789abcdef0123456789abcdef", "org-AbCdEfGhIjKlMnOpQrStUvWx", "req_fedcba9876543210fedcba9876543210", "5d41402abc4b2a76b9719d911017c592"
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("Openai-Organization", org)
		w.Header().Set("Set-Cookie", "session="+key)
		w.Header().Set("Retry-After", "3")
		_, _ = io.WriteString(w, `{"error":{"message":"Rate limit reached in organization `+org+` (Request ID: 9f86d081-884c-4d63-a1b2-0123456789ab, account 123456789012, `+id+`)"}}`)
	})
	u := strings.Replace(r.srv.URL, "http://", "http://user:"+key+"@", 1) +
		"/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A123456789012%3Ainference-profile%2Fx/converse?key=" + key + "&X-Amz-Signature=" + sig + "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20260101&api-version=1"
	if err := r.record(t, cassette.Options{}, func(c *http.Client) {
		mustSend(t, c, u, `{"model":"arn:aws:bedrock:eu-central-1:123456789012:inference-profile/x"}`, func(req *http.Request) {
			req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20260101/eu-central-1/bedrock/aws4_request, SignedHeaders=host, Signature="+sig)
			req.Header.Set("X-Amz-Security-Token", key+key)
			req.Header.Set("X-Api-Key", key)
			req.Header.Set("Openai-Organization", org)
			req.Header.Set("Cookie", "session="+key)
		})
	}); err != nil {
		t.Fatal(err)
	}
	if len(r.files(t)) != 1 {
		t.Fatalf("files %v", r.files(t))
	}
	wantNone(t, r, key, org, id, sig, "AKIAIOSFODNN7EXAMPLE", "123456789012", "9f86d081-884c-4d63-a1b2-0123456789ab")
	_, c := r.tape(t, cassette.Options{})
	// Another account, other credentials, no user: the same request.
	got := mustSend(t, c, r.srv.URL+"/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A210987654321%3Ainference-profile%2Fx/converse?api-version=1",
		`{"model":"arn:aws:bedrock:eu-central-1:210987654321:inference-profile/x"}`)
	if want := `{"error":{"message":"Rate limit reached in organization org-000000000000000000000000 (Request ID: 00000000-0000-0000-0000-000000000000, account 000000000000, req_00000000000000000000000000000000)"}}`; got != want {
		t.Errorf("got %s", got)
	}
}

// SEC31, the second half: where dropping does not help, there is no file.
func TestSecrets_InBodiesRefuseTheFile(t *testing.T) {
	t.Parallel()
	spelled := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	zip := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, s) // a buffer takes everything
		_ = z.Close()
		return b.String()
	}
	unicode := func(s string) string {
		var b strings.Builder
		for _, c := range s {
			fmt.Fprintf(&b, `\u%04x`, c)
		}
		return b.String()
	}
	type spelling struct{ name, body, encoding string }
	spellings := []spelling{
		{"raw", secret, ""},
		{"JSON", `{"p":` + spelled(secret) + `}`, ""},
		{"JSON in JSON", `{"p":` + spelled(spelled(secret)) + `}`, ""},
		{"JSON in JSON in JSON", `{"p":` + spelled(spelled(spelled(secret))) + `}`, ""},
		{"every character escaped", `{"p":"` + unicode(secret) + `"}`, ""},
		{"query", "p=" + url.QueryEscape(secret), ""},
		{"path", url.PathEscape(secret), ""},
		{"every byte percent-encoded", strings.ToUpper("%" + strings.Join(strings.Split(fmt.Sprintf("% x", secret), " "), "%")), ""},
		{"gzip", zip(`{"p":` + spelled(secret) + `}`), "gzip"},
		{"binary", "\x00\xff" + secret + "\x00", ""},
		{"base64 in lines", base64.StdEncoding.EncodeToString([]byte(secret))[:20] + "\r\n" + base64.StdEncoding.EncodeToString([]byte(secret))[20:], ""},
	}
	for shift := range 3 {
		text := append(make([]byte, shift), secret+"xyz"...)
		spellings = append(
			spellings,
			spelling{fmt.Sprintf("base64, %d off", shift), `{"p":"` + base64.StdEncoding.EncodeToString(text) + `"}`, ""},
			spelling{fmt.Sprintf("base64 for URLs, %d off", shift), `{"p":"` + base64.RawURLEncoding.EncodeToString(text) + `"}`, ""},
		)
	}
	for _, tt := range spellings {
		for _, place := range []string{"request", "reply"} {
			t.Run(tt.name+" in the "+place, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
					if place == "reply" {
						w.Header().Set("Content-Encoding", tt.encoding)
						_, _ = io.WriteString(w, tt.body)
					}
				})
				err := r.record(t, cassette.Options{Secrets: []string{secret}}, func(c *http.Client) {
					body, encoding := "{}", ""
					if place == "request" {
						body, encoding = tt.body, tt.encoding
					}
					mustSend(t, c, r.srv.URL, body, func(req *http.Request) {
						req.Header.Set("Content-Encoding", encoding)
						req.Header.Set("Accept-Encoding", "gzip")
					})
				})
				wantRefused(t, r, err, secret)
			})
		}
	}
}

func wantRefused(t *testing.T, r *rig, err error, values ...string) {
	t.Helper()
	if _, ok := errors.AsType[*cassette.SecretError](err); !ok {
		t.Errorf("error = %v, want a found secret", err)
	}
	for _, v := range values {
		if err != nil && strings.Contains(err.Error(), v) {
			t.Errorf("the error shows it: %v", err)
		}
	}
	if files := r.files(t); len(files) != 0 {
		t.Errorf("there is a file all the same: %v", files)
	}
}

// A secret that the request carried as a credential is known without being named.
func TestSecrets_CredentialsOfTheRequestAreKnown(t *testing.T) {
	t.Parallel()
	const key = "tok0123456789abcdef"
	for name, edit := range map[string]func(*http.Request){
		"bearer": func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) },
		"basic":  func(r *http.Request) { r.SetBasicAuth("somebody", key) },
		"header": func(r *http.Request) { r.Header.Set("Api-Key", key) },
		"vendor": func(r *http.Request) { r.Header.Set("X-Acme-Token", key) },
		"query":  func(r *http.Request) { r.URL.RawQuery = "api_key=" + key },
		"user":   func(r *http.Request) { r.URL.User = url.UserPassword("u", key) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "wrong key: "+key) })
			err := r.record(t, cassette.Options{}, func(c *http.Client) { mustSend(t, c, r.srv.URL, "{}", edit) })
			wantRefused(t, r, err, key)
		})
	}
}

func TestSecrets_WhatLooksLikeAKeyRefusesTheFile(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a1B2", 12)
	for _, key := range []string{
		"sk-" + long, "sk-proj-" + long, "ABSK" + long, "bedrock-api-key-" + long, "AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE",
		"Bearer " + long, "authorization: bearer  " + long, "llmq_" + long, "gsk_" + long, "AIza" + long, "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeK",
		"X-Amz-Signature=" + long, "-----BEGIN RSA PRIVATE KEY-----",
	} {
		for _, body := range []string{key, `{"a":"line\n` + key + `"}`, `{"a":"\"` + key + `\""}`, "x=%22" + url.QueryEscape(key), "\x00\xff " + key} {
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
			err := r.record(t, cassette.Options{}, func(c *http.Client) { mustSend(t, c, r.srv.URL, "{}") })
			wantRefused(t, r, err, key)
		}
	}
}

// A key that is cut in two by a stream's chunks is in no single line of the file.
func TestSecrets_AcrossChunksAreFound(t *testing.T) {
	t.Parallel()
	for name, parts := range map[string][]string{"known": {secret[:9], secret[9:]}, "shape": {"data: AKIAIOSF", "ODNN7EXAMPLE\n\n"}, "id": {"org-AbCdEfGhIjKl", "MnOpQrStUvWx"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			taken := make(chan struct{}, 1)
			r := newRig(t, inChunks("text/event-stream", taken, false, parts...))
			err := r.record(t, cassette.Options{Secrets: []string{secret}}, func(c *http.Client) {
				if got, _, _ := readChunks(t, c, r.srv.URL, func() { taken <- struct{}{} }); len(got) != 2 {
					t.Errorf("chunks %q", got)
				}
			})
			if name != "id" {
				wantRefused(t, r, err, parts...)
				return
			}
			wantNone(t, r, parts...)
			_, c := r.tape(t, cassette.Options{})
			if got, _, err := readChunks(t, c, r.srv.URL, nothing); strings.Join(got, "|") != "org-000000000000|000000000000" {
				t.Errorf("played %q, %v", got, err)
			}
		})
	}
}

// A frame's checksum covers an id, so it can't be blanked.
func TestSecrets_IDsInBinaryRefuseTheFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "\x00\xffarn:aws:bedrock:us-east-1:123456789012:x")
	})
	err := r.record(t, cassette.Options{}, func(c *http.Client) { mustSend(t, c, r.srv.URL, "{}") })
	if err == nil || len(r.files(t)) != 0 || strings.Contains(err.Error(), "123456789012") {
		t.Errorf("error %v, files %v", err, r.files(t))
	}
}

// SEC31, rewritten: what somebody put into a file by hand goes, or the file is named and not
// written.
func TestRewrite_GoesThroughTheSameDoor(t *testing.T) {
	t.Parallel()
	r := newRig(t, answers("one", "two"))
	if err := r.record(t, cassette.Options{}, func(c *http.Client) {
		mustSend(t, c, r.srv.URL, `{"n":1}`)
		mustSend(t, c, r.srv.URL, `{"n":2}`)
	}); err != nil {
		t.Fatal(err)
	}
	before := r.files(t)
	o := cassette.Options{Dir: r.dir, Secrets: []string{secret}, Env: recordEnv()}
	if err := cassette.Rewrite(o); err != nil {
		t.Fatal(err)
	}
	for name, text := range r.files(t) {
		if text != before[name] {
			t.Errorf("%s was changed:\n%s", name, text)
		}
	}
	for name, text := range before {
		text = strings.Replace(text, `"Content-Type"`, `"Authorization": ["Bearer x`+"0123456789abcdef"+`"], "X-Request-Id": ["0123456789"], "Content-Type"`, 1)
		text = strings.Replace(text, `"one"`, `"see org-AbCdEfGhIjKlMnOpQrStUvWx"`, 1)
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := cassette.Rewrite(o); err != nil {
		t.Fatal(err)
	}
	wantNone(t, r, "x0123456789abcdef", "0123456789", "org-AbCdEfGhIjKlMnOpQrStUvWx")
	for name := range before {
		if info, err := os.Stat(filepath.Join(r.dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	_, c := r.tape(t, cassette.Options{})
	if got := mustSend(t, c, r.srv.URL, `{"n":1}`); got != "see org-000000000000000000000000" {
		t.Errorf("got %q", got)
	}

	for name, text := range r.files(t) {
		path := filepath.Join(r.dir, name)
		text = strings.Replace(text, `"two"`, `"s3cr3t/\"quoted\" +&<value>\\x"`, 1)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before = r.files(t)
	err := cassette.Rewrite(o)
	if _, ok := errors.AsType[*cassette.SecretError](err); !ok || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), ".json: refused") {
		t.Errorf("error = %v", err)
	}
	for name, text := range r.files(t) {
		if text != before[name] {
			t.Errorf("%s was written", name)
		}
	}
	if err := cassette.Rewrite(cassette.Options{Dir: r.dir, Env: []string{"CI=1", "LLMQ_CASSETTE=record"}}); err == nil {
		t.Error("rewritten in CI")
	}
}

func TestScan_PassesWhatIsNoKey(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"risk-management-of-large-projects, task-force-one-hundred, disk-encryption-standard", "sk-learn and sk-8", "the bearer of this letter", "BEARER bonds",
		`{"bytes":"eyJ0eXBlIjoiY29udGVudF9ibG9ja19kZWx0YSIsImluZGV4IjowfQ=="}`, "chatcmpl-123456789012345678901234567890", "llmq_settings",
		"asia asia asia", "signature=yes", strings.Repeat("0", 10_000),
	} {
		if err := cassette.Scan([]byte(text), "short", secret); err != nil {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}

func TestScan_SaysTheLine(t *testing.T) {
	t.Parallel()
	err := cassette.Scan([]byte("a\nb\n  AKIAIOSFODNN7EXAMPLE"))
	if found, ok := errors.AsType[*cassette.SecretError](err); !ok || found.Line != 3 || strings.Contains(err.Error(), "EXAMPLE") {
		t.Errorf("error = %v", err)
	}
}

// CS2: no recording in this repository holds a key. Whatever has the form of one is searched,
// wherever it lies.
func TestScan_TheTree(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == "node_modules" || e.Name() == "cdk.out" || strings.HasPrefix(e.Name(), ".") && path != root) {
			return filepath.SkipDir
		}
		if e.IsDir() || filepath.Ext(path) != ".json" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inFolder := strings.Contains(filepath.ToSlash(path), "/cassettes/")
		if !inFolder && !bytes.Contains(text[:min(len(text), 200)], []byte(`"cassette":`)) {
			return nil
		}
		seen++
		if err := cassette.Scan(text); err != nil {
			t.Errorf("%s %v", path, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no recording was found, though the example's is there")
	}
}
