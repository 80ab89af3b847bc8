package llmq_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every rule of docs/DELIVERY.md is named by a test that holds it.
func TestDelivery_EveryRuleIsNamedByATest(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	doc, err := os.ReadFile(filepath.Join(root, "docs", "DELIVERY.md"))
	if err != nil {
		t.Fatalf("the rules: %v", err)
	}
	rules := regexp.MustCompile(`(?m)^\| (DS\d+) \|`).FindAllStringSubmatch(string(doc), -1)
	if len(rules) < 30 {
		t.Fatalf("%d rules were found", len(rules))
	}
	id := regexp.MustCompile(`\bDS\d+\b`)
	named := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, rule := range id.FindAllString(string(text), -1) {
			named[rule] = true
		}
		return err
	})
	if err != nil {
		t.Fatalf("the tests: %v", err)
	}
	for _, rule := range rules {
		if !named[rule[1]] {
			t.Errorf("no test names %s", rule[1])
		}
	}
}
