package cassette

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is how deep JSON may nest to be compared as JSON.
const maxDepth = 500

// node is a JSON value: what it means, not how it is spelled.
type node struct {
	kind  jsontext.Kind
	text  string   // of a string: its characters; of a number: its value
	names []string // of an object: sorted; items are in the same order
	items []node
}

// parse reads an object or array. Whatever else a body is, a name given twice, text that is not
// UTF-8, half a surrogate pair or something that nests too deep included, is no JSON to us: two
// readers could see two different things in it, so it is compared byte by byte.
func parse(body []byte) (node, bool) {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' && trimmed[0] != '[' {
		return node{}, false
	}
	dec := jsontext.NewDecoder(bytes.NewReader(body))
	n, err := parseValue(dec, 0)
	if err != nil {
		return node{}, false
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return node{}, false
	}
	return n, true
}

var errDepth = errors.New("nests too deep")

func parseValue(dec *jsontext.Decoder, depth int) (node, error) {
	if depth > maxDepth {
		return node{}, errDepth
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return node{}, err
	}
	n := node{kind: tok.Kind()}
	switch n.kind {
	case jsontext.KindString:
		n.text = tok.String()
	case jsontext.KindNumber:
		n.text = number(tok.String())
	case jsontext.KindBeginArray:
		for dec.PeekKind() != jsontext.KindEndArray {
			item, err := parseValue(dec, depth+1)
			if err != nil {
				return node{}, err
			}
			n.items = append(n.items, item)
		}
		_, err = dec.ReadToken()
	case jsontext.KindBeginObject:
		err = parseMembers(dec, depth, &n)
	default: // null, true, false: their kind says it all. An end that has no beginning is an error before.
	}
	return n, err
}

func parseMembers(dec *jsontext.Decoder, depth int, n *node) error {
	type member struct {
		name  string
		value node
	}
	var members []member
	for dec.PeekKind() != jsontext.KindEndObject {
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := tok.String()
		value, err := parseValue(dec, depth+1)
		if err != nil {
			return err
		}
		members = append(members, member{name, value})
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for _, m := range members {
		n.names, n.items = append(n.names, m.name), append(n.items, m.value)
	}
	_, err := dec.ReadToken()
	return err
}

// appendTo writes the canonical form: equal for values that mean the same, and only for those.
func (n node) appendTo(b []byte) []byte {
	switch n.kind {
	case jsontext.KindString:
		return strconv.AppendQuote(b, n.text)
	case jsontext.KindNumber:
		return append(b, n.text...)
	case jsontext.KindBeginArray, jsontext.KindBeginObject:
		b = append(b, byte(n.kind))
		for i, item := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			if n.names != nil {
				b = append(strconv.AppendQuote(b, n.names[i]), ':')
			}
			b = item.appendTo(b)
		}
		return append(b, byte(n.kind)+2) // ] follows [ by two, as } does {
	default:
		return append(b, byte(n.kind)) // n, t, f
	}
}

// number is a number's exact decimal value, so that 0, 0.0 and -0e9 are one, and so are 100 and
// 1e2, while 9007199254740993 and 9007199254740992 are two, which floats would not tell apart.
func number(s string) string {
	rest, negative := strings.CutPrefix(s, "-")
	mantissa, exponent := rest, int64(0)
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		e, err := strconv.ParseInt(rest[i+1:], 10, 32)
		if err != nil {
			return s // no number that anybody means; its spelling tells it
		}
		mantissa, exponent = rest[:i], e
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent -= int64(len(fraction))
	short := strings.TrimRight(digits, "0")
	exponent += int64(len(digits) - len(short))
	if short == "" {
		return "0"
	}
	out := short + "e" + strconv.FormatInt(exponent, 10)
	if negative {
		return "-" + out
	}
	return out
}

// difference is where b first differs from a, as a JSON pointer, and in how many places in all.
// It tells places and never values: those may be a prompt's.
func difference(a, b node) (first string, count int) {
	d := differ{}
	d.walk(a, b)
	return d.first, d.count
}

type differ struct {
	path  []string
	first string
	count int
}

func (d *differ) hit(names ...string) {
	if d.count == 0 {
		d.first = pointer(append(slices.Clone(d.path), names...))
	}
	d.count++
}

func (d *differ) in(name string, f func()) {
	d.path = append(d.path, name)
	f()
	d.path = d.path[:len(d.path)-1]
}

func (d *differ) walk(a, b node) {
	switch {
	case a.kind != b.kind || a.text != b.text:
		d.hit()
	case a.kind == jsontext.KindBeginArray:
		for i := range max(len(a.items), len(b.items)) {
			if i >= len(a.items) || i >= len(b.items) {
				d.hit(strconv.Itoa(i))
				continue
			}
			d.in(strconv.Itoa(i), func() { d.walk(a.items[i], b.items[i]) })
		}
	case a.kind == jsontext.KindBeginObject:
		i, j := 0, 0
		for i < len(a.names) || j < len(b.names) {
			switch {
			case j >= len(b.names) || i < len(a.names) && a.names[i] < b.names[j]:
				d.hit(a.names[i])
				i++
			case i >= len(a.names) || a.names[i] > b.names[j]:
				d.hit(b.names[j])
				j++
			default:
				d.in(a.names[i], func() { d.walk(a.items[i], b.items[j]) })
				i, j = i+1, j+1
			}
		}
	}
}

func pointer(path []string) string {
	var p jsontext.Pointer
	for _, name := range path {
		p = p.AppendToken(name)
	}
	return string(p)
}
