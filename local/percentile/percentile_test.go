package percentile_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llm-queue/llmq/local/percentile"
)

// H28: the nearest rank, and no value of nothing.
func TestOf_NearestRank(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][]time.Duration{
		1: {10, 10, 10}, 4: {20, 40, 40}, 20: {100, 190, 200}, 21: {110, 200, 210}, 100: {500, 950, 990}, 101: {510, 960, 1000},
	} {
		values := make([]time.Duration, n)
		for i, j := range rand.Perm(n) {
			values[i] = time.Duration(j+1) * 10
		}
		before := append([]time.Duration(nil), values...)
		var got []time.Duration
		for _, p := range []int{50, 95, 99} {
			v, ok := percentile.Of(values, p)
			if !ok {
				t.Errorf("p%d of %d is not there", p, n)
			}
			got = append(got, v)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("p50, p95, p99 of %d (-want +got):\n%s", n, diff)
		}
		if diff := cmp.Diff(before, values); diff != "" {
			t.Errorf("the values were changed (-want +got):\n%s", diff)
		}
	}
	for p, want := range map[int]int{0: 1, 1: 1, 10: 1, 11: 2, 90: 9, 91: 10, 100: 10} {
		if got, _ := percentile.Of([]int{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, p); got != want {
			t.Errorf("p%d of 1 to 10 is %d, want %d", p, got, want)
		}
	}
	if v, ok := percentile.Of([]float64(nil), 50); ok || v != 0 {
		t.Errorf("p50 of nothing is %v, %t", v, ok)
	}
}
