package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// maxFileBytes bounds the file. A thousand models are about a tenth of it.
const maxFileBytes = 1 << 20

// branch is a place in the tree of keys that the table spells.
type branch struct {
	kids map[string]*branch
	keys []string // of kids, in the table's order
	each *branch  // an entry, where row is a collection
	row  *setting // nil for a section such as door
}

// tree makes the tree of the table's rows.
func tree(rows []setting) *branch {
	root := &branch{}
	for i := range rows {
		at, path := root, strings.ReplaceAll(rows[i].path, "[]", ".[]")
		for part := range strings.SplitSeq(path, ".") {
			if part == "*" || part == "[]" {
				if at.each == nil {
					at.each = &branch{}
					at.row = &rows[i]
				}
				at = at.each
				continue
			}
			if at.kids[part] == nil {
				if at.kids == nil {
					at.kids = map[string]*branch{}
				}
				at.kids[part] = &branch{}
				at.keys = append(at.keys, part)
			}
			at = at.kids[part]
		}
		if rows[i].form != formMap && rows[i].form != formItems {
			at.row = &rows[i]
		}
	}
	return root
}

// reader puts a file's values into a draft.
type reader struct {
	*report
	draft draft
}

// read parses data and stores what it says. It reports false when the file's text
// is so wrong that nothing else can be said of it.
func (r *reader) read(data []byte, rows []setting) bool {
	if len(data) > maxFileBytes {
		r.faultAt(origin{}, "", "is larger than 1 MiB; a configuration is a few KiB")
		return false
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		r.faultAt(origin{}, "", "is empty; it needs at least kind, env, providers and models")
		return false
	case err != nil:
		r.syntax(data, err)
		return false
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		r.faultAt(origin{line: second.Line, column: second.Column}, "", "a second document begins here; one file holds one environment")
		return false
	case !errors.Is(err, io.EOF):
		r.syntax(data, err)
		return false
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		r.faultAt(origin{line: top.Line, column: top.Column}, "", "must be settings by name, such as kind: local")
		return false
	}
	r.section(top, tree(rows), "", scope{cfg: r.draft.cfg})
	return true
}

var syntaxLine = regexp.MustCompile(`^line (\d+): `)

// syntax reports text that is no YAML. The parser's line may be one off, and it
// leaves out line 1; a tab that indents is found exactly.
func (r *report) syntax(data []byte, err error) {
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		if blank := len(text) - len(strings.TrimLeft(text, " \t")); strings.Contains(text[:blank], "\t") {
			r.faultAt(origin{line: line, column: 1 + strings.IndexByte(text, '\t')}, "", "a tab indents this line; YAML allows spaces only")
			return
		}
	}
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line = 1
	if m := syntaxLine.FindStringSubmatch(msg); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		msg = msg[len(m[0]):]
	}
	r.faultAt(origin{line: line, column: 1}, "", "is not YAML, on this line or near it: %s", msg)
}

// section reads a mapping whose keys the table knows.
func (r *reader) section(n *yaml.Node, b *branch, path string, s scope) {
	r.entries(n, path, func(key, value *yaml.Node) {
		kid := b.kids[key.Value]
		if kid == nil {
			r.faultAt(at(key), join(path, key.Value), "no such key%s", didYouMean(key.Value, b.keys, "known here"))
			return
		}
		r.value(key, value, kid, join(path, key.Value), s)
	})
}

// value reads whatever stands at a known key or in a list.
func (r *reader) value(key, n *yaml.Node, b *branch, path string, s scope) {
	r.given[path] = at(key)
	switch {
	case b.row == nil:
		if r.isKind(n, yaml.MappingNode, path, "must be settings by name: "+strings.Join(b.keys, ", ")) {
			r.section(n, b, path, s)
		}
	case b.row.form == formMap:
		if r.isKind(n, yaml.MappingNode, path, "must be entries by name") {
			r.named(n, b, path, s)
		}
	case b.row.form == formItems:
		if r.isKind(n, yaml.SequenceNode, path, "must be a list of entries, each a mapping") {
			r.items(n, b, path, s)
		}
	case b.row.form == formList:
		if r.isKind(n, yaml.SequenceNode, path, "must be a list, such as [a, b]") {
			r.list(n, b.row, path, b.row.at(&s))
		}
	case b.row.form == formSecret:
		if r.isKind(n, yaml.MappingNode, path, "must be a reference, {env: NAME} or {arn: ARN}; a secret itself never stands in the file") {
			if p, ok := b.row.at(&s).(*Secret); ok {
				r.secret(n, path, p)
			}
		}
	default:
		r.scalar(n, b.row, path, b.row.at(&s))
	}
}

// named reads the entries of a collection by name.
func (r *reader) named(n *yaml.Node, b *branch, path string, s scope) {
	r.entries(n, path, func(key, value *yaml.Node) {
		entry := join(path, key.Value)
		r.given[entry] = at(key)
		sub := s
		if b.row.open == nil { // lanes: all there already
			if sub.lane = r.draft.lanes[llmq.Lane(key.Value)]; sub.lane == nil {
				r.fault(entry, "no such lane%s", didYouMean(key.Value, b.row.words, "lanes"))
				return
			}
		} else {
			if problem := b.row.checkText(key.Value); problem != "" {
				r.fault(entry, "the name %s", problem)
			}
			sub = b.row.open(s, key.Value)
		}
		if r.isKind(value, yaml.MappingNode, entry, "must be settings by name: "+strings.Join(b.each.keys, ", ")) {
			r.section(value, b.each, entry, sub)
		}
	})
}

// items reads the entries of a collection by place.
func (r *reader) items(n *yaml.Node, b *branch, path string, s scope) {
	for i, item := range n.Content {
		if r.full() {
			return
		}
		entry := fmt.Sprintf("%s[%d]", path, i)
		r.given[entry] = at(item)
		sub := b.row.open(s, "")
		if r.isKind(item, yaml.MappingNode, entry, "must be settings by name: "+strings.Join(b.each.keys, ", ")) {
			r.section(item, b.each, entry, sub)
		}
	}
}

// list reads the words of a list.
func (r *reader) list(n *yaml.Node, st *setting, path string, field any) {
	for i, item := range n.Content {
		if r.full() {
			return
		}
		word := fmt.Sprintf("%s[%d]", path, i)
		r.given[word] = at(item)
		if !r.isText(item, word) {
			r.faulty[path] = true
			continue
		}
		if problem := st.add(field, item.Value); problem != "" {
			r.fault(word, "%s", problem)
			r.faulty[path] = true
		}
	}
	if len(n.Content) == 0 {
		r.fault(path, "is empty; name at least one or leave the key out")
	}
}

// secret reads a reference. No message shows a value: a secret may have been put
// there by mistake.
func (r *reader) secret(n *yaml.Node, path string, p *Secret) {
	r.entries(n, path, func(key, value *yaml.Node) {
		part := join(path, key.Value)
		r.given[part] = at(value)
		var field *string
		switch key.Value {
		case "env":
			field = &p.Env
		case "arn":
			field = &p.ARN
		default:
			r.faultAt(at(key), part, "no such key; a secret is {env: NAME} or {arn: ARN}")
			r.faulty[path] = true
			return
		}
		if value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str" || value.Value == "" {
			r.fault(part, "must be the name of a variable or an ARN, as text")
			r.faulty[path] = true
			return
		}
		*field = value.Value
	})
	if r.ok(path) && p.IsZero() {
		r.fault(path, "is empty; a secret is {env: NAME} or {arn: ARN}")
	}
}

// scalar reads a plain setting.
func (r *reader) scalar(n *yaml.Node, st *setting, path string, field any) {
	want := "must be " + st.form.article() + st.form.String()
	if !r.isKind(n, yaml.ScalarNode, path, want) {
		return
	}
	r.given[path] = at(n)
	if st.form == formText && !r.isText(n, path) {
		return
	}
	if st.form != formText && n.ShortTag() == "!!str" {
		r.fault(path, "%s, not the text %q", want, llmq.Clip(n.Value, 60))
		return
	}
	if problem := st.store(field, n.Value); problem != "" {
		r.fault(path, "%s", problem)
	}
}

func (f form) article() string {
	if f == formText || f == formBool || f == formSecs || f == formFullSec {
		return ""
	}
	return "a "
}

// entries walks a mapping and refuses names that are given twice or are no plain
// text.
func (r *reader) entries(n *yaml.Node, path string, visit func(key, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content) && !r.full(); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0:
			r.faultAt(at(key), path, "a name here is no plain text")
		case seen[key.Value] > 0:
			r.faultAt(at(key), join(path, key.Value), "is given twice, on line %d first", seen[key.Value])
		default:
			seen[key.Value] = key.Line
			visit(key, value)
		}
	}
}

// isKind checks that a node is what its place wants, and nothing clever: aliases
// would let a small file grow without bound, and tags would change types unseen.
func (r *reader) isKind(n *yaml.Node, want yaml.Kind, path, problem string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.faultAt(at(n), path, "anchors (&) and aliases (*) are refused; write the value out")
	case n.Style&yaml.TaggedStyle != 0:
		r.faultAt(at(n), path, "tags (!) are refused; write the value alone")
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		r.faultAt(at(n), path, "has no value; give one or leave the key out")
	case n.Kind != want:
		r.faultAt(at(n), path, "%s", problem)
	default:
		return true
	}
	r.broken[path] = true
	return false
}

// isText checks that a scalar is text and not what YAML takes for a number or a
// truth.
func (r *reader) isText(n *yaml.Node, path string) bool {
	if !r.isKind(n, yaml.ScalarNode, path, "must be text") {
		return false
	}
	if n.ShortTag() != "!!str" {
		r.faultAt(at(n), path, "must be text; put it in quotes: %q", llmq.Clip(n.Value, 60))
		return false
	}
	return true
}

func at(n *yaml.Node) origin { return origin{line: n.Line, column: n.Column} }
