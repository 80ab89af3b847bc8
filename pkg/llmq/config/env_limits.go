package config

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// settingsVar is the variable that sets what holds for one provider, model or target (FEATURES E2).
const settingsVar = "LLMQ_SETTINGS"

// perEntry sets settings of models, of single targets and of providers. An alias comes before its targets, so that the closer
// one wins.
func (o overlay) perEntry(text string) {
	of, err := readSettings(text)
	if err != nil {
		o.faultAt(origin{env: settingsVar}, "", `must be JSON such as {"models": {"alias": {"rpm": 60}}, "providers": {"name": {"shared_rpm": 60}}}: %v`, err)
		return
	}
	rows := models()
	for _, part := range of {
		switch part.name {
		case "models":
			slices.SortStableFunc(part.of, func(a, b member) int { return strings.Count(a.name, "@") - strings.Count(b.name, "@") })
			for _, entry := range part.of {
				o.ofModel(rows, entry)
			}
		case "providers":
			for _, entry := range part.of {
				o.ofProvider(rows, entry)
			}
		default:
			o.faultAt(origin{env: settingsVar}, segment(part.name), "no such key%s", didYouMean(part.name, []string{"models", "providers"}, "known here"))
		}
	}
}

// ofModel sets each target of a model, or the one that is named, and what only the model itself has.
func (o overlay) ofModel(rows []setting, entry member) {
	alias, pinned, one := strings.Cut(entry.name, "@")
	hits := o.targets(alias, pinned)
	if hits == nil {
		o.noModel(settingsVar, entry.name)
	}
	targets := overridable(rows, atTarget)
	known := targets
	if !one {
		known = overridable(rows, atModel)
	}
	o.setAll(entry, known, func(key string) (setting, []scope) {
		if st, here := targets[key]; here {
			return st, hits
		}
		return known[key], o.entry(atModel, alias)
	})
}

// ofProvider sets a provider.
func (o overlay) ofProvider(rows []setting, entry member) {
	hits := o.entry(atProvider, entry.name)
	if hits == nil {
		o.faultAt(origin{env: settingsVar}, "", "no provider is named %q%s", llmq.Clip(entry.name, 60), didYouMean(entry.name, providerNames(o.draft.cfg), "providers"))
	}
	known := overridable(rows, atProvider)
	o.setAll(entry, known, func(key string) (setting, []scope) { return known[key], hits })
}

// entry is the one of that name.
func (o overlay) entry(at, name string) []scope {
	var hits []scope
	for _, s := range o.draft.scopes(at) {
		if s.name == name {
			hits = append(hits, s)
		}
	}
	return hits
}

// setAll sets what an entry says; row tells where.
func (o overlay) setAll(entry member, known map[string]setting, row func(key string) (setting, []scope)) {
	bad := func(key, format string, args ...any) {
		o.faultAt(origin{env: settingsVar}, segment(entry.name)+"."+segment(key), format, args...)
	}
	for _, value := range entry.flat() {
		if _, here := known[value.name]; !here {
			bad(value.name, "no such key%s", didYouMean(value.name, slices.Sorted(maps.Keys(known)), "known here"))
			continue
		}
		st, hits := row(value.name)
		if value.quoted != (st.form == formText) {
			bad(value.name, "must be %s", map[bool]string{true: "text, in quotes", false: "a number, without quotes"}[st.form == formText])
			continue
		}
		for _, s := range hits {
			path := s.prefix + st.leaf()
			if by := o.given[path].env; by != "" && by != settingsVar {
				bad(value.name, "is given by %s too; set one of them", by)
				continue
			}
			if problem := st.store(st.at(&s), value.text); problem != "" {
				o.fault(o.give(path, settingsVar), "%s", problem)
				continue
			}
			o.give(path, settingsVar)
		}
	}
}

// member is a name of a JSON object with its value: a scalar's text, or members.
type member struct {
	name, text string
	quoted     bool // text stood in quotes
	of         []member
	object     bool
}

// flat is the scalars below m, named by their path as the table does.
func (m member) flat() []member {
	var all []member
	for _, kid := range m.of {
		if !kid.object {
			all = append(all, kid)
			continue
		}
		for _, below := range kid.flat() {
			below.name = kid.name + "." + below.name
			all = append(all, below)
		}
	}
	return all
}

// readSettings reads an object of objects of objects, in its order.
func readSettings(text string) ([]member, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("it is no object")
	}
	of, err := readMembers(dec, 1)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	for _, part := range of {
		for _, m := range append([]member{part}, part.of...) {
			if !m.object {
				return nil, errors.New("the value of " + quoted(m.name) + " is no object of settings")
			}
		}
	}
	return of, nil
}

// settingDepth is how deep settings nest: models, a model, a setting, a lane.
const settingDepth = 4

// readMembers reads the rest of an object whose brace was read.
func readMembers(dec *json.Decoder, depth int) ([]member, error) {
	var of []member
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, errors.New("it ends early or holds a name that is none")
		}
		m := member{}
		m.name, _ = tok.(string) // an object's names are strings
		if depth > 2 && strings.Contains(m.name, ".") {
			return nil, errors.New(quoted(m.name) + ` holds a dot; nest it, as in {"lane_max_concurrency": {"bulk": 3}}`)
		}
		if slices.ContainsFunc(of, func(o member) bool { return o.name == m.name }) {
			return nil, errors.New(quoted(m.name) + " is given twice")
		}
		value, err := dec.Token()
		if err != nil {
			return nil, errors.New("it ends early or holds a value that is none")
		}
		switch v := value.(type) {
		case json.Number:
			m.text = v.String()
		case string:
			m.text, m.quoted = v, true
		case bool:
			m.text = strconv.FormatBool(v)
		case json.Delim:
			if v != '{' || depth == settingDepth {
				return nil, errors.New("the value of " + quoted(m.name) + " is no setting")
			}
			m.object = true
			if m.of, err = readMembers(dec, depth+1); err != nil {
				return nil, err
			}
			if len(m.of) == 0 {
				return nil, errors.New("the value of " + quoted(m.name) + " is empty; leave the name out")
			}
		default:
			return nil, errors.New("the value of " + quoted(m.name) + " is null; leave the name out")
		}
		of = append(of, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("it ends early")
	}
	return of, nil
}
