package main

import (
	"strings"
	"testing"

	"github.com/llm-queue/llmq/local/clients/suite"
)

// What a script prints counts line by line, and what is no result passes through.
func TestReport_CountsWhatScriptsPrint(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, printed, last string
		ok                  bool
	}{
		{"well", `{"client":"c 1","check":"chat","ok":true,"note":"a\nb"}` + "\nnoise\n", "1 passed, 0 failed, 0 skipped", true},
		{"one fails", `{"client":"c 1","check":"chat","ok":true}` + "\n" + `{"client":"c 1","check":"tools","ok":false}`, "1 passed, 1 failed, 0 skipped", false},
		{"no check", "noise\n{\"client\":\"c\"}\n", "0 passed, 0 failed, 0 skipped", false},
	} {
		var out strings.Builder
		r := &report{out: &out}
		if err := suite.Read(strings.NewReader(tc.printed), r.add, &out); err != nil {
			t.Fatal(err)
		}
		if ok := r.end(); ok != tc.ok || !strings.HasSuffix(out.String(), tc.last+"\n") {
			t.Errorf("%s: %v\n%s", tc.name, ok, out.String())
		}
	}
}
