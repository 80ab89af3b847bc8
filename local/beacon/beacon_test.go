//go:build unix

package beacon

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	first  = Cloud{URL: "http://127.0.0.1:8080", Key: "k1", AdminURL: "http://127.0.0.1:8082", AdminKey: "a1"}
	second = Cloud{URL: "http://127.0.0.1:9080", Key: "k2", AdminURL: "http://127.0.0.1:9082", AdminKey: "a2"}
)

func light(t *testing.T, dir string, c Cloud) (out func() error) {
	t.Helper()
	out, err := Light(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func find(t *testing.T, dir string, want ...Cloud) {
	t.Helper()
	got, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

// What is lit is found, and leaves no file once it is out.
func TestBeacon_FoundWhileItIsLit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	find(t, dir)
	out2 := light(t, dir, second)
	out1 := light(t, dir, first)
	find(t, dir, first, second)
	if err := out1(); err != nil {
		t.Error(err)
	}
	find(t, dir, second)
	if err := out2(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// LM1: nobody else can read the keys.
func TestBeacon_FilesArePrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := light(t, dir, first)
	defer out() //nolint:errcheck // a test's folder
	for name, want := range map[string]os.FileMode{"": 0o700, "8080.json": 0o600} {
		info, err := os.Lstat(filepath.Join(dir, folder, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v", name, info, err)
		}
	}
}

// A process that was killed leaves its beacon, which is dead at once, and is replaced by the next.
func TestBeacon_OfAKilledProcessIsDead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if os.Getenv("LLMQ_TEST_BEACON") != "" {
		out := light(t, os.Getenv("LLMQ_TEST_BEACON"), first)
		os.Stdout.WriteString("lit\n")
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // until it is killed
		runtime.KeepAlive(out)
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBeacon_OfAKilledProcessIsDead$")
	child.Env = append(os.Environ(), "LLMQ_TEST_BEACON="+dir)
	lines, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() // for where the test ends early
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := lines.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	find(t, dir, first)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait() //nolint:errcheck // it was killed
	find(t, dir)
	again := light(t, dir, first)
	find(t, dir, first)
	if err := again(); err != nil {
		t.Error(err)
	}
}

// In a shared temp folder anybody can be first: what somebody else may have written is not believed.
func TestFind_BelievesOnlyThisUsersFiles(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(dir, file string) error{
		"folder open to others": func(dir, _ string) error { return os.Chmod(dir, 0o755) },
		"file open to others":   func(_, file string) error { return os.Chmod(file, 0o644) },
		"a link as folder": func(dir, _ string) error {
			if err := os.Rename(dir, dir+".real"); err != nil {
				return err
			}
			return os.Symlink(dir+".real", dir)
		},
		"a link as file": func(_, file string) error {
			if err := os.Rename(file, file+".real"); err != nil {
				return err
			}
			return os.Symlink(file+".real", file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			out := light(t, parent, first)
			defer out() //nolint:errcheck // its file was spoilt
			dir := filepath.Join(parent, folder)
			if err := spoil(dir, filepath.Join(dir, "8080.json")); err != nil {
				t.Fatal(err)
			}
			if found, err := Find(parent); err == nil {
				t.Errorf("found %v", found)
			}
		})
	}
}

// A beacon leads to this machine or nowhere.
func TestDecode_RefusesOtherPlaces(t *testing.T) {
	t.Parallel()
	for _, u := range []string{"http://10.0.0.1:8080", "https://127.0.0.1:8080", "http://localhost:8080", "http://k@127.0.0.1:8080", "http://127.0.0.1", "::", ""} {
		for _, c := range []Cloud{{URL: u, AdminURL: first.AdminURL}, {URL: first.URL, AdminURL: u}} {
			if err := c.check(); err == nil {
				t.Errorf("%+v is taken", c)
			}
		}
	}
	if _, err := decode([]byte("{")); err == nil || strings.Contains(err.Error(), "k1") {
		t.Errorf("error = %v", err)
	}
}
