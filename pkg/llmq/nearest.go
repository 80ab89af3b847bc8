package llmq

import "strings"

// Nearest returns the name in names that got is most likely a misspelling of, or
// "" when none is close: at most a third of its letters (and at least one, at most
// three) may differ. It compares without regard to case.
func Nearest(got string, names []string) string {
	const longest = 64 // no configured name is longer; a hostile one is not worth the work
	if got == "" || len(got) > longest {
		return ""
	}
	best, bestDist := "", min(3, max(1, len(got)/3))+1
	for _, n := range names {
		if d := distance(strings.ToLower(got), strings.ToLower(n)); d < bestDist {
			best, bestDist = n, d
		}
	}
	return best
}

// distance is the number of single-byte edits, a swap of neighbours counting as one.
func distance(a, b string) int {
	prev2, prev := make([]int, len(b)+1), make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

// Clip shortens s to at most n bytes for use in a message, at a rune's start.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
