package config

import (
	"bytes"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

// Marshal writes c as a file that [Load] reads back as c. What c leaves at zero
// where zero is no legal value is left out and gets its default. A c that Load
// would refuse is refused here, with the same [Faults].
func (c *Config) Marshal() ([]byte, error) {
	whole := *c // the draft's own, so that c stays as it is
	d, rows := newDraft(&whole), settings()
	w := writer{rows: rows, draft: d}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(w.root()); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	if _, err := Parse("", b.Bytes(), nil); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// WriteFile marshals c into a file that only its owner can read.
func (c *Config) WriteFile(path string) error {
	b, err := c.Marshal()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return nil
}

// writer makes YAML of a draft, along the tree of the table.
type writer struct {
	rows  []setting
	draft draft
}

func (w writer) root() *yaml.Node {
	return w.section(tree(w.rows), scope{cfg: w.draft.cfg})
}

// section writes what is set below b; a mapping with nothing in it is left out by
// the caller.
func (w writer) section(b *branch, s scope) *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range b.keys {
		if n := w.value(b.kids[key], s); n != nil {
			put(m, key, n)
		}
	}
	return m
}

func (w writer) value(b *branch, s scope) *yaml.Node {
	switch {
	case b.row == nil:
		if m := w.section(b, s); len(m.Content) > 0 {
			return m
		}
		return nil
	case b.row.form == formMap || b.row.form == formItems:
		return w.collection(b, s)
	case b.row.form == formList:
		words := listed(b.row.at(&s))
		if len(words) == 0 {
			return nil
		}
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, word := range words {
			list.Content = append(list.Content, scalar(word, formText))
		}
		return list
	case b.row.form == formSecret:
		if p, ok := b.row.at(&s).(*Secret); ok && !p.IsZero() {
			return reference(*p)
		}
		return nil
	}
	t, zero := text(b.row.at(&s))
	if _, number := b.row.at(&s).(*Number); zero && (number || !b.row.zeroCounts()) {
		return nil
	}
	return scalar(t, b.row.form)
}

// zeroCounts reports whether a setting's zero value says something else than its
// absence.
func (st setting) zeroCounts() bool {
	switch st.form {
	case formBool:
		return st.def != "false"
	case formCount, formSecs, formFullSec, formNumber:
		return st.low == 0
	default:
		return false
	}
}

func (w writer) collection(b *branch, s scope) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if b.row.form == formMap {
		n.Kind = yaml.MappingNode
	}
	for _, e := range w.draft.scopes(b.row.path + ".") {
		if s.model != nil && e.model != s.model { // targets of another model
			continue
		}
		if m := w.section(b.each, e); len(m.Content) == 0 {
			continue
		} else if b.row.form == formMap {
			put(n, e.name, m)
		} else {
			n.Content = append(n.Content, m)
		}
	}
	if len(n.Content) == 0 {
		return nil
	}
	return n
}

func reference(s Secret) *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	if s.Env != "" {
		put(m, "env", scalar(s.Env, formText))
	}
	if s.ARN != "" {
		put(m, "arn", scalar(s.ARN, formText))
	}
	return m
}

func put(m *yaml.Node, key string, n *yaml.Node) {
	m.Content = append(m.Content, scalar(key, formText), n)
}

// scalar is a value; text gets quotes where it would be read as something else.
func scalar(s string, f form) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: s}
	if f == formText {
		n.Tag = "!!str"
	}
	return n
}
