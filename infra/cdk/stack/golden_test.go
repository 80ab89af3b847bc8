package stack

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden templates")

// assetHash changes with the binaries, and the name of a function's version with it; neither is what is looked at here.
var (
	assetHash   = regexp.MustCompile(`[0-9a-f]{64}`)
	versionHash = regexp.MustCompile(`(CurrentVersion[0-9A-F]{8})[0-9a-f]{32}`)
)

// reviewed is a template as it is kept.
func reviewed(raw []byte) (string, error) {
	raw = versionHash.ReplaceAll(assetHash.ReplaceAll(raw, []byte("ASSET")), []byte("${1}HASH"))
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", " "); err != nil {
		return "", err
	}
	return out.String() + "\n", nil
}

// G1: each environment's templates, a file each: that of the stack and those of its models.
func TestTemplate_IsTheReviewedOne(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		dir := filepath.Join("testdata", env.Config.Env)
		if *update {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		kept := map[string]bool{}
		for name, raw := range tpl.raw {
			file := filepath.Join(dir, goldenName(name))
			kept[file] = true
			got, err := reviewed(raw)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; write it by -update and review it", err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("template differs from %s (-reviewed +now); -update rewrites it:\n%s", file, diff)
			}
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !kept[f] {
				t.Errorf("%s is the template of nothing", f)
			}
		}
	})
}

// nestedHash ends the name of a nested stack's template.
var nestedHash = regexp.MustCompile(`^llmq[a-z]+Model([a-z0-9]+)[0-9A-F]{8}\.nested\.template\.json$`)

func goldenName(file string) string {
	if m := nestedHash.FindStringSubmatch(file); m != nil {
		return "model-" + m[1] + ".json"
	}
	return "stack.json"
}

// CDK holds every template against the schemas and rules of CloudFormation. Errors
// fail the synthesis; this fails for warnings too.
func TestTemplate_IsValidCloudFormation(t *testing.T) {
	s, err := synthesised()
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Title         string
		PluginReports []any
	}
	if err := json.Unmarshal(s.report, &report); err != nil {
		t.Fatal(err)
	}
	if report.Title == "" || len(report.PluginReports) > 0 {
		t.Errorf("validation report:\n%s", s.report)
	}
}
