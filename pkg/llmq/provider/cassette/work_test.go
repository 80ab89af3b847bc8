package cassette

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
)

// What a search costs is bounded by the size of what is searched, whatever that is. Counted in
// bytes that it looks at, as time on a busy machine tells little.
func TestScan_WorkIsLinear(t *testing.T) {
	t.Parallel()
	var words strings.Builder
	for _, s := range shapes {
		words.Write(bytes.Join(s.words, []byte(" ")))
		words.WriteByte(' ')
	}
	for _, text := range []string{
		"xsk-", "eyJ", "eyJ-", "eyJ.", "-eyJaaaaaaaa.ey", "sk-sk ", "bearer ", "bearer  \t  ", "-----begin ", "signature= ", "signature%3D-", `\\\\`, `\u005c`, "%25", "%5c", "+", `{"a":"`, `["`, "data: {\"a\":\"b\"}\n",
		`"\n`, "QUJD", "aaaa", "{", "\x1e", "\x00", words.String(),
	} {
		used := func(size int) int {
			b := []byte(strings.Repeat(text, 1+size/len(text)))[:size]
			s := newSearch(len(b), []string{"0123456789-a-secret"})
			before := s.budget
			if found := s.look(b, maxLayers); found != nil && s.budget >= 0 {
				t.Errorf("%q: %v", text, found)
			}
			return before - s.budget
		}
		small, large := used(32<<10), used(256<<10)
		if large > 10*small {
			t.Errorf("%q: 32 KB take %d, 256 KB take %d", text, small, large)
		}
	}
}

// A path costs nothing for each string in it, however deep. Not parallel, since what is allocated
// is counted.
func TestScan_DeepJSONIsCheap(t *testing.T) { //nolint:paralleltest // see above
	const depth = 9000
	b := []byte(strings.Repeat("[", depth) + strings.Repeat(`"ab",`, 50_000) + `"ab"` + strings.Repeat("]", depth))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out := joinStrings(b)
	runtime.ReadMemStats(&after)
	if len(out) != 100_002+1+100_002 {
		t.Errorf("%d bytes", len(out))
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > uint64(100*len(b)) {
		t.Errorf("%d bytes are allocated for %d", used, len(b))
	}
}

// A search that would take too long counts as a hit.
func TestScan_TooMuchWorkIsAHit(t *testing.T) {
	t.Parallel()
	s := newSearch(0, nil)
	s.budget = 10
	if found := s.look([]byte("harmless text"), maxLayers); found == nil || !strings.Contains(found.Error(), "more layers") {
		t.Errorf("found %v", found)
	}
}
