package telemetry

import (
	"bytes"
	"encoding/json"
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

// FlushEMF writes what was counted since the last flush, a line for each set of labels in one write, and
// nothing where nothing was. In a Lambda w is the standard output: a logger would wrap the line and
// hide it from CloudWatch. What could not be written is lost.
func (r *Recorder) FlushEMF(w io.Writer, namespace string) error {
	if r == nil {
		return nil
	}
	values, now := r.take(), time.Now().UnixMilli()
	var lines bytes.Buffer
	for _, l := range slices.SortedFunc(maps.Keys(values), Labels.compare) {
		line, err := document(namespace, now, l, values[l])
		if err != nil {
			return fmt.Errorf("metrics of %+v: %w", l, err)
		}
		lines.Write(append(line, '\n'))
	}
	if lines.Len() == 0 {
		return nil
	}
	if _, err := w.Write(lines.Bytes()); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// document is one line. The metrics and the labels that it declares are members of it.
func document(namespace string, now int64, l Labels, values map[Metric]int64) ([]byte, error) {
	doc := make(map[string]any, len(values)+5)
	d := emfDirective{Namespace: namespace, Dimensions: [][]string{{}}}
	for _, p := range l.pairs() {
		d.Dimensions[0] = append(d.Dimensions[0], p[0])
		doc[p[0]] = p[1]
	}
	for _, m := range slices.Sorted(maps.Keys(values)) {
		unit := "None"
		if strings.HasSuffix(string(m), "_total") {
			unit = "Count"
		}
		d.Metrics = append(d.Metrics, emfMetric{m, unit})
		doc[string(m)] = values[m]
	}
	doc["_aws"] = emfMeta{Timestamp: now, Metrics: []emfDirective{d}}
	return json.Marshal(doc)
}
