package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// answers of the real admin API.
func answerOf(t *testing.T, name string) json.RawMessage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "answers", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r.Answer
}

// interrupted runs the program against a server, and interrupts it when the last of the answers was given. A null is a failure of the
// server.
func interrupted(t *testing.T, width int, answers []json.RawMessage, args ...string) told {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := int(asked.Add(1))
		if n == len(answers) {
			defer cancel()
		}
		if answers[n-1] == nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Write(answers[n-1]) //nolint:errcheck // the test's own client
	}))
	defer server.Close()
	var out, errOut bytes.Buffer
	env := []string{"LLMQ_ADMIN_URL=" + server.URL, "LLMQ_ADMIN_KEY=" + testKey, "NO_COLOR=1"}
	code := run(ctx, args, env, streams{in: strings.NewReader(""), out: &out, err: &errOut, outTerminal: width > 0, size: func() (int, int) { return width, 40 }})
	return told{code, out.String(), errOut.String()}
}

// E6: a watch draws over what it drew, on the terminal's other screen, and leaves the terminal as it was; a failure is told in its
// place; Ctrl-C is how it ends.
func TestWatch_DrawsAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	st := answerOf(t, "status")
	got := interrupted(t, 120, []json.RawMessage{st, nil, st, st}, "status", "--watch", "--every", "1s")
	if got.code != 0 || got.err != "" {
		t.Fatalf("code %d: %s", got.code, got.err)
	}
	if !strings.HasPrefix(got.out, enterScreen+home) || !strings.HasSuffix(got.out, clearRest+leaveScreen) {
		t.Errorf("begins %q, ends %q", got.out[:30], got.out[len(got.out)-30:])
	}
	if strings.Count(got.out, "chat-a@main") != 2 || strings.Count(got.out, "answered with HTTP 502") != 1 {
		t.Errorf("drew %q", got.out)
	}
}

func TestFitting_CutsToTheTerminal(t *testing.T) {
	t.Parallel()
	for rows, want := range map[int]string{
		0: "a\nb\nc\nd\n", 5: "a\nb\nc\nd\n", 4: "a\nb\n… 2 lines more; a taller terminal shows them\n", 3: "a\n… 3 lines more; a taller terminal shows them\n",
	} {
		if got := fitting("a\nb\nc\nd\n\n", rows); got != want {
			t.Errorf("%d rows: %q", rows, got)
		}
	}
}

// A program that watches gets a line of JSON each time, and no escapes.
func TestWatch_PipedIsALineEach(t *testing.T) {
	t.Parallel()
	st := answerOf(t, "status")
	got := interrupted(t, 0, []json.RawMessage{st, st, st}, "status", "--watch", "--every", "1s")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if got.code != 0 || len(lines) != 2 || !json.Valid([]byte(lines[1])) || strings.Contains(got.out, "\x1b") {
		t.Errorf("code %d, %d lines: %s", got.code, len(lines), got.err)
	}
}

// Ctrl-C lets the page that runs end, and says how far it came.
func TestRedrive_InterruptedTellsHowFar(t *testing.T) {
	t.Parallel()
	got := interrupted(t, 80, []json.RawMessage{answerOf(t, "redrive-page-1")}, "queues", "redrive", "llm-chat-a-bulk")
	if got.code != exitInterrupted || got.out != "" || !strings.Contains(got.err, "stopped after 18 messages") {
		t.Errorf("got %+v", got)
	}
}

// Shells complete commands, and names by asking.
func TestCompletion_Works(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		answers []string
		args    string
		want    string
	}{
		{nil, "completion bash", "__start_llmq"},
		{nil, "completion zsh", "#compdef llmq"},
		{nil, "completion fish", "complete -c llmq"},
		{nil, "__complete q", "queues\tList queues"},
		{[]string{"queues"}, "__complete queues pause llm-c", "llm-chat-a-bulk\n"},
		{[]string{"keys"}, "__complete keys revoke p", "ppwtn5v2ym\tacme reports"},
		{[]string{"models"}, "__complete call --model c", "conv-a\n"},
		{nil, "__complete call --lane r", "rt\n"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			url := replay(t, tt.answers...)
			env := []string{"LLMQ_ADMIN_URL=" + url, "LLMQ_ADMIN_KEY=" + testKey, "OPENAI_BASE_URL=" + url, "OPENAI_API_KEY=" + testKey}
			got := invoke(t, at{env: env}, strings.Fields(tt.args)...)
			if got.code != 0 || !strings.Contains(got.out, tt.want) {
				t.Errorf("code %d: %s%s", got.code, got.out, got.err)
			}
		})
	}
}
