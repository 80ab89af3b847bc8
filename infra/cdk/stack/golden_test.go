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

// assetHash changes with the binaries, which are not what is looked at here.
var assetHash = regexp.MustCompile(`[0-9a-f]{64}`)

// G1, first form.
func TestTemplate_IsTheReviewedOne(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		var got bytes.Buffer
		if err := json.Indent(&got, assetHash.ReplaceAll(tpl.raw, []byte("ASSET")), "", " "); err != nil {
			t.Fatal(err)
		}
		got.WriteByte('\n')
		file := filepath.Join("testdata", env.Config.Env+".template.json")
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; write it by -update and review it", err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
			t.Errorf("template differs from %s (-reviewed +now); -update rewrites it:\n%s", file, diff)
		}
	})
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
