package cassette

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"hash/maphash"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// steps undo one layer of encoding each. A step that finds nothing to undo returns nil.
var steps = []func(b []byte) []byte{
	unescapeJSON,
	func(b []byte) []byte { return unescapeURL(b, false) },
	func(b []byte) []byte { return unescapeURL(b, true) },
	joinStrings,
	dropZeros,
}

// dropZeros makes ASCII of UTF-16.
func dropZeros(b []byte) []byte {
	if bytes.IndexByte(b, 0) < 0 {
		return nil
	}
	return bytes.ReplaceAll(b, []byte{0}, nil)
}

// shortestRun is how many characters of base64 are decoded at least: those of MinSecretBytes.
const shortestRun = (MinSecretBytes*8 + 5) / 6

// decodeBase64 decodes every run of characters of base64, of either alphabet, over line breaks, and
// at each of the four characters where a group may begin: a run may begin with something else.
func decodeBase64(b []byte) []byte {
	b = withoutBlanks(b)
	var out []byte
	for i := 0; i < len(b); {
		if sextet(b[i]) < 0 {
			i++
			continue
		}
		end := i
		for end < len(b) && sextet(b[end]) >= 0 {
			end++
		}
		if end-i >= shortestRun {
			for shift := range 4 {
				out = append(appendDecoded(out, b[i+shift:end]), '\n')
			}
		}
		i = end
	}
	return out
}

// readable are the texts in b, a line each, of at least MinSecretBytes. What else base64 stands for
// is pictures, sound and noise, and searching each three layers deep would take minutes.
func readable(b []byte) []byte {
	var out []byte
	start := 0
	keep := func(end int) {
		if end-start >= MinSecretBytes {
			out = append(append(out, b[start:end]...), '\n')
		}
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 || r < ' ' && r != 0 && (r < '\b' || r > '\r') {
			keep(i)
			start = i + n
		}
		i += n
	}
	keep(len(b))
	return out
}

func withoutBlanks(b []byte) []byte { return bytes.Join(bytes.Fields(b), nil) }

func appendDecoded(out, run []byte) []byte {
	bits, have := uint32(0), 0
	for _, c := range run {
		v := sextet(c)
		if v < 0 {
			break
		}
		bits, have = bits<<6|uint32(v), have+6
		if have >= 8 {
			have -= 8
			out = append(out, byte(bits>>have))
		}
	}
	return out
}

// sextet is what a character of base64 stands for, or -1.
func sextet(c byte) int {
	switch {
	case c >= 'A' && c <= 'Z':
		return int(c - 'A')
	case c >= 'a' && c <= 'z':
		return int(c-'a') + 26
	case c >= '0' && c <= '9':
		return int(c-'0') + 52
	case c == '+' || c == '-':
		return 62
	case c == '/' || c == '_':
		return 63
	}
	return -1
}

// recordMark stands between texts that don't belong together.
const recordMark = '\x1e'

// joinStrings puts the strings of JSON together that a stream delivers in pieces: of one document,
// of a document in each line, of server-sent events, or of AWS event-stream frames. All of them in
// their order, then those of each path (without the places in arrays), then those of each path and
// of what the event calls its index.
func joinStrings(b []byte) []byte {
	if bytes.IndexByte(b, '"') < 0 {
		return nil
	}
	if p := payloads(b); p != nil {
		b = p
	}
	j := joiner{seed: maphash.MakeSeed(), groups: map[uint64]int{}}
	j.read(dataLines(b))
	return j.out()
}

// payloads are those of event-stream frames, a line each; nil if b does not begin with one.
func payloads(b []byte) []byte {
	var out []byte
	for len(b) >= 16 {
		total, headers := uint64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32(b[4:]))
		if total > uint64(len(b)) || total < 16+headers || crc32.ChecksumIEEE(b[:8]) != binary.BigEndian.Uint32(b[8:]) {
			break
		}
		out = append(append(out, b[12+headers:total-4]...), '\n')
		b = b[total:]
	}
	if out == nil {
		return nil
	}
	return append(out, b...) // what a broken connection left of a frame
}

// dataLines are what server-sent events carry, or b if it holds none.
func dataLines(b []byte) []byte {
	if !bytes.Contains(b, []byte("data:")) {
		return b
	}
	var out []byte
	for line := range bytes.FieldsFuncSeq(b, func(r rune) bool { return r == '\n' || r == '\r' || r == recordMark }) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			out = append(append(out, rest...), '\n')
		}
	}
	if out == nil {
		return b
	}
	return out
}

// joiner collects strings.
type joiner struct {
	all    []byte
	seed   maphash.Seed
	groups map[uint64]int // in texts
	texts  []group

	event []piece // strings of the document that is being read
	index string  // its members that are called an index
}

type (
	group struct {
		text   []byte
		pieces int
	}
	piece struct {
		path uint64 // a hash, as a path may be longer than a megabyte
		text string
	}
)

// read takes the JSON in b, and goes on at the next line behind what is none.
func (j *joiner) read(b []byte) {
	for len(b) > 0 {
		start := bytes.IndexAny(b, `{["`)
		if start < 0 {
			return
		}
		b = b[start:]
		n := j.document(b)
		next := bytes.IndexAny(b[n:], "\n\x1e")
		if next < 0 {
			return
		}
		b = b[n+next:]
	}
}

// document reads values until something is none, and says where.
func (j *joiner) document(b []byte) int {
	dec := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	defer j.flush()
	type member struct {
		index bool   // it is called one
		path  uint64 // of it, with all that it is in
	}
	members := []member{{}} // at each depth
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return int(min(dec.InputOffset(), int64(len(b))))
		}
		depth := dec.StackDepth()
		for len(members) <= depth {
			members = append(members, member{})
		}
		parent, n := dec.StackIndex(depth)
		switch tok.Kind() {
		case jsontext.KindString:
			if parent == jsontext.KindBeginObject && n%2 == 1 {
				name := tok.String()
				members[depth] = member{strings.HasSuffix(strings.ToLower(name), "index"), j.below(members[depth-1].path, name)}
				continue
			}
			j.event = append(j.event, piece{members[depth].path, tok.String()})
		case jsontext.KindNumber:
			if members[depth].index && len(j.index) < 64 {
				j.index += " " + tok.String()
			}
		case jsontext.KindBeginObject, jsontext.KindBeginArray:
			members[depth] = member{path: j.below(members[depth-1].path, "")}
		default:
		}
		if depth == 0 {
			j.flush()
		}
	}
}

// flush ends a document.
func (j *joiner) flush() {
	for _, p := range j.event {
		j.all = append(j.all, p.text...)
		j.add(p.path, p.text)
		if j.index != "" {
			j.add(j.below(p.path, j.index), p.text)
		}
	}
	j.event, j.index = j.event[:0], ""
}

// below is the path of a member of what has the given one.
func (j *joiner) below(path uint64, name string) uint64 {
	return maphash.Comparable(j.seed, piece{path, name})
}

func (j *joiner) add(key uint64, text string) {
	at, ok := j.groups[key]
	if !ok {
		at = len(j.texts)
		j.groups[key] = at
		j.texts = append(j.texts, group{})
	}
	j.texts[at].text = append(j.texts[at].text, text...)
	j.texts[at].pieces++
}

func (j *joiner) out() []byte {
	out := j.all
	for _, g := range j.texts {
		// A single string is in the other forms as well, unless it is a stream of its own.
		if g.pieces > 1 || bytes.IndexByte(g.text, '\n') >= 0 {
			out = append(append(out, recordMark), g.text...)
		}
	}
	return out
}
