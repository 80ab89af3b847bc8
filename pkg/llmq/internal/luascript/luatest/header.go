package luatest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	headerKey = regexp.MustCompile(`^-- KEYS\[(\d+)\] llmq:<env>:\S+\s+(hash|zset|string|list)\b`)
	headerArg = regexp.MustCompile(`^-- ARGV\[(\d+)\] \w+\s+(integer|string)\b`)
	use       = regexp.MustCompile(`\b(KEYS|ARGV)\[(\d+)\]`)
	dynamic   = regexp.MustCompile(`\b(KEYS|ARGV)\b[^\[]|\b(KEYS|ARGV)\[[^0-9]`)
)

// Header is what a script says of itself.
type Header struct{ Keys, Args int }

// ReadHeader reads a script's header and fails the test where it does not fit the
// body: every key and argument has its line, in order, and is used, and none is used
// that has none.
func ReadHeader(t *testing.T, name, text string) Header {
	t.Helper()
	lines := strings.Split(text, "\n")
	if !strings.HasPrefix(lines[0], "#!lua") || len(lines) < 2 || !strings.HasPrefix(lines[1], "-- "+name+".lua: ") {
		t.Fatalf("%s.lua begins with %q, want #!lua and its own name", name, lines[:min(2, len(lines))])
	}
	var keys, args, body []string
	for _, l := range lines[1:] {
		switch {
		case headerKey.MatchString(l):
			keys = append(keys, headerKey.FindStringSubmatch(l)[1])
		case headerArg.MatchString(l):
			args = append(args, headerArg.FindStringSubmatch(l)[1])
		case strings.HasPrefix(l, "-- KEYS"), strings.HasPrefix(l, "-- ARGV"):
			t.Errorf("%s.lua: header line is not of its form: %s", name, l)
		case !strings.HasPrefix(l, "--"):
			body = append(body, l)
		}
	}
	code := strings.Join(body, "\n")
	if dynamic.MatchString(code) {
		t.Errorf("%s.lua takes a key or argument by a number that is not written out", name)
	}
	used := map[string][]string{}
	for _, m := range use.FindAllStringSubmatch(code, -1) {
		if !slices.Contains(used[m[1]], m[2]) {
			used[m[1]] = append(used[m[1]], m[2])
		}
	}
	for what, declared := range map[string][]string{"KEYS": keys, "ARGV": args} {
		slices.SortFunc(used[what], byNumber)
		if diff := cmp.Diff(oneTo(len(declared)), declared); diff != "" {
			t.Errorf("%s.lua: %s lines (-want +got):\n%s", name, what, diff)
		}
		if diff := cmp.Diff(declared, used[what]); diff != "" {
			t.Errorf("%s.lua: %s of header and body (-header +body):\n%s", name, what, diff)
		}
	}
	if !strings.Contains(text, "\n-- Returns {") {
		t.Errorf("%s.lua does not say what it returns", name)
	}
	return Header{Keys: len(keys), Args: len(args)}
}

func byNumber(a, b string) int {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return x - y
}

func oneTo(n int) []string {
	var out []string
	for i := range n {
		out = append(out, strconv.Itoa(i+1))
	}
	return out
}

// Luacheck runs luacheck over a folder's scripts. The test is skipped where it is not
// installed, and fails there when CI is set.
func Luacheck(t *testing.T, dir string) {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(dir, "*.lua"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in %s: %v", dir, err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatalf("read script: %v", err)
		}
		LuacheckText(t, script, string(text))
	}
}

// LuacheckText is [Luacheck] for one script as it is sent, with the chunks it is built from.
func LuacheckText(t *testing.T, name, text string) {
	t.Helper()
	path, err := exec.LookPath("luacheck")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI needs luacheck: %v", err)
		}
		t.Skipf("needs luacheck (package lua-check): %v", err)
	}
	// The first line is Valkey's, not Lua's.
	cmd := exec.CommandContext(t.Context(), path, "--no-color", "--std", "lua51", "--read-globals", "redis", "KEYS", "ARGV",
		"--max-line-length", "140", "--filename", name, "-")
	cmd.Stdin = strings.NewReader("--" + strings.TrimPrefix(text, "#!"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("luacheck: %v\n%s", err, out)
	}
}
