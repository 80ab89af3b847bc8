package config

import "testing"

func TestFunctionMemory_IsInMiB(t *testing.T) {
	t.Parallel()
	for size, want := range map[string]int64{"256": 256 << 20, "10240": 10 << 30, "": 0, "lots": 0, "-1": 0} {
		if got := FunctionMemory([]string{"A=b", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=" + size}); got != want {
			t.Errorf("%q: %d bytes, want %d", size, got, want)
		}
	}
	if got := FunctionMemory(nil); got != 0 {
		t.Errorf("outside a function: %d bytes", got)
	}
}
