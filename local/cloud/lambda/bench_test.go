package lambda

import (
	"context"
	"os"
	"testing"
	"time"
)

func benchHost(b *testing.B, concurrency int) *Host {
	b.Helper()
	h, err := New(DefaultOptions())
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

func BenchmarkInvoke_Warm(b *testing.B) {
	h := benchHost(b, 1)
	for b.Loop() {
		if _, err := h.Invoke(b.Context(), "fn", []byte(`{"op":"echo"}`), InvokeOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInvoke_WarmEightInstances(b *testing.B) {
	h := benchHost(b, 8)
	b.SetParallelism(4) // times 2 cores
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := h.Invoke(b.Context(), "fn", []byte(`{"op":"echo"}`), InvokeOptions{}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkInvoke_Cold(b *testing.B) {
	for b.Loop() {
		h := benchHost(b, 1)
		if _, err := h.Invoke(b.Context(), "fn", []byte(`{"op":"echo"}`), InvokeOptions{}); err != nil {
			b.Fatal(err)
		}
		h.Close(b.Context())
	}
}
