package main

import (
	"math"
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/capacity"
)

// BenchmarkLaw tells what the learned limit reaches in four kinds of scenario, in per cent of an oracle's goodput and of the attempts. It is
// simulated time, so every machine gets the same; make bench-check holds it to the last digit.
func BenchmarkLaw(b *testing.B) {
	p, err := compile(capacity.LawText())
	if err != nil {
		b.Fatal(err)
	}
	percent := func(part float64) float64 { return math.Round(part*10_000) / 100 }
	for _, name := range []string{"a concurrency 50", "b RPM bucket, 10 % burst", "f 2 % random, concurrency", "g concurrency halves and returns"} {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				played := false
				for _, sc := range scenarios() {
					if sc.name != name {
						continue
					}
					got := judge(sc, 1, 1, p.limiter(capacity.DefaultLaw()), false)
					b.ReportMetric(percent(got.law.Goodput), "%-goodput")
					b.ReportMetric(percent(got.law.Throttled), "%-throttled")
					played = true
				}
				if !played {
					b.Fatalf("there is no scenario %q", name)
				}
			}
		})
	}
}
