package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// Whatever the file and a variable say: Parse returns, its error is Faults, and
// each on one line, and what it takes is written and read back the same. For a longer
// run add -fuzzminimizetime=20x: minimizing a whole file takes the time otherwise.
func FuzzParse(f *testing.F) {
	for _, path := range []string{"testdata/aws.yaml", "testdata/local.yaml", "testdata/bad.yaml"} {
		f.Add(mustRead(f, path), "LLMQ_DOOR_WAIT_SECS=1")
	}
	f.Add([]byte("a: &a [*a]\n"), "LLMQ_REDIS_URL=redis://%zz")
	f.Add([]byte(example), `LLMQ_AC_MAX_BY_MODEL={"chat": 3}`)
	f.Add([]byte(example), `LLMQ_SETTINGS={"models": {"chat@main": {"rpm": 60, "lane_max_concurrency": {"bulk": 3}}}}`)
	f.Add([]byte("? [a]\n: b\n<<: {}\n"), "LLMQ_REDIS_PORT=")
	f.Add([]byte("kind: !!str aws\n---\n"), "=")
	f.Fuzz(func(t *testing.T, data []byte, variable string) {
		c, err := Parse("f", data, []string{variable})
		if err != nil {
			fs, ok := errors.AsType[Faults](err)
			if !ok || !errors.Is(err, llmq.CodeConfiguration) {
				t.Fatalf("%T: %v", err, err)
			}
			for _, fault := range fs {
				if strings.ContainsAny(fault.String(), "\n\r\x1b") {
					t.Fatalf("a fault is no single line: %q", fault.String())
				}
			}
			return
		}
		b, err := c.Marshal()
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		again, err := Parse("f", b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, again, cmpopts.IgnoreUnexported(Config{})); diff != "" {
			t.Fatalf("%s\n%s", diff, b)
		}
	})
}

// FuzzFromOpenAIEnv holds it to never take an upstream that is this program.
func FuzzFromOpenAIEnv(f *testing.F) {
	for _, s := range []string{"http://127.0.0.1:8080/v1", "http://localhost.:8080", "http://[::ffff:7f00:1]:8080", "https://api.openai.com/v1", "http://0x7f000001:8080", "http://127.1:8080"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, base string) {
		p, _, ok, err := FromOpenAIEnv([]string{"OPENAI_BASE_URL=" + base, "OPENAI_API_KEY=k"}, []string{"127.0.0.1:8080"})
		if !ok || err != nil {
			return
		}
		u, problem := parseURL(p.BaseURL)
		if problem != "" {
			t.Fatalf("%q became %q, which %s", base, p.BaseURL, problem)
		}
		if isLoopback(u.Hostname()) && u.Port() == "8080" {
			t.Fatalf("%q was taken", base)
		}
		if u.Scheme == "http" && !p.Private {
			t.Fatalf("%q is plain http to a public host", base)
		}
	})
}
