package lambda

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

func benchHost(b *testing.B, concurrency int, freeze bool) *Host {
	b.Helper()
	opts := DefaultOptions()
	opts.Freeze = freeze
	opts.ScaleUp = 0 // the cold starts of a bench are more than AWS would make
	h, err := New(opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close(context.Background()) })
	cfg := FunctionConfig{Name: "fn", Bootstrap: os.Getenv("LAMBDA_TEST_BOOTSTRAP"), Timeout: 10 * time.Second, MemoryMB: 128, Concurrency: concurrency}
	if err := h.Create(cfg); err != nil {
		b.Fatal(err)
	}
	return h
}

// eachFreeze runs a bench with and without freezing between invocations.
func eachFreeze(b *testing.B, bench func(b *testing.B, freeze bool)) {
	b.Helper()
	for _, freeze := range []bool{true, false} {
		b.Run(fmt.Sprintf("freeze=%v", freeze), func(b *testing.B) { bench(b, freeze) })
	}
}

// reportP50 reports the median of what single invocations took.
func reportP50(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/float64(time.Microsecond), "p50-µs")
}

func BenchmarkInvoke_Warm(b *testing.B) {
	eachFreeze(b, func(b *testing.B, freeze bool) {
		h := benchHost(b, 1, freeze)
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			if _, err := h.Invoke(b.Context(), "fn", []byte(`{"op":"echo"}`), InvokeOptions{}); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		reportP50(b, took)
	})
}

func BenchmarkInvoke_WarmEightInstances(b *testing.B) {
	eachFreeze(b, func(b *testing.B, freeze bool) {
		h := benchHost(b, 8, freeze)
		b.SetParallelism(4) // times 2 cores
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := h.Invoke(b.Context(), "fn", []byte(`{"op":"echo"}`), InvokeOptions{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkInvoke_Cold(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		h := benchHost(b, 1, true)
		began := time.Now()
		if _, err := h.Invoke(b.Context(), "fn", []byte(`{"op":"echo"}`), InvokeOptions{}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		h.Close(b.Context())
	}
	reportP50(b, took)
}
