package provider_test

import (
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/provider"
)

func TestTextChars_CountsTextOnly(t *testing.T) {
	t.Parallel()
	skip := map[string]bool{"role": true, "data": true}
	for in, want := range map[string]int{
		``:                                     0,
		`"abc"`:                                3,
		`"a\n\"\\\u00e9é漢"`:                    7,
		`{"role":"user","content":"1234"}`:     4,
		`[{"role" : "user" , "text":"12"}, 3]`: 2,
		`{"data":["a","b"]}`:                   2, // a list under a name is no member of that name
		`{"data":{"x":"abc"}}`:                 3,
		`{"data":"` + strings.Repeat("A", 1000) + `","text":"x"}`: 1,
		`["role","user"]`:    8,
		`{"role":1,"x":"y"}`: 1,
		`"never ends`:        10,
		`"ends in \`:         9,
		`"ends in \u00`:      9,
	} {
		if got := provider.TextChars([]byte(in), skip); got != want {
			t.Errorf("TextChars(%.60s) = %d, want %d", in, got, want)
		}
	}
}

func TestNumbers_CountsTokenIDs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int{`[]`: 0, `[1,22, 333]`: 3, `[[1,2],[3]]`: 3, `[1.5e3,-2]`: 2} {
		if got := provider.Numbers([]byte(in)); got != want {
			t.Errorf("Numbers(%s) = %d, want %d", in, got, want)
		}
	}
}

func TestChoices_IsBounded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ most, n, want int }{{390, 1, 390}, {390, 3, 1170}, {390, 0, 390}, {390, -7, 390}, {0, 5, 0}, {-1, 5, 0}, {10, 1 << 60, 10 * provider.MostChoices}} {
		if got := provider.Choices(tc.most, tc.n); got != tc.want {
			t.Errorf("Choices(%d, %d) = %d, want %d", tc.most, tc.n, got, tc.want)
		}
	}
	if got := provider.Choices(1<<62, 1<<62); got <= 0 {
		t.Errorf("Choices overflows to %d", got)
	}
}

// A body that is broken off anywhere panics nowhere, and counts no more than its bytes.
func FuzzTextChars(f *testing.F) {
	for _, s := range []string{`{"role":"user","content":"a\u00e9"}`, `["a","\\"]`, `"\`, `"\u`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if n := provider.TextChars(value, map[string]bool{"role": true}); n < 0 || n > len(value) {
			t.Errorf("TextChars(%q) = %d", value, n)
		}
		if n := provider.Numbers(value); n < 0 || n > len(value) {
			t.Errorf("Numbers(%q) = %d", value, n)
		}
	})
}
