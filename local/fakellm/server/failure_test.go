package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-queue/llmq/local/fakellm/quota"
	"github.com/llm-queue/llmq/local/fakellm/server"
)

// over sends a chat over a socket and reads the whole answer.
func over(t *testing.T, ts *httptest.Server, body string) (resp *http.Response, got string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, ts.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apiKey)
	resp, err = ts.Client().Do(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp, string(all), err
}

const streamBody = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`

func TestFailure_OnASocket(t *testing.T) {
	t.Parallel()
	isReset := func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }
	isCut := func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }
	ok := func(err error) bool { return err == nil }
	for _, tc := range []struct {
		name    string
		reply   server.Reply
		stream  bool
		status  int
		err     func(error) bool
		content string // a part of the body
		lacks   string
	}{
		{"reset in a body", server.Reply{Fail: server.FailReset, After: 7}, false, 200, isReset, `{"id":"`, "choices"},
		{"reset in a stream", server.Reply{Fail: server.FailReset, After: 2}, true, 200, isReset, `"content":"[m] "`, `"hi"`},
		{"closed in a body", server.Reply{Fail: server.FailClose}, false, 200, isCut, `{"id":"`, "service_tier"},
		{"closed in a stream", server.Reply{Fail: server.FailClose, After: 3}, true, 200, isCut, `"hi"`, "[DONE]"},
		{"truncated body", server.Reply{Fail: server.FailTruncate, After: 9}, false, 200, ok, `{"id":"ch`, "choices"},
		{"truncated stream", server.Reply{Fail: server.FailTruncate}, true, 200, ok, `"hi"`, `"stop"`},
		{"truncated early", server.Reply{Fail: server.FailTruncate, After: 2}, true, 200, ok, `"[m] "`, `"hi"`},
		{"wrong length", server.Reply{Fail: server.FailLength}, false, 200, isCut, `{"id":"`, ""},
		{"wrong length of a stream", server.Reply{Fail: server.FailLength, After: 2}, true, 200, isCut, `"[m] "`, `"hi"`},
		{"error in a stream", server.Reply{Fail: server.FailError, Status: 503, After: 2}, true, 200, ok, `data: {"error":{"message":"That model is currently overloaded`, "[DONE]"},
		{"error, but no stream", server.Reply{Fail: server.FailError, Status: 503}, false, 503, ok, "overloaded", ""},
		{"proxy's page", server.Reply{Fail: server.FailHTML}, false, 502, ok, "<h1>502 Bad Gateway</h1>", "{"},
		{"empty", server.Reply{Fail: server.FailEmpty}, false, 200, ok, "", "{"},
		{"slow headers", server.Reply{Fail: server.FailSlowHeaders, Pause: time.Millisecond}, false, 200, ok, "[m] hi", ""},
		{"slow headers of a stream", server.Reply{Fail: server.FailSlowHeaders, Pause: time.Millisecond}, true, 200, ok, "[DONE]", ""},
		{"split characters", server.Reply{Fail: server.FailSplitUTF8, Pause: time.Microsecond}, true, 200, ok, "[DONE]", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, nil)
			ts := httptest.NewServer(s)
			t.Cleanup(ts.Close)
			program(t, s, server.Match{}, tc.reply)
			body := chatBody("m")
			if tc.stream {
				body = streamBody
			}
			resp, got, err := over(t, ts, body)
			if resp == nil {
				t.Fatalf("no answer: %v", err)
			}
			if resp.StatusCode != tc.status || !tc.err(err) || !strings.Contains(got, tc.content) || tc.lacks != "" && strings.Contains(got, tc.lacks) {
				t.Errorf("status %d, error %v, body %q", resp.StatusCode, err, got)
			}
			if err := s.AwaitInFlight(t.Context(), "", 0); err != nil {
				t.Error(err)
			}
			calls := s.Calls()
			if len(calls) != 1 || calls[0].Fail != tc.reply.Fail {
				t.Errorf("logged %+v", calls)
			}
			if _, _, err := over(t, ts, body); err != nil { // the server lives on
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

func TestFailure_ContentType(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	program(t, s, server.Match{}, server.Reply{Fail: server.FailContentType})
	if got := chat(t, s, "m"); got.Code != 200 || got.Header().Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(got.Body.String(), "[m] hi") {
		t.Errorf("%d %v %s", got.Code, got.Header(), got.Body)
	}
}

// The head of the answer trickles: its first line is there long before its last.
func TestFailure_SlowHeadersTrickle(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	ts := httptest.NewServer(s)
	t.Cleanup(ts.Close)
	program(t, s, server.Match{}, server.Reply{Fail: server.FailSlowHeaders, Pause: time.Hour})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body := chatBody("m")
	if _, err := io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: "+ts.Listener.Addr().String()+"\r\nAuthorization: Bearer "+apiKey+
		"\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	if line, err := reader.ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Fatalf("first line %q, %v", line, err)
	}
	if s.InFlight("m") != 1 {
		t.Error("the call is over before its head is")
	}
	s.Close()
	if rest, err := io.ReadAll(reader); len(rest) != 0 && err == nil && strings.Contains(string(rest), "\r\n\r\n") {
		t.Errorf("after the first line came %q", rest)
	}
}

func TestFailure_StallWaitsForRelease(t *testing.T) {
	t.Parallel()
	for body, end := range map[string]string{streamBody: "[DONE]", chatBody("m"): "service_tier"} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nil)
			program(t, s, server.Match{}, server.Reply{Fail: server.FailStall})
			w := &timedWriter{header: http.Header{}, start: time.Now()}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				s.ServeHTTP(w, request(t.Context(), http.MethodPost, "/v1/chat/completions", body))
			}()
			synctest.Wait()
			if w.body.Len() == 0 || strings.Contains(w.body.String(), end) || s.InFlight("m") != 1 {
				t.Errorf("written before the stall: %q", w.body.String())
			}
			time.Sleep(time.Minute) // bubble time
			if s.Release(server.Match{Model: "m"}) != 1 {
				t.Error("nothing was released")
			}
			<-ended
			if !strings.Contains(w.body.String(), end) || s.Calls()[0].Duration != time.Minute || s.Calls()[0].Outcome != server.Replied {
				t.Errorf("written after the stall: %q, %+v", w.body.String(), s.Calls()[0].Outcome)
			}
		})
	}
}

// What a broken answer costs is what the model had said: all of a body, and of a stream what was sent.
func TestFailure_ChargesWhatWasSaid(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	setRules(t, s, onePhase(server.Phase{Limits: quota.Limits{Tokens: quota.Rate{PerMinute: 1e6}, Charge: quota.Reserve, Burndown: 5}}))
	for body, want := range map[string]int64{chatBody("m"): 1 + 5*2, streamBody: 1 + 5*1} {
		program(t, s, server.Match{}, server.Reply{Fail: server.FailClose, After: 2})
		post(t, s, "/v1/chat/completions", body)
		calls := s.Calls()
		if c := calls[len(calls)-1]; c.ChargedTokens != want || c.Outcome != server.Broken {
			t.Errorf("%s: charged %d, want %d: %+v", body, c.ChargedTokens, want, c.Outcome)
		}
	}
}

// A call that hung has said nothing, however fast its model is.
func TestFailure_HungCallHasSaidNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		setLatency(t, s, server.Latency{Mean: time.Second, Speed: 100})
		program(t, s, server.Match{}, server.Reply{Hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		do(s, request(ctx, http.MethodPost, "/v1/chat/completions", chatBody("m")))
		if c := s.Calls()[0]; c.OutputTokens != 0 || c.Outcome != server.Aborted {
			t.Errorf("%s with %d tokens", c.Outcome, c.OutputTokens)
		}
	})
}

func TestFailure_SharesOfARule(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	setRules(t, s, server.Rule{Seed: 3, Phases: []server.Phase{{Faults: []server.Fault{
		{Share: 0.2, Reply: server.Reply{Status: 503}},
		{Share: 0.1, Reply: server.Reply{Reset: true}},
		{Share: 0.1, Reply: server.Reply{Fail: server.FailHTML}},
	}}}})
	counts := map[int]int{}
	for range 1000 {
		if got := chat(t, s, "m"); got == nil {
			counts[0]++
		} else {
			counts[got.Code]++
		}
	}
	for status, want := range map[int]int{200: 600, 503: 200, 502: 100, 0: 100} {
		if n := counts[status]; n < want-50 || n > want+50 {
			t.Errorf("%d calls with status %d, want about %d", n, status, want)
		}
	}
	if g := s.Stats().All; g.Good != counts[200] || g.Failed != 1000-counts[200] || g.Throttled != 0 {
		t.Errorf("counted %+v", g)
	}
}
