package cassette

import (
	"bytes"
	"iter"
	"regexp"
)

// opening is a regular expression all of whose matches begin with one of a few words. Looking for those is far
// faster than for the expression, and a reply may have megabytes.
type opening struct {
	words [][]byte // in small letters
	re    *regexp.Regexp
	most  int // how far from its beginning a match is looked for, in bytes
}

// newOpening takes the words as one text with spaces.
func newOpening(words, re string, most int) opening {
	return opening{bytes.Fields([]byte(words)), regexp.MustCompile(`\A(?:` + re + `)`), most}
}

// matches yields where the expression matches at the beginning of a word in b, with its groups, as
// FindSubmatchIndex does; small is b by [lower]. What it looks at goes off the budget, in bytes.
func (o opening) matches(b, small []byte, budget *int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for _, word := range o.words {
			for at := 0; ; at++ {
				next := bytes.Index(small[at:], word)
				if next < 0 {
					break
				}
				at += next
				if !startsWord(b, at) {
					continue
				}
				window := b[at:min(len(b), at+o.most)]
				*budget -= len(window)
				m := o.re.FindSubmatchIndex(window)
				if m == nil {
					continue
				}
				for i := range m {
					m[i] += at
				}
				if !yield(m) {
					return
				}
				at = m[1] - 1
			}
		}
	}
}

// lower is b with the letters A to Z in small ones; other letters could change their length.
func lower(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		out[i] = c
	}
	return out
}
