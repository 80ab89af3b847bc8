package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-queue/llmq/local/fakellm/server"
	"github.com/llm-queue/llmq/pkg/llmq/llmqtest"
)

func TestMain(m *testing.M) {
	llmqtest.OwnEnvironment()
	goleak.VerifyTestMain(m)
}

// exported is the line of exports as a map.
func exported(t *testing.T, line string) map[string]string {
	t.Helper()
	rest, found := strings.CutPrefix(strings.TrimSpace(line), "export ")
	if !found {
		t.Fatalf("got %q, want a line of exports", line)
	}
	values := map[string]string{}
	for word := range strings.FieldsSeq(rest) {
		name, value, _ := strings.Cut(word, "=")
		values[name] = value
	}
	return values
}

func TestRun_ServesAndStops(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-models", "a, b"}, in, io.Discard) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	env := exported(t, line)

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path, key string) (int, string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if status, body := get(env["OPENAI_BASE_URL"]+"/models", env["OPENAI_API_KEY"]); status != 200 || !strings.Contains(body, `"b"`) {
		t.Errorf("models: %d %s", status, body)
	}
	if status, body := get(env["FAKELLM_URL"]+"/_admin/stats", env["FAKELLM_ADMIN_KEY"]); status != 200 {
		t.Errorf("stats: %d %s", status, body)
	}
	if status, _ := get(env["FAKELLM_URL"]+"/_admin/stats", env["OPENAI_API_KEY"]); status != 401 {
		t.Errorf("stats with the API key: %d", status)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("run: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("run did not stop")
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(env["FAKELLM_URL"], "http://")); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

func TestRun_TakesTheKeysItIsGiven(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop() // so that it starts, prints and stops
	var out bytes.Buffer
	err := run(ctx, []string{"-key", "k", "-access-key", "a", "-admin-key", "it's"}, &out, io.Discard)
	if err == nil {
		line := out.String()
		if env := exported(t, line); env["OPENAI_API_KEY"] != "k" || env["AWS_ACCESS_KEY_ID"] != "a" || env["FAKELLM_ADMIN_KEY"] != `'it'\''s'` {
			t.Errorf("got %q", line)
		}
		return
	}
	t.Errorf("run: %v", err)
}

func TestParse_RandomKeysDiffer(t *testing.T) {
	t.Parallel()
	a, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, key := range []string{a.key, a.accessKey, a.adminKey, b.key, b.accessKey, b.adminKey} {
		if len(key) < minKey || seen[key] {
			t.Errorf("key %q is short, or there twice", key)
		}
		seen[key] = true
	}
}

func TestParse_Reach(t *testing.T) {
	t.Parallel()
	keys := []string{"-key", "0123456789abcdef", "-access-key", "0123456789abcdef", "-admin-key", "0123456789abcdef"}
	for _, tc := range []struct {
		name string
		args []string
		want string // part of the error; empty: none
	}{
		{"default", nil, ""},
		{"loopback", []string{"-addr", "127.0.0.1:8081"}, ""},
		{"localhost", []string{"-addr", "localhost:0"}, ""},
		{"IPv6", []string{"-addr", "[::1]:0"}, ""},
		{"everywhere", []string{"-addr", ":8081"}, "not on loopback"},
		{"0.0.0.0", []string{"-addr", "0.0.0.0:8081"}, "not on loopback"},
		{"name", []string{"-addr", "example.com:80"}, "not on loopback"},
		{"no port", []string{"-addr", "127.0.0.1"}, "-addr"},
		{"listen without keys", []string{"-listen", ":8081"}, "-listen needs -key"},
		{"listen with a short key", append([]string{"-listen", ":8081"}, append(keys[2:], "-key", "short")...), "-listen needs -key"},
		{"listen without admin key", append([]string{"-listen", ":8081"}, keys[:4]...), "-listen needs -admin-key"},
		{"listen with keys", append([]string{"-listen", ":8081"}, keys...), ""},
		{"argument", []string{"x"}, "unexpected"},
		{"flag", []string{"-x"}, "-x"},
		{"no connections", []string{"-max-conns", "0"}, "-max-conns"},
		{"level", []string{"-log", "loud"}, "loud"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(tc.args, io.Discard)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// G4: it runs alone, from a file.
func TestRun_LoadsAProgram(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "program.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop() // so that it starts, prints and stops
	write("rules:\n  - phases:\n      - rpm: 60\n")
	if err := run(ctx, []string{"-program", path}, io.Discard, io.Discard); err != nil {
		t.Errorf("run: %v", err)
	}
	write("rules:\n  - phases:\n      - rpmm: 60\n")
	err := run(ctx, []string{"-program", path}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), path+":\nline 3:9: rules[0].phases[0].rpmm: there is no such field") {
		t.Errorf("got %v, want the file and the place", err)
	}
	if err := run(ctx, []string{"-program", path + ".gone"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), ".gone") {
		t.Errorf("got %v, want the file's name", err)
	}
}

func TestParse_HelpHasExamples(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if _, err := parse([]string{"-h"}, &out); !errors.Is(err, flag.ErrHelp) || !strings.Contains(out.String(), "go run ./local/fakellm -program") {
		t.Errorf("%v: %s", err, out.String())
	}
	// The program that the help shows is one.
	_, rest, _ := strings.Cut(out.String(), "quotas.yaml:\n")
	text, _, _ := strings.Cut(rest, "and while it runs")
	if p, err := server.ParseProgram([]byte(text)); err != nil || len(p.Rules) != 1 {
		t.Errorf("the example: %v", err)
	}
}

func TestParse_BadFlagIsToldOnce(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-latency", "soon"}, {"-nope"}, {"more"}} {
		var out bytes.Buffer
		_, err := parse(args, &out)
		if err == nil || out.Len() != 0 || !strings.Contains(err.Error(), args[0]) || !strings.Contains(err.Error(), "-h shows the flags") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, and printed %q; want one line with a hint", args, err, out.String())
		}
	}
}

func TestRun_AddressInUseNamesTheNextStep(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const key = "0123456789abcdef"
	for flag, args := range map[string][]string{"-addr": nil, "-listen": {"-key", key, "-access-key", key, "-admin-key", key}} {
		err := run(t.Context(), append(args, flag, taken.Addr().String()), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "address already in use: give another port with "+flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestReadme_ProgramsAreProgramsIndeed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "```yaml\n")
	for i, part := range parts[1:] {
		program, _, _ := strings.Cut(part, "```")
		if p, err := server.ParseProgram([]byte(program)); err != nil || len(p.Rules)+len(p.Queue) == 0 {
			t.Errorf("example %d: %v", i, err)
		}
	}
	if len(parts) < 3 {
		t.Errorf("%d examples", len(parts)-1)
	}
}

// The bodies that the table of the admin API shows are taken.
func TestReadme_BodiesAreTaken(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	fake, err := server.New(server.Options{AdminKey: "a"})
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(PUT|POST) (/[a-z]+)` \\|[^`|]*`(\\{[^`]*\\})`").FindAllStringSubmatch(string(text), -1)
	for _, row := range rows {
		r := httptest.NewRequestWithContext(t.Context(), row[1], "http://127.0.0.1/_admin"+row[2], strings.NewReader(row[3]))
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		if fake.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", row[0], w.Code, w.Body)
		}
	}
	if len(rows) != 6 {
		t.Errorf("%d rows with a body, want 6", len(rows))
	}
}

func TestSettings_KeepNoPromptsUnasked(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]int{"0": -1, "10": 10} {
		c, err := parse([]string{"-capture", arg}, io.Discard)
		if err != nil || c.options(slog.New(slog.DiscardHandler)).CaptureBytes != want {
			t.Errorf("-capture %s: %v", arg, err)
		}
	}
}

func TestExports_UnspecifiedAddressIsCalledByLoopback(t *testing.T) {
	t.Parallel()
	line := settings{key: "k", accessKey: "a", adminKey: "m"}.exports(&net.TCPAddr{IP: net.IPv6unspecified, Port: 8081})
	if env := exported(t, line); env["FAKELLM_URL"] != "http://127.0.0.1:8081" || env["OPENAI_BASE_URL"] != "http://127.0.0.1:8081/v1" ||
		env["AWS_REGION"] == "" || env["AWS_DEFAULT_REGION"] != env["AWS_REGION"] {
		t.Errorf("got %q", line)
	}
}
