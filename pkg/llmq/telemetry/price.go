package telemetry

import (
	"math"
	"slices"
)

// What CloudWatch takes for a series ("custom metric") and month: in us-east-1, each of the first 10,000 of an account, by the hour in which
// it has a value. From aws.amazon.com/cloudwatch/pricing; not verified on a bill.
const (
	SeriesPrice = 0.30 // US dollars
	PriceAsOf   = "2026-11-30"
)

// MostPerLane is how many series a model's lane may have (FEATURES E7).
const MostPerLane = 12

// Deployed is what the number of series depends on.
type Deployed struct {
	Models  int
	Lanes   int // queues: of all models
	Targets int // of all models
	Budgets int // kinds of budgets that targets have: of calls, of tokens
	Steps   int // of all chains, without their first
}

// Series is how many series a metric has in CloudWatch at most, in hours without faults. Those that only a fault makes count as none.
func (in Info) Series(d Deployed) int {
	if in.Native || in.Rare {
		return 0
	}
	n := 1
	switch has := func(label string) bool { return slices.Contains(in.Labels, label) }; {
	case has("lane"), has("queue"):
		n = d.Lanes
	case has("target") && has("kind"):
		return d.Budgets
	case has("target"):
		n = d.Targets
	case has("step"):
		return d.Steps
	case has("model"):
		n = d.Models
	}
	return n * max(1, len(in.Apart))
}

// Dollars is what n series take a month, to the cent.
func Dollars(n int) float64 { return math.Round(float64(n)*SeriesPrice*100) / 100 }
