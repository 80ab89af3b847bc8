package config

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-queue/llmq/pkg/llmq"
)

// The variables that set limits where no file can be given, such as in `make run`.
const (
	limitsByModel    = "LLMQ_LIMITS_BY_MODEL"
	limitsByProvider = "LLMQ_LIMITS_BY_PROVIDER"
)

// limitsByModel sets limits of targets; an alias comes before its targets, so that the closer
// one wins.
func (o overlay) limitsByModel(text string) {
	rows := models()
	of, err := readLimits(text)
	if err != nil {
		o.faultAt(origin{env: limitsByModel}, "", `must be JSON such as {"alias": {"rpm": 60, "lane_max_concurrency": {"bulk": 3}}}: %v`, err)
		return
	}
	slices.SortStableFunc(of, func(a, b member) int { return strings.Count(a.name, "@") - strings.Count(b.name, "@") })
	for _, entry := range of {
		alias, pinned, _ := strings.Cut(entry.name, "@")
		hits := o.targets(alias, pinned)
		if hits == nil {
			o.noModel(limitsByModel, entry.name)
		}
		o.setLimits(limitsByModel, entry, limitRows(rows, "models.*.targets[]."), hits)
	}
}

// limitsByProvider sets what a provider's targets share, and the limits of those that say
// nothing else.
func (o overlay) limitsByProvider(text string) {
	rows := models()
	of, err := readLimits(text)
	if err != nil {
		o.faultAt(origin{env: limitsByProvider}, "", `must be JSON such as {"provider": {"shared_rpm": 60}}: %v`, err)
		return
	}
	var known []string
	for _, p := range o.draft.cfg.Providers {
		known = append(known, p.Name)
	}
	for _, entry := range of {
		var hits []scope
		for _, s := range o.draft.scopes("providers.*.") {
			if s.name == entry.name {
				hits = append(hits, s)
			}
		}
		if hits == nil {
			o.faultAt(origin{env: limitsByProvider}, "", "no provider is named %q%s", llmq.Clip(entry.name, 60), didYouMean(entry.name, known, "providers"))
		}
		o.setLimits(limitsByProvider, entry, limitRows(rows, "providers.*."), hits)
	}
}

// limitRows are the rows of limits below a place, by their keys there.
func limitRows(rows []setting, below string) map[string]setting {
	of := map[string]setting{}
	for _, limit := range append(sharedLimits(), capAndLimits(below, "", nil, nil)...) {
		i := slices.IndexFunc(rows, func(st setting) bool { return st.path == limit.path })
		if key, here := strings.CutPrefix(limit.path, below); here && i >= 0 {
			of[key] = rows[i]
		}
	}
	return of
}

// setLimits sets the limits of an entry at each of the places that it names.
func (o overlay) setLimits(name string, entry member, rows map[string]setting, hits []scope) {
	var keys []string
	for key := range rows {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	bad := func(key, format string, args ...any) {
		o.faultAt(origin{env: name}, segment(entry.name)+"."+segment(key), format, args...)
	}
	for _, limit := range entry.flat() {
		st, known := rows[limit.name]
		switch {
		case !known:
			bad(limit.name, "no such key%s", didYouMean(limit.name, keys, "known here"))
			continue
		case limit.quoted != (st.form == formText):
			bad(limit.name, "must be %s", map[bool]string{true: "text, in quotes", false: "a number, without quotes"}[st.form == formText])
			continue
		}
		for _, s := range hits {
			path := s.prefix + st.leaf()
			if by := o.given[path].env; by != "" && by != name {
				bad(limit.name, "is given by %s too; set one of them", by)
				continue
			}
			if problem := st.store(st.at(&s), limit.text); problem != "" {
				o.fault(o.give(path, name), "%s", problem)
				continue
			}
			o.give(path, name)
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

// readLimits reads an object of objects, in its order.
func readLimits(text string) ([]member, error) {
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
	for _, m := range of {
		if !m.object {
			return nil, errors.New("the value of " + quoted(m.name) + " is no object of limits")
		}
	}
	return of, nil
}

// limitDepth is how deep limits nest: a model, a limit, a lane.
const limitDepth = 3

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
		if depth > 1 && strings.Contains(m.name, ".") {
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
			if v != '{' || depth == limitDepth {
				return nil, errors.New("the value of " + quoted(m.name) + " is no limit")
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
