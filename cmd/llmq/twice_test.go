package main

import "testing"

// E13: a rule that a file gives twice is no rule.
func TestTwice_FindsTheSecondPlace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, key, at string }{
		{`{"a": {"chain": []}, "b": {"chain": []}}`, "", ""},
		{`{"a": 1, "a": 2}`, "a", "line 1, column 12"},
		{"{\"a\": {\"chain\": [],\n  \"chain\": []}}", "chain", "line 2, column 9"},
		{`{"a": [{"m": 1}, {"m": 2}], "m": 3}`, "", ""},
		{`{"a": [{"m": 1, "m": 2}]}`, "m", "line 1, column 19"},
		{`{"a": {}, "b": [[], {}], "a": 1}`, "a", "line 1, column 28"},
		{`{"a": "b", "b": "a"}`, "", ""},
		{`{"\u0061": 1, "a": 2}`, "a", "line 1, column 17"},
		{`[{"a": 1}, {"a": 1}]`, "", ""},
		{`{"a": 1, "a"`, "a", "line 1, column 12"},
		{`{"a": 1,`, "", ""},
		{``, "", ""},
	} {
		if key, at := twice([]byte(tt.text)); key != tt.key || at != tt.at {
			t.Errorf("twice(%s) = %q, %q; want %q, %q", tt.text, key, at, tt.key, tt.at)
		}
	}
}
