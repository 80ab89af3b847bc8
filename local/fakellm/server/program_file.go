package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// ParseProgram reads a program from YAML or JSON, in the form that the admin API's documentation
// shows. It takes nothing that it does not know, and its errors name the line and the column:
// "line 7:5: rules[0].phases[1].rpm.quotta: there is no such field".
func ParseProgram(data []byte) (Program, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return Program{}, errors.New("the program is empty: it has no rules and no queue")
	}
	var in programJSON
	doc, err := decodeDocument(data, &in)
	if err != nil {
		return Program{}, err
	}
	p, err := in.program()
	if err != nil {
		return Program{}, doc.locate(err)
	}
	return p, nil
}

// document is a text, to give errors their lines and columns in it.
type document []byte

// locate puts the lines and columns in front of the errors that are placed in the document. JSON that
// is no YAML has none.
func (d document) locate(err error) error {
	if err == nil {
		return nil
	}
	root, unreadable := parseYAML(d)
	if unreadable != nil {
		return err
	}
	return locate(root, err)
}

// decodeDocument reads YAML or JSON into v, strictly.
func decodeDocument(data []byte, v any) (document, error) {
	doc := document(data)
	if jsontext.Value(data).IsValid() { // as it is: faster, and YAML does not know all of JSON's escapes
		return doc, doc.locate(decodeStrict(data, v))
	}
	root, err := parseYAML(data)
	if err != nil {
		return nil, fmt.Errorf("read YAML or JSON: %w", err)
	}
	var tree any
	if err := root.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read YAML or JSON: %w", err)
	}
	if err := plain(tree); err != nil {
		return nil, doc.locate(err)
	}
	encoded, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("read YAML or JSON: %w", err)
	}
	return doc, doc.locate(decodeStrict(encoded, v))
}

func parseYAML(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root yaml.Node
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return nil, errors.New("there is nothing but comments")
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document")
	}
	return &root, nil
}

// plain refuses what YAML has and JSON has not.
func plain(tree any) error {
	switch v := tree.(type) {
	case map[any]any:
		return placed{"", errors.New("want names of fields that are texts")}
	case map[string]any:
		for name, each := range v {
			if err := plain(each); err != nil {
				return at(name, err)
			}
		}
	case []any:
		for i, each := range v {
			if err := plain(each); err != nil {
				return at(itoa(i), err)
			}
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return placed{"", fmt.Errorf("%v: want a finite number", v)}
		}
	}
	return nil
}

// locate puts the lines and columns of a document in front of the errors that are placed in it.
func locate(root *yaml.Node, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		located := make([]error, 0, len(joined.Unwrap()))
		for _, each := range joined.Unwrap() {
			located = append(located, locate(root, each))
		}
		return errors.Join(located...)
	}
	p, ok := errors.AsType[placed](err)
	if !ok {
		return err
	}
	n := find(root, p.place)
	return fmt.Errorf("line %d:%d: %w", n.Line, n.Column, p)
}

// find follows a place as far as the document goes, and gives the name of the last field on it, or
// the item of a list.
func find(n *yaml.Node, place string) *yaml.Node {
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	mark := n
	for part := range strings.SplitSeq(place, "/") {
		m, value := child(n, part)
		if m == nil {
			break
		}
		mark, n = m, value
	}
	return mark
}

// child finds a field or an item: where it is, and what it has.
func child(n *yaml.Node, name string) (mark, value *yaml.Node) {
	switch n.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i]; key.Value == name {
				return key, n.Content[i+1]
			}
		}
		for i := 0; i+1 < len(n.Content); i += 2 { // what is merged in counts less
			if n.Content[i].Tag == "!!merge" {
				return child(n.Content[i+1], name)
			}
		}
	case yaml.AliasNode:
		return child(n.Alias, name)
	case yaml.DocumentNode, yaml.ScalarNode:
	}
	return nil, nil
}
