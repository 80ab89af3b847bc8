package broker

import "container/heap"

// indexed is a heap whose items know their place in it, so any of them can be removed or moved in O(log n). place returns where
// an item keeps its index; an item outside the heap holds -1 there.
type indexed[T any] struct {
	items []T
	less  func(a, b T) bool
	place func(T) *int
}

// Len, Less, Swap, Push and Pop are what container/heap asks for; callers use the lower-case methods.
func (h *indexed[T]) Len() int           { return len(h.items) }
func (h *indexed[T]) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }

func (h *indexed[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.place(h.items[i]), *h.place(h.items[j]) = i, j
}

func (h *indexed[T]) Push(x any) {
	item := x.(T) //nolint:forcetypeassert // only add calls it, with a T
	*h.place(item) = len(h.items)
	h.items = append(h.items, item)
}

func (h *indexed[T]) Pop() any {
	last := len(h.items) - 1
	item := h.items[last]
	var none T
	h.items[last] = none
	h.items = h.items[:last]
	*h.place(item) = -1
	return item
}

func (h *indexed[T]) add(item T)    { heap.Push(h, item) }
func (h *indexed[T]) remove(item T) { heap.Remove(h, *h.place(item)) }
func (h *indexed[T]) fix(item T)    { heap.Fix(h, *h.place(item)) }

// top returns the first item, and false when there is none.
func (h *indexed[T]) top() (T, bool) {
	if len(h.items) == 0 {
		var none T
		return none, false
	}
	return h.items[0], true
}
