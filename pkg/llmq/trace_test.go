package llmq

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	someTrace = "0af7651916cd43dd8448eb211c80319c"
	someSpan  = "b7ad6b7169203331"
)

// E9: a traceparent is read as W3C says, and what is none is as good as none.
func TestParseTrace_ReadsTheStandardsForm(t *testing.T) {
	t.Parallel()
	none := Trace{}
	of := func(sampled bool) Trace { return Trace{someTrace, someSpan, sampled} }
	for text, want := range map[string]Trace{
		"00-" + someTrace + "-" + someSpan + "-01":                  of(true),
		"00-" + someTrace + "-" + someSpan + "-00":                  of(false),
		"00-" + someTrace + "-" + someSpan + "-ff":                  of(true),
		"00-" + someTrace + "-" + someSpan + "-02":                  of(false),
		"cc-" + someTrace + "-" + someSpan + "-01":                  of(true),
		"cc-" + someTrace + "-" + someSpan + "-01-what-comes":       of(true),
		"00-" + someTrace + "-" + someSpan + "-01-more":             none,
		"ff-" + someTrace + "-" + someSpan + "-01":                  none,
		"00-" + strings.ToUpper(someTrace) + "-" + someSpan + "-01": none,
		"00-" + strings.Repeat("0", 32) + "-" + someSpan + "-01":    none,
		"00-" + someTrace + "-" + strings.Repeat("0", 16) + "-01":   none,
		"00-" + someTrace + "-" + someSpan:                          none,
		"00-" + someTrace + "-" + someSpan + "-0":                   none,
		"00-" + someTrace[1:] + "-" + someSpan + "-01":              none,
		" 00-" + someTrace + "-" + someSpan + "-01":                 none,
		"":   none,
		"tr": none,
	} {
		got, ok := ParseTrace(text)
		if diff := cmp.Diff(want, got); diff != "" || ok != (want != none) {
			t.Errorf("%q: ok %t (-want +got):\n%s", text, ok, diff)
		}
	}
}

func TestTrace_IsWrittenAsItIsRead(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"", "00-" + someTrace + "-" + someSpan + "-01", "00-" + someTrace + "-" + someSpan + "-00"} {
		if got, _ := ParseTrace(want); got.String() != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func FuzzParseTrace(f *testing.F) {
	f.Add("00-" + someTrace + "-" + someSpan + "-01")
	f.Add("cc-" + someTrace + "-" + someSpan + "-01-x")
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := ParseTrace(text)
		again, stays := ParseTrace(got.String())
		if ok != stays || got != again {
			t.Errorf("%q is read as %+v, and what it is written as %+v", text, got, again)
		}
	})
}
