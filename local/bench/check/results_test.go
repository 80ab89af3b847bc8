package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Every page of results/ names at its begin the command that makes it, the machine and the day.
func TestResults_NameCommandMachineAndDay(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../results/*.md")
	if err != nil || len(pages) < 3 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	want := regexp.MustCompile("^# .*\n\nMade by `[^`]+`,? on [0-9]+ processors \\([a-z0-9]+/[a-z0-9]+\\), 20[0-9]{2}-[0-9]{2}-[0-9]{2}[,. ]")
	for _, page := range pages {
		if filepath.Base(page) == "test-suite.md" {
			continue // the run that this test is part of writes it anew, if all passes
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if !want.Match(text) {
			t.Errorf("%s begins with %.300q, want what matches %s", page, text, want)
		}
	}
}
