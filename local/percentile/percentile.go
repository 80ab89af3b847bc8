// Package percentile has the one rule by which every figure of this repository is a percentile: nearest rank.
package percentile

import (
	"cmp"
	"slices"
)

// Of is the smallest of the values that p per cent of them are not above: the ceil(p/100 × n)th of n (H28). p is from 0 to 100, and 0
// is the least. Of none there is no percentile, and ok is false. The values stay as they are.
func Of[T cmp.Ordered](values []T, p int) (value T, ok bool) {
	if len(values) == 0 {
		return value, false
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, (len(sorted)*p+99)/100-1)], true
}
