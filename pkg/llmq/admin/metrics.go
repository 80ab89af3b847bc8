package admin

import (
	"context"

	"github.com/llm-queue/llmq/pkg/llmq/telemetry"
)

// MetricsView is what llmq counts, and what CloudWatch takes for it in this deployment.
type MetricsView struct {
	Metrics []MetricView `json:"metrics"`
	Series  int          `json:"series"` // of all, at most, in hours without faults
	Dollars float64      `json:"dollars_per_month"`
	Price   SeriesPrice  `json:"price"`
}

// MetricView is one metric.
type MetricView struct {
	Name   telemetry.Metric `json:"name"`
	Kind   string           `json:"kind"`
	Labels []string         `json:"labels"`
	From   string           `json:"from"`
	Help   string           `json:"help"`
	Series int              `json:"series"`           // in CloudWatch, at most, in hours without faults
	Rare   bool             `json:"rare,omitempty"`   // only a fault makes its series
	Native bool             `json:"native,omitempty"` // CloudWatch has it by itself
}

// SeriesPrice is what a series takes a month.
type SeriesPrice struct {
	Dollars float64 `json:"dollars_per_series"`
	Region  string  `json:"region"`
	AsOf    string  `json:"as_of"`
}

// Metrics lists them for the models, lanes, targets and chains that hold now.
func (a *Admin) Metrics(ctx context.Context) MetricsView {
	d := a.deployed(ctx)
	view := MetricsView{Price: SeriesPrice{telemetry.SeriesPrice, "us-east-1", telemetry.PriceAsOf}}
	for _, in := range telemetry.Metrics() {
		n := in.Series(d)
		view.Series += n
		view.Metrics = append(view.Metrics, MetricView{in.Name, in.Kind.String(), in.Labels, in.From, in.Help, n, in.Rare, in.Native})
	}
	view.Dollars = telemetry.Dollars(view.Series)
	return view
}

func (a *Admin) deployed(ctx context.Context) telemetry.Deployed {
	var d telemetry.Deployed
	now := a.InForce(ctx)
	for _, m := range now.Catalogue.Models() {
		if !m.Jobs() { // of a model's own are counts of calls that run at the door, and jobs never do
			d.Models++
		}
		d.Lanes += len(m.Lanes)
		d.Targets += len(m.Targets)
		d.Steps += max(0, len(now.Chains[m.Alias])-1)
		for _, t := range m.Targets {
			if t.Limits.Rates.RPM > 0 {
				d.Budgets++
			}
			if t.Limits.Rates.TPM > 0 {
				d.Budgets++
			}
		}
	}
	return d
}
