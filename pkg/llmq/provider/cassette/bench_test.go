package cassette_test

import (
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq/provider/cassette"
)

// What a recording of a megabyte costs to search.
func BenchmarkScan(b *testing.B) {
	for name, text := range map[string]string{
		"prose": "Rates are limited by tokens, and the task-force asked for \"more\\nroom\".",
		"hits":  "Basic sk-8 and account 12 of the bearer asked in request-id order.",
	} {
		b.Run(name, func(b *testing.B) {
			data := []byte(strings.Repeat(text, 1<<20/len(text)))
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if err := cassette.Scan(data, "0123456789-a-secret"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
