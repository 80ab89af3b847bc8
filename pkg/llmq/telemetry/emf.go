package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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
func (r *Recorder) FlushEMF(w io.Writer, namespace string) error {
	if r == nil || r.lasting {
		return nil
	}
	values, now := r.take(), time.Now().UnixMilli()
	var lines bytes.Buffer
	for _, l := range slices.SortedFunc(maps.Keys(values), Labels.compare) {
		for rest := values[l]; len(rest) > 0; {
			var line []byte
			var err error
			if line, rest, err = document(namespace, now, l, rest); err != nil {
				return fmt.Errorf("metrics of %+v: %w", l, err)
			}
			lines.Write(append(line, '\n'))
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	if _, err := w.Write(lines.Bytes()); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// document is one line, and what is left for another. The metrics and the labels that it declares are members of it.
func document(namespace string, now int64, l Labels, values map[Metric]value) ([]byte, map[Metric]value, error) {
	doc := make(map[string]any, len(values)+5)
	d := emfDirective{Namespace: namespace, Dimensions: [][]string{{}}}
	for _, p := range l.Pairs() {
		d.Dimensions[0] = append(d.Dimensions[0], p[0])
		doc[p[0]] = p[1]
	}
	var rest map[Metric]value
	for _, m := range slices.Sorted(maps.Keys(values)) {
		d.Metrics = append(d.Metrics, emfMetric{m, unitOf(m)})
		v := values[m]
		switch {
		case v.each == nil:
			doc[string(m)] = v.number
		case len(v.each) > mostValues:
			doc[string(m)] = v.each[:mostValues]
			if rest == nil {
				rest = map[Metric]value{}
			}
			rest[m] = value{each: v.each[mostValues:]}
		default:
			doc[string(m)] = v.each
		}
	}
	doc["_aws"] = emfMeta{Timestamp: now, Metrics: []emfDirective{d}}
	line, err := json.Marshal(doc)
	return line, rest, err
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
