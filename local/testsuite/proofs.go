package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ids are those that the notes of this project number things by. A range of cases is written "H10 to H18" or "H10–H18".
// Scenarios and cases have two digits, so that S3 is none.
var ids = regexp.MustCompile(`\b(SEC|DS|[A-G]|[HSR]\d)(\d{1,2})([abcv]?)(?:\s*(?:–|-|to)\s*(?:SEC|DS|[A-HSR])?(\d{1,2}))?\b`)

// proofs finds which test names which id in its comment: "DS12: TestX (pkg/llmq/claims)". The CDK module's count too.
func proofs(root string) (map[string][]string, error) {
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "node_modules" || name == "testdata" || len(name) > 1 && name[0] == '.') {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Doc == nil || f.Recv != nil || !isTest(f.Name.Name) {
				continue
			}
			for _, id := range named(f.Doc.Text()) {
				found[id] = append(found[id], fmt.Sprintf("%s (%s)", f.Name.Name, filepath.ToSlash(dir)))
			}
		}
		return nil
	})
	for _, tests := range found {
		slices.Sort(tests)
	}
	return found, err
}

func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") || strings.HasPrefix(name, "Benchmark")
}

// named are the ids of a comment, each once, those of a range one by one.
func named(comment string) []string {
	var out []string
	for _, m := range ids.FindAllStringSubmatch(comment, -1) {
		kind, digits := m[1], m[2]
		if n := len(kind) - 1; kind[n] >= '0' && kind[n] <= '9' { // the first of two
			kind, digits = kind[:n], kind[n:]+digits
		}
		from, _ := strconv.Atoi(digits)
		to, err := strconv.Atoi(m[4])
		if err != nil || to < from {
			to = from
		}
		for n := from; n <= to; n++ {
			if id := fmt.Sprintf("%s%0*d%s", kind, len(digits), n, m[3]); !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// byID sorts A2 before A10.
func byID(a, b string) int {
	letters := func(s string) string { return strings.TrimRight(s, "0123456789abcv") }
	number := func(s string) int { n, _ := strconv.Atoi(strings.TrimRight(s[len(letters(s)):], "abcv")); return n }
	return cmp.Or(cmp.Compare(letters(a), letters(b)), cmp.Compare(number(a), number(b)), cmp.Compare(a, b))
}
