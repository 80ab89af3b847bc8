package cassette_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/provider"
	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
)

// answers gives its texts in turn.
func answers(texts ...string) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a test server
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(w, texts[0])
		texts = texts[1:]
	}
}

const bodyA = `{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":0}`

// H29: the order of keys doesn't count, that of the answers does, and a silent real call never
// happens.
func TestReplay_H29(t *testing.T) {
	t.Parallel()
	r := newRig(t, answers("one", "two"))
	url := r.srv.URL + "/v1/chat/completions"
	if err := r.record(t, cassette.Options{}, func(c *http.Client) {
		for _, want := range []string{"one", "two"} {
			if got := mustSend(t, c, url, bodyA); got != want {
				t.Errorf("recorded %q, want %q", got, want)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	r.srv.Close()

	_, c := r.tape(t, cassette.Options{})
	const same = `{ "temperature": 0, "messages": [ {"content":"a","role":"user"} ], "model": "m" }`
	agent := func(req *http.Request) { req.Header.Set("User-Agent", "another/2.0") }
	for i, want := range []string{"one", "two"} {
		if got := mustSend(t, c, url, same, agent); got != want {
			t.Errorf("r%d = %q, want %q", i+1, got, want)
		}
	}
	wantMiss(t, c, url, same, cassette.MissError{Method: "POST", URL: url, Played: 2})
	wantMiss(t, c, url, strings.Replace(bodyA, `"a"`, `"a "`, 1), cassette.MissError{Method: "POST", URL: url, Differs: "body at /messages/0/content"})
	if got := r.calls.Load(); got != 2 {
		t.Errorf("the provider was called %d times", got)
	}

	// r5: numbers count by their value.
	_, c = r.tape(t, cassette.Options{})
	if got := mustSend(t, c, url, strings.Replace(bodyA, `"temperature":0`, `"temperature":0.0`, 1)); got != "one" {
		t.Errorf("r5 = %q", got)
	}
	wantMiss(t, c, url, strings.Replace(bodyA, `"temperature":0`, `"temperature":0.1`, 1), cassette.MissError{Method: "POST", URL: url, Differs: "body at /temperature"})
}

// wantMiss sends a request that nothing answers. The name of the nearest is checked to be there.
func wantMiss(t *testing.T, c *http.Client, url, body string, want cassette.MissError) {
	t.Helper()
	_, err := send(c, url, body)
	miss, ok := errors.AsType[*cassette.MissError](err)
	if !ok {
		t.Fatalf("error = %v, want a miss", err)
	}
	if miss.Nearest == "" {
		t.Errorf("no nearest recording: %v", miss)
	}
	want.Nearest = miss.Nearest
	if *miss != want {
		t.Errorf("miss = %+v, want %+v", *miss, want)
	}
	for _, part := range []string{miss.Method, miss.URL, miss.Nearest, miss.Differs} {
		if !strings.Contains(miss.Error(), part) {
			t.Errorf("%q does not name %q", miss, part)
		}
	}
	pe, ok := errors.AsType[*provider.Error](err)
	if !ok || pe.Class != provider.CallFatal || pe.Code.Info().Retry {
		t.Errorf("a miss is %v", err)
	}
}

func TestReplay_RepeatPlaysTheLastForEver(t *testing.T) {
	t.Parallel()
	r := newRig(t, answers("one", "two"))
	if err := r.record(t, cassette.Options{}, func(c *http.Client) {
		mustSend(t, c, r.srv.URL, bodyA)
		mustSend(t, c, r.srv.URL, bodyA)
	}); err != nil {
		t.Fatal(err)
	}
	_, c := r.tape(t, cassette.Options{Repeat: true})
	for _, want := range []string{"one", "two", "two", "two"} {
		if got := mustSend(t, c, r.srv.URL, bodyA); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestReplay_WhatCounts(t *testing.T) {
	t.Parallel()
	const base = `{"a":[1,2,{"b":"é","c":null}],"n":100}`
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") })
	url := r.srv.URL + "/v1/x?api-version=1&trace=7"
	if err := r.record(t, cassette.Options{}, func(c *http.Client) {
		mustSend(t, c, url, base)
		mustSend(t, c, url, "plain text")
		mustSend(t, c, url, `"a scalar"`)
	}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, url, body string
		hit             bool
	}{
		{"the same", url, base, true},
		{"other order and space", url, "\n{ \"n\": 100 ,\t\"a\": [1, 2, {\"c\": null, \"b\": \"é\"}] }\r\n", true},
		{"other spelling of a string", url, `{"a":[1,2,{"b":"\u00e9","c":null}],"n":100}`, true},
		{"other spelling of a number", url, `{"a":[1.0,0.2e1,{"b":"é","c":null}],"n":1E+2}`, true},
		{"order of an array", url, `{"a":[2,1,{"b":"é","c":null}],"n":100}`, false},
		{"null is not absence", url, `{"a":[1,2,{"b":"é"}],"n":100}`, false},
		{"a string is no number", url, `{"a":[1,2,{"b":"é","c":null}],"n":"100"}`, false},
		{"white space in a string", url, `{"a":[1,2,{"b":"é ","c":null}],"n":100}`, false},
		{"another path", r.srv.URL + "/v1/y?api-version=1", base, false},
		{"an escaped path is another", r.srv.URL + "/v1%2Fx?api-version=1", base, false},
		{"another api-version", r.srv.URL + "/v1/x?api-version=2", base, false},
		{"a parameter that doesn't count", r.srv.URL + "/v1/x?api-version=1&trace=8&more=1", base, true},
		{"another host", strings.Replace(url, "127.0.0.1", "localhost", 1), base, false},
		{"another scheme", strings.Replace(url, "http:", "https:", 1), base, false},
		{"another port", "http://127.0.0.1:1/v1/x?api-version=1", base, false},
		{"text as it is", url, "plain text", true},
		{"text with a space more", url, "plain text ", false},
		{"a scalar is text", url, ` "a scalar"`, false},
		{"a name twice is text", url, `{"n":100,"n":100}`, false},
		{"no body", url, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, c := r.tape(t, cassette.Options{})
			got, err := send(c, tt.url, tt.body)
			if hit := err == nil && got == "yes"; hit != tt.hit {
				t.Errorf("got %q, %v; a hit should be %t", got, err, tt.hit)
			}
		})
	}
}

func TestReplay_GzippedRequestIsWhatIsInside(t *testing.T) {
	t.Parallel()
	r := newRig(t, answers("yes"))
	zip := func(body string, level int) string {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, level)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(z, body) // a buffer takes everything
		_ = z.Close()
		return b.String()
	}
	gzipped := func(req *http.Request) { req.Header.Set("Content-Encoding", "gzip") }
	if err := r.record(t, cassette.Options{}, func(c *http.Client) { mustSend(t, c, r.srv.URL, zip(bodyA, 1), gzipped) }); err != nil {
		t.Fatal(err)
	}
	for name, text := range r.files(t) {
		if !strings.Contains(text, `"content": "a"`) {
			t.Errorf("%s holds the body as it was packed:\n%s", name, text)
		}
	}
	for _, body := range []string{zip(bodyA, 9), zip(" "+bodyA, 0)} {
		_, c := r.tape(t, cassette.Options{})
		if got := mustSend(t, c, r.srv.URL, body, gzipped); got != "yes" {
			t.Errorf("got %q", got)
		}
	}
}

func TestReplay_AnyLoopbackPort(t *testing.T) {
	t.Parallel()
	r := newRig(t, answers("yes"))
	o := cassette.Options{AnyLoopbackPort: true}
	if err := r.record(t, o, func(c *http.Client) { mustSend(t, c, r.srv.URL+"/x", bodyA) }); err != nil {
		t.Fatal(err)
	}
	_, c := r.tape(t, o)
	if got := mustSend(t, c, "http://127.0.0.1:9/x", bodyA); got != "yes" {
		t.Errorf("got %q", got)
	}
	wantMiss(t, c, "http://10.0.0.1:9/x", bodyA, cassette.MissError{Method: "POST", URL: "http://10.0.0.1:9/x", Differs: "url"})
}

func TestAuto_RecordsOnlyWhereItIsAllowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, answers("one", "two"))
	_, c := r.tape(t, cassette.Options{Mode: cassette.Auto})
	if _, err := send(c, r.srv.URL, bodyA); !isMiss(err) {
		t.Fatalf("without recordings: %v", err)
	}
	for range 2 { // the second finds what the first recorded
		_, c = r.tape(t, cassette.Options{Mode: cassette.Auto, Env: recordEnv()})
		if got := mustSend(t, c, r.srv.URL, bodyA); got != "one" {
			t.Errorf("got %q", got)
		}
	}
	if got := mustSend(t, c, r.srv.URL, bodyA); got != "two" { // one more than was recorded
		t.Errorf("got %q", got)
	}
	tape, c := r.tape(t, cassette.Options{Mode: cassette.Auto})
	if left := tape.Unplayed(); len(left) != 2 {
		t.Errorf("unplayed: %q", left)
	}
	for _, want := range []string{"one", "two"} {
		if got := mustSend(t, c, r.srv.URL, bodyA); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if left := tape.Unplayed(); len(left) != 0 {
		t.Errorf("unplayed: %q", left)
	}
}

func isMiss(err error) bool {
	_, ok := errors.AsType[*cassette.MissError](err)
	return ok
}

func TestMiss_EmptyFolderAndNearestOfSeveral(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") })
	_, c := r.tape(t, cassette.Options{Mode: cassette.Auto})
	_, err := send(c, r.srv.URL, bodyA)
	if miss, ok := errors.AsType[*cassette.MissError](err); !ok || miss.Nearest != "" || !strings.Contains(miss.Error(), "no recordings") {
		t.Errorf("error = %v", err)
	}
	if err := r.record(t, cassette.Options{}, func(c *http.Client) {
		mustSend(t, c, r.srv.URL+"/chat", `{"m":1,"x":[1,2,3]}`)
		mustSend(t, c, r.srv.URL+"/chat", `{"m":2,"x":[1,2]}`)
		mustSend(t, c, r.srv.URL+"/other", `{"m":2,"x":[1,2,3]}`)
	}); err != nil {
		t.Fatal(err)
	}
	_, c = r.tape(t, cassette.Options{})
	wantMiss(t, c, r.srv.URL+"/chat", `{"m":2,"x":[1,2],"secret-prompt":"canary"}`, cassette.MissError{Method: "POST", URL: r.srv.URL + "/chat", Differs: "body at /secret-prompt"})
	wantMiss(t, c, r.srv.URL+"/chat", `{"m":2,"x":[1,2,4]}`, cassette.MissError{Method: "POST", URL: r.srv.URL + "/chat", Differs: "body at /x/2"})
	wantMiss(t, c, r.srv.URL+"/chats", `{"m":2,"x":[1,2,4]}`, cassette.MissError{Method: "POST", URL: r.srv.URL + "/chats", Differs: "url"})
	wantMiss(t, c, r.srv.URL+"/chat", `text`, cassette.MissError{Method: "POST", URL: r.srv.URL + "/chat", Differs: "body"})
}

// Several tapes stand for several processes: no recording is lost, and none is overwritten.
func TestRecord_ManyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		_, _ = w.Write(body)
	})
	var calls sync.WaitGroup
	for range 3 {
		tape, c := r.tape(t, cassette.Options{Mode: cassette.Record, Env: recordEnv()})
		for i := range 20 {
			calls.Go(func() {
				if _, err := send(c, r.srv.URL, fmt.Sprintf(`{"i":%d}`, i%10)); err != nil {
					t.Error(err)
				}
			})
		}
		t.Cleanup(func() {
			if err := tape.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if got := len(r.files(t)); got != 60 {
		t.Errorf("%d files, want 60", got)
	}
	tape, c := r.tape(t, cassette.Options{})
	for i := range 60 {
		body := fmt.Sprintf(`{"i":%d}`, i%10)
		if got := mustSend(t, c, r.srv.URL, body); got != body {
			t.Errorf("%s was answered with %s", body, got)
		}
	}
	if left := tape.Unplayed(); len(left) != 0 {
		t.Errorf("unplayed: %q", left)
	}
}
