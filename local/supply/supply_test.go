package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../.."

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

type workflow struct {
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]struct {
		Permissions any `yaml:"permissions"`
		Steps       []struct {
			Uses string            `yaml:"uses"`
			Run  string            `yaml:"run"`
			With map[string]any    `yaml:"with"`
			Env  map[string]string `yaml:"env"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	files, err := filepath.Glob(root + "/.github/workflows/*.y*ml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	all := map[string]workflow{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all[f] = w
	}
	return all
}

// SEC32: a tag can be moved, a commit can't.
func TestSEC32_EveryActionIsPinnedByCommit(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^[a-z0-9-]+/[a-z0-9-]+@[0-9a-f]{40}$`)
	found := 0
	for f, w := range workflows(t) {
		for name, job := range w.Jobs {
			for _, s := range job.Steps {
				if s.Uses == "" {
					continue
				}
				found++
				if !pinned.MatchString(s.Uses) {
					t.Errorf("%s: job %s uses %s", f, name, s.Uses)
				}
				if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false {
					t.Errorf("%s: job %s leaves the token in the checkout", f, name)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no action was found")
	}
}

// SEC32: a workflow may read the code, and is given no secret.
func TestSEC32_WorkflowsMayReadAndNothingElse(t *testing.T) {
	t.Parallel()
	for f, w := range workflows(t) {
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s: permissions %v", f, w.Permissions)
		}
		for name, job := range w.Jobs {
			if job.Permissions != nil {
				t.Errorf("%s: job %s has permissions of its own: %v", f, name, job.Permissions)
			}
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, no := range []string{"secrets.", "pull_request_target", "github.event.", "github.head_ref"} {
			if bytes.Contains(text, []byte(no)) {
				t.Errorf("%s: it has %s", f, no)
			}
		}
	}
}

// CI is what make says: the workflow runs it, and beside it what needs the network.
func TestSEC32_CIRunsEveryCheckOfTheSupplyChain(t *testing.T) {
	t.Parallel()
	var ran []string
	for _, w := range workflows(t) {
		for _, job := range w.Jobs {
			for _, s := range job.Steps {
				ran = append(ran, s.Run)
			}
		}
	}
	all := strings.Join(ran, "\n")
	for _, want := range []string{".ci/run", "make vuln", "make reproducible", "sbom"} {
		if !strings.Contains(all, want) {
			t.Errorf("no workflow runs %s", want)
		}
	}
	if !strings.Contains(read(t, ".ci/run"), "make ci") {
		t.Error(".ci/run does not run make ci")
	}
	if target := strings.SplitAfter(read(t, "Makefile"), "\nvuln:")[1]; !strings.Contains(target[:strings.Index(target, ".PHONY")], "$(CDK)") {
		t.Error("make vuln leaves the CDK module out")
	}
}

// SEC32: what is compared is built as what is deployed.
func TestSEC32_BuildsAreThoseOfMake(t *testing.T) {
	t.Parallel()
	makefile, source := read(t, "Makefile"), read(t, "local/supply/main.go")
	for _, flags := range [][2]string{
		{"GO_FLAGS := -trimpath -tags=lambda.norpc", `"-trimpath", "-tags=lambda.norpc"`},
		{`-buildvcs=false -ldflags "-s -w -buildid="`, `"-buildvcs=false", "-ldflags", "-s -w -buildid="`},
	} {
		if !strings.Contains(makefile, flags[0]) || !strings.Contains(source, flags[1]) {
			t.Errorf("make has %s and this command has not, or the other way round", flags[0])
		}
	}
}

// SEC32: a zip is its files' names and bytes, and not when, where and in which order they were written.
func TestSEC32_ZipOfEqualFilesIsEqual(t *testing.T) {
	t.Parallel()
	files := map[string]string{"bootstrap": strings.Repeat("binary", 1000), "llmq.yaml": "kind: aws"}
	first, second := t.TempDir(), t.TempDir()
	for _, name := range []string{"bootstrap", "llmq.yaml"} {
		if err := os.WriteFile(filepath.Join(first, name), []byte(files[name]), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"llmq.yaml", "bootstrap"} {
		path := filepath.Join(second, name)
		if err := os.WriteFile(path, []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(2, 0)); err != nil {
			t.Fatal(err)
		}
	}
	a, err := zipFolder(first)
	if err != nil {
		t.Fatal(err)
	}
	b, err := zipFolder(second)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("the zips differ")
	}
	if err := os.WriteFile(filepath.Join(second, "llmq.yaml"), []byte("kind: local"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err = zipFolder(second); err != nil || bytes.Equal(a, b) {
		t.Errorf("zips of different files are equal (%v)", err)
	}
}
