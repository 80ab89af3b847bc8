// Package settings holds what operators set while processes run: the document that is stored, the changes that are made to it, and what
// a change has changed. It is pure; package live keeps it in the state store, and package config says what may be
// set and what comes of it.
package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// Schema is the number of the document's form. A release that writes what the one before would misread counts it up.
const Schema = 1

// MaxBytes bounds a document. A thousand models with ten settings each are about as much.
const MaxBytes = 256 << 10

// The ways in which what is stored can't be read.
var (
	ErrUnreadable = errors.New("the stored settings are unreadable")
	ErrNewer      = errors.New("the stored settings are a newer release's")
)

// document is how overrides are stored.
type document struct {
	Schema int `json:"schema"`
	config.Overrides
}

// Parse reads what is stored. Its errors are [ErrUnreadable] and [ErrNewer].
func Parse(text []byte) (config.Overrides, error) {
	if len(text) > MaxBytes {
		return config.Overrides{}, fmt.Errorf("%w: they have %d bytes, more than %d", ErrUnreadable, len(text), MaxBytes)
	}
	var form struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(text, &form); err != nil || form.Schema < 1 {
		return config.Overrides{}, fmt.Errorf("%w: they are no document of settings", ErrUnreadable)
	}
	if form.Schema > Schema {
		return config.Overrides{}, fmt.Errorf("%w: their schema is %d, and this release knows %d", ErrNewer, form.Schema, Schema)
	}
	var d document
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return config.Overrides{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return config.Overrides{}, fmt.Errorf("%w: something follows the document", ErrUnreadable)
	}
	return d.Overrides, nil
}

// Encode writes what is to be stored.
func Encode(o config.Overrides) ([]byte, error) {
	text, err := json.Marshal(document{Schema: Schema, Overrides: o})
	if err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("write settings: they have %d bytes, more than %d", len(text), MaxBytes)
	}
	return text, nil
}

// Of says whose settings a change is about: a model's or a provider's. Exactly one of them is given.
type Of struct{ Model, Provider string }

// Set is o with values set for one model or provider. o stays as it is.
func Set(o config.Overrides, of Of, values config.Values) config.Overrides {
	return edit(o, of, func(v config.Values) { maps.Copy(v, values) })
}

// Unset is o without values of those names. They need not be there.
func Unset(o config.Overrides, of Of, names []string) config.Overrides {
	return edit(o, of, func(v config.Values) {
		maps.DeleteFunc(v, func(name string, _ string) bool { return slices.Contains(names, name) })
	})
}

func edit(o config.Overrides, of Of, change func(config.Values)) config.Overrides {
	if of.Provider != "" {
		o.Providers = edited(o.Providers, of.Provider, change)
	} else {
		o.Models = edited(o.Models, of.Model, change)
	}
	return o
}

func edited(all map[string]config.Values, name string, change func(config.Values)) map[string]config.Values {
	all = maps.Clone(all)
	if all == nil {
		all = map[string]config.Values{}
	}
	values := maps.Clone(all[name])
	if values == nil {
		values = config.Values{}
	}
	if change(values); len(values) == 0 {
		delete(all, name)
	} else {
		all[name] = values
	}
	return all
}

// Change is one entry of the audit: who changed what, and when.
type Change struct {
	At       time.Time    `json:"at"`
	By       string       `json:"by"`
	Verb     string       `json:"verb"`
	Revision int          `json:"revision"` // that it made
	Changed  []Difference `json:"changed"`
}

// Difference is a value before and after a change; nil is none.
type Difference struct {
	Name   string  `json:"name"` // such as models.chat.rpm
	Before *string `json:"before"`
	After  *string `json:"after"`
}

// Differences lists what differs between two sets of overrides, by name.
func Differences(before, after config.Overrides) []Difference {
	was, is := flat(before), flat(after)
	both := maps.Clone(was)
	maps.Copy(both, is)
	out := []Difference{}
	for _, name := range slices.Sorted(maps.Keys(both)) {
		d := Difference{Name: name}
		if v, there := was[name]; there {
			d.Before = &v
		}
		if v, there := is[name]; there {
			d.After = &v
		}
		if d.Before == nil || d.After == nil || *d.Before != *d.After {
			out = append(out, d)
		}
	}
	return out
}

// flat is every value by its name.
func flat(o config.Overrides) map[string]string {
	all := map[string]string{}
	for kind, of := range map[string]map[string]config.Values{"models.": o.Models, "providers.": o.Providers} {
		for entry, values := range of {
			for name, value := range values {
				all[kind+entry+"."+name] = value
			}
		}
	}
	for alias, chain := range o.Chains {
		all["models."+alias+".fallback"] = compact(chain)
	}
	for alias, skipped := range o.SkipTargets {
		all["models."+alias+".skip_targets"] = compact(skipped)
	}
	if o.Killed {
		all["routing.killed"] = strconv.FormatBool(true)
	}
	return all
}

func compact(list any) string {
	text, err := json.Marshal(list)
	if err != nil { // lists of words and flags can always be written
		panic("settings: " + err.Error())
	}
	return string(text)
}
