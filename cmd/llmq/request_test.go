package main

import "testing"

// An id that is empty, as a shell's unset variable is, is told as such, and asks nobody.
func TestRequest_AnEmptyIDIsNone(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"request", "show"}, {"request", "result"}, {"request", "cancel"}, {"job", "status"}, {"job", "result"}, {"job", "cancel"}} {
		got := invoke(t, at{width: 80, env: []string{"OPENAI_BASE_URL=http://127.0.0.1:1/v1"}}, append(command, "")...)
		if want := "llmq: which call? the id is empty\n"; got.code != 2 || len(got.err) < len(want) || got.err[:len(want)] != want {
			t.Errorf("%v: code %d, %q", command, got.code, got.err)
		}
	}
}
