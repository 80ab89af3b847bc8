package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// twice finds the first member that an object of a JSON text has twice, and where: the decoder would take the last in silence. "" is none;
// what is no JSON ends the search, and is for the decoder to tell.
func twice(text []byte) (key, at string) {
	type level struct {
		keys  map[string]bool // nil in a list
		value bool            // the next token is a member's value
	}
	var open []level
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		t, err := d.Token()
		if err != nil {
			return "", ""
		}
		var in *level
		if len(open) > 0 {
			in = &open[len(open)-1]
		}
		switch delim, _ := t.(json.Delim); {
		case delim == '}' || delim == ']':
			open = open[:len(open)-1]
			continue
		case in != nil && in.keys != nil && !in.value:
			name, _ := t.(string) // nothing else stands there
			if in.keys[name] {
				before := text[:d.InputOffset()]
				line := bytes.Count(before, []byte("\n")) + 1
				return name, fmt.Sprintf("line %d, column %d", line, len(before)-(bytes.LastIndexByte(before, '\n')+1))
			}
			in.keys[name], in.value = true, true
			continue
		case in != nil:
			in.value = false
		}
		switch t {
		case json.Delim('{'):
			open = append(open, level{keys: map[string]bool{}})
		case json.Delim('['):
			open = append(open, level{})
		}
	}
}
