package stack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// SEC24: each user of the cache, on a real Valkey in cluster mode: what VK1 refuses is NOPERM, in scripts too; and its own scripts may run.
func TestUsers_AreHeldToTheirRulesByValkey(t *testing.T) {
	server := startValkey(t)
	users := map[string]rules{
		"door": doorRules("e", false), "direct": doorRules("e", true), "worker": workerRules("e"), "admin": adminRules("e"), "gov": governorRules("e"), "program": programRules("e", "acme"),
	}
	root := server.dial(t)
	for name, r := range users {
		root.want(t, "OK", append([]string{"ACL", "SETUSER", name, "reset", ">secret"}, strings.Fields(r.String())...)...)
	}
	for name, r := range users {
		t.Run(name, func(t *testing.T) {
			c := server.dial(t)
			c.want(t, "OK", "AUTH", name, "secret")
			for _, refused := range [][]string{
				{"GET", "llmq:other:cfg:x"},
				{"SET", "llmq:other:cap:{cap}:x", "1"},
				{"GET", "anything"},
				{"FLUSHALL"},
				{"FLUSHDB"},
				{"KEYS", "*"},
				{"SCAN", "0"},
				{"CONFIG", "GET", "maxmemory"},
				{"SCRIPT", "FLUSH"},
				{"ACL", "LIST"},
				{"CLIENT", "LIST"},
				{"PSUBSCRIBE", "*"},
				{"SUBSCRIBE", "llmq:other:wake:x"},
				{"PUBLISH", "llmq:other:wake:x", "1"},
				{"FUNCTION", "LIST"},
				{"EVAL", "#!lua\nreturn redis.call('GET', KEYS[1])", "1", "llmq:other:cfg:x"},
				{"EVAL", "#!lua\nreturn redis.call('SET', KEYS[1], '1')", "1", "llmq:other:cap:{cap}:x"},
			} {
				if got := c.do(t, refused...); !strings.HasPrefix(got, "-NOPERM") {
					t.Errorf("%s gets %q", refused, got)
				}
			}
			own := strings.TrimSuffix(r.keys[0], "*") + "{x}"
			for _, command := range []string{"FLUSHALL", "KEYS", "CONFIG"} {
				if got := c.do(t, "EVAL", "#!lua\nreturn redis.call('"+command+"', 'x')", "1", own); !refusal.MatchString(got) {
					t.Errorf("a script that calls %s gets %q", command, got)
				}
			}
			for _, channel := range r.channels {
				if got := c.do(t, "PUBLISH", strings.TrimSuffix(channel, "*")+"x", "1"); got != ":0" {
					t.Errorf("telling %s gets %q", channel, got)
				}
			}
			if got := c.do(t, "EVAL", "#!lua\nreturn redis.call('GET', KEYS[1])", "1", own); refusal.MatchString(got) {
				t.Errorf("reading %s, which is its own, gets %q", own, got)
			}
		})
	}
	scripts, err := filepath.Glob(filepath.Join("..", "..", "..", "pkg", "llmq", "*", "lua", "*.lua"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	for _, file := range scripts {
		source := scriptText(t, file)
		if !strings.HasPrefix(source, "#!lua") || filepath.Base(file) == "attend.lua" { // see TestRules_LetEachScriptRun
			continue
		}
		var classes []string
		for _, m := range scriptKey.FindAllStringSubmatch(source, -1) {
			classes = append(classes, m[1])
		}
		user := "direct" // it runs whatever doors and workers do
		if slices.Contains(classes, "live") {
			user = "admin"
		}
		c := server.dial(t)
		c.want(t, "OK", "AUTH", user, "secret")
		call := []string{"EVAL", source, strconv.Itoa(len(classes))}
		for i, class := range classes {
			call = append(call, fmt.Sprintf("llmq:e:%s:{x}:%d", class, i))
		}
		for range 40 {
			call = append(call, "1") // arguments that it may find wrong: whether it may touch its keys is what counts. As a channel 1 is nobody's
		}
		if got := c.do(t, call...); refusal.MatchString(got) {
			t.Errorf("%s, run by %s: %s", filepath.Base(file), user, got)
		}
	}
}

// SEC24: a Go program of one tenant has its own calls' keys and wakes, and nothing of another's; what it runs is all that a client's side runs.
func TestUsers_AProgramHasItsOwnTenantOnly(t *testing.T) {
	server := startValkey(t)
	server.dial(t).want(t, "OK", append([]string{"ACL", "SETUSER", "program", "reset", ">secret"}, strings.Fields(programRules("e", "acme").String())...)...)
	c := server.dial(t)
	c.want(t, "OK", "AUTH", "program", "secret")
	tail := func(tenant string) string { return llmq.TenantHash(tenant) + ":{rid}" }
	for _, class := range []string{"sub", "clm", "res", "st"} {
		own, others := "llmq:e:"+class+":"+tail("acme"), "llmq:e:"+class+":"+tail("other")
		for _, command := range [][]string{
			{"GET", "KEY"}, {"SET", "KEY", "1"}, {"HSET", "KEY", "a", "1"}, {"XRANGE", "KEY", "-", "+"}, {"EVAL", "#!lua\nreturn redis.call('HGET', KEYS[1], 'a')", "1", "KEY"},
		} {
			on := func(key string) []string {
				var all []string
				for _, word := range command {
					all = append(all, strings.Replace(word, "KEY", key, 1))
				}
				if command[0] == "EVAL" {
					all[1] = command[1] // it says KEYS itself
				}
				return all
			}
			if got := c.do(t, on(own)...); refusal.MatchString(got) {
				t.Errorf("%v: %q", on(own), got)
			}
			if got := c.do(t, on(others)...); !strings.HasPrefix(got, "-NOPERM") {
				t.Errorf("%v: %q", on(others), got)
			}
		}
	}
	for _, command := range [][]string{
		{"SUBSCRIBE", "llmq:e:wake:" + tail("other")},
		{"PUBLISH", "llmq:e:wake:" + tail("other"), "1"},
		{"SET", "llmq:e:cfg:schema", "9"},
		{"HSET", "llmq:e:live:{live}:settings", "document", "{}"},
		{"HGET", "llmq:e:cap:{cap}:a@x:state", "flow"},
		{"ZADD", "llmq:e:rate:{kid}", "1", "1"},
	} {
		if got := c.do(t, command...); !strings.HasPrefix(got, "-NOPERM") {
			t.Errorf("%v: %q", command, got)
		}
	}
	// What a client asks, and is told, outside scripts.
	for _, command := range [][]string{
		{"GET", "llmq:e:cfg:schema"},
		{"HGET", "llmq:e:live:{live}:settings", "revision"},
		{"HGETALL", "llmq:e:sub:" + tail("acme")},
		{"PUBLISH", "llmq:e:wake:" + tail("acme"), "1"},
		{"PUBLISH", "llmq:e:stop:w", "w/1"},          // as cancel.lua does
		{"SUBSCRIBE", "llmq:e:wake:" + tail("acme")}, // the last: the connection is a subscriber's now
	} {
		if got := c.do(t, command...); refusal.MatchString(got) {
			t.Errorf("%v: %q", command, got)
		}
	}
	c = server.dial(t)
	c.want(t, "OK", "AUTH", "program", "secret")
	scripts, err := filepath.Glob(filepath.Join("..", "..", "..", "pkg", "llmq", "claims", "lua", "*.lua"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, file := range scripts {
		source := scriptText(t, file)
		// What a client does; the others are a worker's.
		if !slices.Contains([]string{"submit.lua", "sent.lua", "cancel.lua", "expire.lua", "broken.lua"}, filepath.Base(file)) {
			continue
		}
		ran++
		var names []string
		for _, m := range scriptKey.FindAllStringSubmatch(source, -1) {
			names = append(names, "llmq:e:"+m[1]+":"+tail("acme"))
		}
		call := append([]string{"EVAL", source, strconv.Itoa(len(names))}, names...)
		for range 40 {
			call = append(call, "1")
		}
		if got := c.do(t, call...); refusal.MatchString(got) {
			t.Errorf("%s: %s", filepath.Base(file), got)
		}
	}
	if ran != 5 {
		t.Errorf("%d scripts of a client's were run, want 5", ran)
	}
}

// refusal is how a server says that a user may not.
var refusal = regexp.MustCompile(`NOPERM|No permissions to access a key|has no permissions to run|Unknown command called|not allowed from`)

type valkey struct{ address string }

// startValkey runs a server for the test, or says why there is none.
func startValkey(t *testing.T) valkey {
	t.Helper()
	path, err := exec.LookPath("valkey-server")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("valkey-server is not installed")
		}
		t.Skip("valkey-server is not installed: what it would refuse was not seen")
	}
	port := strconv.Itoa(freePort(t))
	cmd := exec.CommandContext(t.Context(), path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir(), "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(freePort(t)))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it holds nothing
		_ = cmd.Wait()
	})
	v := valkey{net.JoinHostPort("127.0.0.1", port)}
	for deadline := time.Now().Add(30 * time.Second); ; {
		c, err := net.DialTimeout("tcp", v.address, time.Second)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("valkey does not answer: %v", err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	root := v.dial(t)
	root.want(t, "OK", "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(root.do(t, "CLUSTER", "INFO"), "cluster_state:ok"); {
		if time.Now().After(deadline) {
			t.Fatal("the cluster does not form")
		}
		<-time.After(20 * time.Millisecond)
	}
	return v
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it was only asked for its number
	return l.Addr().(*net.TCPAddr).Port
}

// conn speaks as much RESP as is needed to hear a refusal.
type conn struct {
	net.Conn
	in *bufio.Reader
}

func (v valkey) dial(t *testing.T) conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", v.address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return conn{c, bufio.NewReader(c)}
}

func (c conn) want(t *testing.T, want string, args ...string) {
	t.Helper()
	if got := c.do(t, args...); got != "+"+want {
		t.Fatalf("%.2s: %q", args, got)
	}
}

// do sends a command and gives its reply: a line as it came, or what is in a bulk or a list.
func (c conn) do(t *testing.T, args ...string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(b.String())); err != nil {
		t.Fatalf("send %.2s: %v", args, err)
	}
	reply, err := c.read()
	if err != nil {
		t.Fatalf("reply to %.2s: %v", args, err)
	}
	return reply
}

func (c conn) read() (string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", nil
	}
	n, _ := strconv.Atoi(line[1:])
	switch {
	case line[0] == '$' && n >= 0:
		text := make([]byte, n+2)
		_, err := io.ReadFull(c.in, text)
		return string(text[:n]), err
	case line[0] == '*':
		var all []string
		for range max(n, 0) {
			part, err := c.read()
			if err != nil {
				return "", err
			}
			all = append(all, part)
		}
		return strings.Join(all, " "), nil
	}
	return line, nil
}
