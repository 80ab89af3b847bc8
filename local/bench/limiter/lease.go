package main

// leaseTTL is how long a lease holds that nobody settles. Calls last at most 30 s, so
// renewal need not be played.
const leaseTTL = 60_000

type lease struct {
	lane    lane
	tokens  int64 // reserved
	started int64 // by the limiter's clock
}

// leases is the book of calls in flight, as the store keeps it.
type leases struct {
	held       map[int64]lease
	lapses     []lapse // by time
	background int
}

type lapse struct{ id, at int64 }

func newLeases() *leases { return &leases{held: map[int64]lease{}} }

func (l *leases) add(now, id int64, e lease) {
	l.held[id] = e
	l.lapses = append(l.lapses, lapse{id, now + leaseTTL})
	if e.lane != laneRT {
		l.background++
	}
}

func (l *leases) remove(id int64) (lease, bool) {
	e, ok := l.held[id]
	if ok {
		delete(l.held, id)
		if e.lane != laneRT {
			l.background--
		}
	}
	return e, ok
}

func (l *leases) expire(now int64) {
	for len(l.lapses) > 0 && l.lapses[0].at <= now {
		l.remove(l.lapses[0].id)
		l.lapses = l.lapses[1:]
	}
}

const backgroundShare = 0.8

// fits is the plain rule of a limit on slots, for the baselines.
func (l *leases) fits(limit float64, of lane) bool {
	const round = 1e-9
	if float64(len(l.held)+1) > limit+round {
		return false
	}
	return of == laneRT || float64(l.background+1) <= max(1, limit*backgroundShare)+round
}
