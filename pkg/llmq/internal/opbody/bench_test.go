package opbody

import (
	"strings"
	"testing"

	"github.com/llm-queue/llmq/pkg/llmq"
)

func BenchmarkCheck(b *testing.B) {
	text := strings.Repeat("x", 4<<20)
	for name, body := range map[string]string{
		"chat":   `{"messages":[{"role":"user","content":"` + text + `"}]}`,
		"deep":   strings.Repeat(`{"a":`, 99) + `"` + text + `"` + strings.Repeat("}", 99),
		"inputs": strings.Repeat(`{"input":`, 99) + `"` + text + `"` + strings.Repeat("}", 99),
		"lists":  strings.Repeat(`{"a":`, 98) + "[" + strings.Repeat("[],", 1<<20) + "1]" + strings.Repeat("}", 98),
		"tools":  strings.Repeat(`{"tools":[`, 49) + "[" + strings.Repeat("{},", 1<<20) + "1]" + strings.Repeat("]}", 49),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for range b.N {
				_ = Reach{}.Check(llmq.OpResponses, []byte(body))
			}
		})
	}
}
