package broker

import (
	"math/rand/v2"
	"testing"
)

type sortedItem struct {
	value int
	spot  spot[*sortedItem]
}

// Whatever is added and removed in whatever order, the first is the least of what is there.
func TestSorted_TopIsTheLeast(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		chance := rand.New(rand.NewPCG(seed, 0))
		s := newSorted(
			func(a, b *sortedItem) bool { return a.value < b.value },
			func(i *sortedItem) *spot[*sortedItem] { return &i.spot },
		)
		var in []*sortedItem
		for step := range 300 {
			switch n := len(in); {
			case n == 0 || chance.IntN(5) < 3:
				item := &sortedItem{value: step}
				if chance.IntN(4) == 0 {
					item.value = chance.IntN(step + 1) // out of turn
				}
				s.add(item)
				in = append(in, item)
			default:
				i := chance.IntN(n)
				if chance.IntN(2) == 0 {
					top, _ := s.top()
					for i = 0; in[i] != top; i++ {
					}
				}
				s.remove(in[i])
				in = append(in[:i], in[i+1:]...)
			}
			top, ok := s.top()
			if ok != (len(in) > 0) {
				t.Fatalf("seed %d, step %d: top tells %v with %d items", seed, step, ok, len(in))
			}
			for _, item := range in {
				if item.value < top.value {
					t.Fatalf("seed %d, step %d: the top is %d, but %d is there", seed, step, top.value, item.value)
				}
			}
		}
	}
}
