package broker

// sorted keeps items in order for a queue, where most come in order anyway: what is sent later is younger, and what is received later
// comes back later. Those form a list, so to add them, to take the first and to remove any costs nothing that grows; the few that
// come out of turn, such as messages that are given back, go to a heap beside it.
//
// place returns where an item keeps its spot. An item is in one sorted at most by the same spot.
type sorted[T comparable] struct {
	less       func(a, b T) bool
	place      func(T) *spot[T]
	head, tail T // of the list; the zero T when it is empty
	strays     indexed[T]
}

// spot is where in a sorted an item is.
type spot[T comparable] struct {
	prev, next T // in the list
	listed     bool
	at         int // in the heap, if not listed
}

func newSorted[T comparable](less func(a, b T) bool, place func(T) *spot[T]) sorted[T] {
	return sorted[T]{less: less, place: place, strays: indexed[T]{less: less, place: func(item T) *int { return &place(item).at }}}
}

func (s *sorted[T]) add(item T) {
	var none T
	p := s.place(item)
	if s.tail != none && s.less(item, s.tail) {
		p.listed = false
		s.strays.add(item)
		return
	}
	p.listed, p.prev, p.next = true, s.tail, none
	if s.tail == none {
		s.head = item
	} else {
		s.place(s.tail).next = item
	}
	s.tail = item
}

// remove takes an item out; it must be in.
func (s *sorted[T]) remove(item T) {
	var none T
	p := s.place(item)
	if !p.listed {
		s.strays.remove(item)
		return
	}
	if p.prev == none {
		s.head = p.next
	} else {
		s.place(p.prev).next = p.next
	}
	if p.next == none {
		s.tail = p.prev
	} else {
		s.place(p.next).prev = p.prev
	}
	p.prev, p.next = none, none // keep nothing alive
}

// top returns the first item, and false when there is none.
func (s *sorted[T]) top() (T, bool) {
	var none T
	stray, any := s.strays.top()
	switch {
	case s.head == none:
		return stray, any
	case any && s.less(stray, s.head):
		return stray, true
	}
	return s.head, true
}
