// Package prom shows llmq's metrics to Prometheus. It is for processes that run on: a Go program mounts [Handler], or
// registers a [Collector] with its own registry. A function tells CloudWatch instead, and doesn't link this.
package prom

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// Source has metrics: a [telemetry.Recorder], or a program of package wiring, which adds what the state store knows.
type Source interface {
	Samples(ctx context.Context) []telemetry.Sample
}

// within bounds a scrape: what is not known by then is left out.
const within = 5 * time.Second

// Collector is a source's metrics for a registry. A registry takes one of them: another's names are the same.
func Collector(s Source) prometheus.Collector {
	c := collector{source: s, descs: map[telemetry.Metric]described{}}
	for _, in := range telemetry.Metrics() {
		c.descs[in.Name] = described{in, prometheus.NewDesc(string(in.Name), in.Help, in.Labels, nil)}
	}
	return c
}

type collector struct {
	source Source
	descs  map[telemetry.Metric]described
}

type described struct {
	telemetry.Info
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for _, s := range c.source.Samples(ctx) {
		d, known := c.descs[s.Metric]
		if !known {
			continue
		}
		labels := s.Labels.In(d.Labels)
		switch d.Kind {
		case telemetry.Counter:
			to <- prometheus.MustNewConstMetric(d.desc, prometheus.CounterValue, s.Value, labels...)
		case telemetry.Gauge:
			to <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, s.Value, labels...)
		case telemetry.Histogram:
			to <- prometheus.MustNewConstHistogram(d.desc, s.Buckets.Count, s.Buckets.Sum, s.Buckets.UpTo, labels...)
		}
	}
}

// Handler serves a source's metrics and no others, to whoever can reach it: it asks for no key. Mount it where only Prometheus can.
func Handler(s Source) http.Handler {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(Collector(s))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}
