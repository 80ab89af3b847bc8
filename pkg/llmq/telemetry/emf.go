package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// emf is CloudWatch's embedded metric format, as far as it is used here: one document is one line of
// a log, and nothing else may stand in that line.
type (
	emfMeta struct {
		Timestamp int64          `json:"Timestamp"` // Unix ms
		Metrics   []emfDirective `json:"CloudWatchMetrics"`
	}
	emfDirective struct {
		Namespace  string      `json:"Namespace"`
		Dimensions [][]string  `json:"Dimensions"`
		Metrics    []emfMetric `json:"Metrics"`
	}
	emfMetric struct {
		Name Metric `json:"Name"`
		Unit string `json:"Unit"`
	}
)

// mostValues is how many values of one metric a document may hold.
const mostValues = 100

// FlushEMF writes what was counted since the last flush, a line for each set of labels in one write, and
// nothing where nothing was. In a Lambda w is the standard output: a logger would wrap the line and
// hide it from CloudWatch. What could not be written is lost. A lasting recorder writes nothing.
//
// It comes at the end of every invocation, so it puts its lines together by hand.
func (r *Recorder) FlushEMF(w io.Writer, namespace string) error {
	if r == nil || r.lasting {
		return nil
	}
	lines := r.lines(namespace, time.Now().UnixMilli())
	if len(lines) == 0 {
		return nil
	}
	if _, err := w.Write(lines); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

func (r *Recorder) lines(namespace string, now int64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []byte
	for _, s := range r.order {
		for from := 0; s.due(from); from += mostValues {
			if out == nil {
				out = make([]byte, 0, 2048)
			}
			out = s.document(out, namespace, now, from)
		}
		for i := range s.values {
			s.values[i].told = true
		}
	}
	return out
}

// has reports whether a document has v: the first all that is new, a further one the values of histograms from that one on.
func (v value) has(from int) bool { return !v.told && (from == 0 || from < len(v.each)) }

func (s *set) due(from int) bool {
	return slices.ContainsFunc(s.values, func(v value) bool { return v.has(from) })
}

// document appends one line. The metrics and the labels that it declares are members of it.
func (s *set) document(out []byte, namespace string, now int64, from int) []byte {
	out = append(out, `{"_aws":{"Timestamp":`...)
	out = strconv.AppendInt(out, now, 10)
	out = append(out, `,"CloudWatchMetrics":[{"Namespace":`...)
	out = appendText(out, namespace)
	out = append(out, `,"Dimensions":[[`...)
	pairs := s.labels.Pairs()
	for i, p := range pairs {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendText(out, p[0])
	}
	out = append(out, `]],"Metrics":[`...)
	comma := false
	for _, v := range s.values {
		if !v.has(from) {
			continue
		}
		if comma {
			out = append(out, ',')
		}
		comma = true
		out = append(append(append(append(append(out, `{"Name":"`...), v.metric...), `","Unit":"`...), unitOf(v.metric)...), `"}`...)
	}
	out = append(out, `]}]}`...)
	for _, p := range pairs {
		out = appendText(append(appendText(append(out, ','), p[0]), ':'), p[1])
	}
	for _, v := range s.values {
		if v.has(from) {
			out = append(append(append(append(out, `,"`...), v.metric...), `":`...), v.text(from)...)
		}
	}
	return append(out, "}\n"...)
}

// text is a number, or the list of at most mostValues numbers from that one on.
func (v value) text(from int) []byte {
	if len(v.each) == 0 {
		return strconv.AppendFloat(nil, v.number, 'f', -1, 64)
	}
	out := []byte{'['}
	for i, x := range v.each[from:min(from+mostValues, len(v.each))] {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendFloat(out, x, 'f', -1, 64)
	}
	return append(out, ']')
}

// appendText appends s as JSON has it.
func appendText(out []byte, s string) []byte {
	plain := func(c rune) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' }
	if strings.ContainsFunc(s, func(c rune) bool { return !plain(c) }) {
		text, _ := json.Marshal(s) // a string always has one
		return append(out, text...)
	}
	return append(append(append(out, '"'), s...), '"')
}

func unitOf(m Metric) string {
	switch {
	case strings.HasSuffix(string(m), "_total"):
		return "Count"
	case strings.HasSuffix(string(m), "_seconds"):
		return "Seconds"
	}
	return "None"
}

// ReadEMF adds what a line of [Recorder.FlushEMF] tells. It reports false for any other line.
func (r *Recorder) ReadEMF(line []byte) bool {
	var doc map[string]json.RawMessage
	if !bytes.Contains(line, []byte(`"_aws"`)) || json.Unmarshal(line, &doc) != nil {
		return false
	}
	var meta emfMeta
	if json.Unmarshal(doc["_aws"], &meta) != nil || len(meta.Metrics) != 1 || len(meta.Metrics[0].Dimensions) != 1 {
		return false
	}
	d := meta.Metrics[0]
	var l Labels
	for _, name := range d.Dimensions[0] {
		var v string
		if json.Unmarshal(doc[name], &v) != nil || !l.set(name, v) {
			return false
		}
	}
	for _, m := range d.Metrics {
		if r.read(m.Name, l, doc[string(m.Name)]) != nil {
			return false
		}
	}
	return true
}

func (r *Recorder) read(m Metric, l Labels, raw json.RawMessage) error {
	info, known := infoOf(m)
	if !known {
		return errors.New("no such metric")
	}
	if info.Kind == Histogram {
		var each []float64
		if err := json.Unmarshal(raw, &each); err != nil {
			return fmt.Errorf("values of %s: %w", m, err)
		}
		for _, x := range each {
			r.Observe(m, l, x)
		}
		return nil
	}
	var x float64
	if err := json.Unmarshal(raw, &x); err != nil {
		return fmt.Errorf("value of %s: %w", m, err)
	}
	if info.Kind == Counter {
		r.add(m, l, x)
	} else {
		r.Set(m, l, x)
	}
	return nil
}
