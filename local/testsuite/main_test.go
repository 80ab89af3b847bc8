package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The test binary is testsuite too, and what runs in the namespace.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == verbAlone:
		exit(alone(os.Args[2:]))
	case len(os.Args) > 2 && os.Args[1] == verbInside:
		exit(inside(os.Args[2:]))
	case len(os.Args) == 3 && os.Args[1] == "dial":
		if _, err := net.Dial("udp", os.Args[2]); err != nil { // a udp dial sends nothing and waits for nothing
			os.Stdout.WriteString(err.Error())
			os.Exit(7)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// F7: what runs alone reaches loopback and nothing else, and its exit code comes through.
func TestAlone_ReachesLoopbackOnly(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("namespaces are Linux's")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := canBeAlone(t.Context()); !ok {
		t.Skipf("this system lets nobody make a network namespace: %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), self, verbAlone, self, "dial", "127.0.0.1:9").CombinedOutput(); err != nil {
		t.Errorf("loopback: %v, %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), self, verbAlone, self, "dial", "192.0.2.1:9").CombinedOutput() // an address of nobody: RFC 5737
	if code := exitCode(err); code != 7 || !strings.Contains(string(out), syscall.ENETUNREACH.Error()) {
		t.Errorf("beyond loopback: code %d, %s; want 7 and %q", code, out, syscall.ENETUNREACH)
	}
}

func exitCode(err error) int {
	if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // nobody wraps it
		return e.ExitCode()
	}
	return -1
}

func TestSuite_CountsAndShowsWhatFailed(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"start","Package":"p/a"}
{"Action":"output","Package":"p/a","Test":"TestGood","Output":"quiet\n"}
{"Action":"pass","Package":"p/a","Test":"TestGood/part"}
{"Action":"pass","Package":"p/a","Test":"TestGood"}
{"Action":"output","Package":"p/a","Test":"TestBad","Output":"    a_test.go:3: loud\n"}
{"Action":"fail","Package":"p/a","Test":"TestBad"}
{"Action":"output","Package":"p/a","Test":"TestAway","Output":"    a_test.go:9: needs valkey-server\n"}
{"Action":"skip","Package":"p/a","Test":"TestAway"}
{"Action":"output","Package":"p/a","Output":"PASS\n"}
{"Action":"output","Package":"p/a","Output":"FAIL\tp/a\t0.1s\n"}
{"Action":"fail","Package":"p/a"}
go: a word of the go command's
{"Action":"output","Package":"p/none","Output":"?   \tp/none\t[no test files]\n"}
{"Action":"skip","Package":"p/none"}
{"Action":"fail","Package":"p/unbuilt","FailedBuild":"p/unbuilt"}
`
	s := newSuite()
	var out bytes.Buffer
	if err := s.read(strings.NewReader(events), &out); err != nil {
		t.Fatal(err)
	}
	const shown = "    a_test.go:3: loud\nFAIL\tp/a\t0.1s\ngo: a word of the go command's\n?   \tp/none\t[no test files]\n"
	if diff := cmp.Diff(shown, out.String()); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
	want := map[string]*counts{"p/a": {passed: 1, failed: 1, skipped: 1}, "p/none": {}, "p/unbuilt": {failed: 1}}
	if diff := cmp.Diff(want, s.packages, cmp.AllowUnexported(counts{})); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"p/a.TestAway": "needs valkey-server"}, s.skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if !s.failed() {
		t.Error("nothing failed")
	}
}

func TestNamed_FindsIDs(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string][]string{
		"C9, D11 and E12: held.":                {"C9", "D11", "E12"},
		"The cases H10–H12.":                    {"H10", "H11", "H12"},
		"SEC11 to SEC13 on S3, not in S35b.":    {"SEC11", "SEC12", "SEC13", "S35b"},
		"R06; DS2 and DS41: said twice: DS2.":   {"R06", "DS2", "DS41"},
		"An RFC 7231 date, UTF8, a SHA256, X1.": nil,
	} {
		if diff := cmp.Diff(want, named(comment)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", comment, diff)
		}
	}
}
